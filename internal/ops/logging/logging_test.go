package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"regexp"
	"testing"
	"testing/slogtest"
)

// TestHuman checks lines for a terminal.
func TestHuman(t *testing.T) {
	var out bytes.Buffer
	log := New(&out, true, slog.LevelInfo)
	log.Debug("not shown")
	log.With("device", "robot").Warn("the device \x1b[31mfailed\nbadly", "err", errors.New(`port "COM3" is gone`), "n", 3)
	want := `^\d\d:\d\d:\d\d WARN  the device [^\x1b\n]*failed[^\n]*badly device=robot err="port \\"COM3\\" is gone" n=3\n$`
	if !regexp.MustCompile(want).MatchString(out.String()) {
		t.Errorf("got %q", out.String())
	}
}

// TestService checks that services get JSON.
func TestService(t *testing.T) {
	var out bytes.Buffer
	New(&out, false, slog.LevelDebug).Debug("hello", "device", "robot")
	var line struct{ Time, Level, Msg, Device string }
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Level != "DEBUG" || line.Msg != "hello" || line.Device != "robot" || line.Time == "" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

// TestHandler runs the suite for handlers.
func TestHandler(t *testing.T) {
	var out bytes.Buffer
	pair := regexp.MustCompile(` ([\w.]+)=("(?:[^"\\]|\\.)*"|\S+)`)
	head := regexp.MustCompile(`^(\d\d:\d\d:\d\d )?([A-Z]+) +(\S+)`)
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out.Reset()
		return New(&out, true, slog.LevelInfo).Handler()
	}, func(t *testing.T) map[string]any {
		fields := make(map[string]any)
		found := head.FindStringSubmatch(out.String())
		if found == nil {
			t.Fatalf("got %q", out.String())
		}
		if found[1] != "" {
			fields[slog.TimeKey] = found[1]
		}
		fields[slog.LevelKey], fields[slog.MessageKey] = found[2], found[3]
		for _, kv := range pair.FindAllStringSubmatch(out.String(), -1) {
			at, key := fields, kv[1]
			for {
				group, rest, nested := bytes.Cut([]byte(key), []byte("."))
				if !nested {
					break
				}
				inner, ok := at[string(group)].(map[string]any)
				if !ok {
					inner = make(map[string]any)
					at[string(group)] = inner
				}
				at, key = inner, string(rest)
			}
			at[key] = kv[2]
		}
		return fields
	})
}
