package ferrule_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestSecret: no way of printing a secret shows its text.
func TestSecret(t *testing.T) {
	type holder struct {
		Token ferrule.Secret
		List  []ferrule.Secret
	}
	h := holder{"hunter2hunter2", []ferrule.Secret{"hunter2hunter2"}}
	asJSON, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(handler).Info("started", "token", h.Token, "all", h, "pointer", &h)
	}
	for _, text := range []string{
		string(asJSON), log.String(), h.Token.String(), fmt.Sprint(h), fmt.Sprint(&h), fmt.Errorf("got %w: %v", errors.New("x"), h.Token).Error(),
	} {
		if strings.Contains(text, "hunter") || !strings.Contains(text, "…") {
			t.Errorf("got %s", text)
		}
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%10s", "%T"} {
		for _, v := range []any{h, h.Token, &h} {
			if text := fmt.Sprintf(verb, v); strings.Contains(text, "hunter") || strings.Contains(strings.ToLower(text), "68756e746572") {
				t.Errorf("%s prints %s", verb, text)
			}
		}
	}
	if h.Token.Reveal() != "hunter2hunter2" || ferrule.Secret("").String() != "" {
		t.Error("Reveal or an empty secret")
	}
}

// TestMaskArgs: a secret is masked at any depth, and the rest stays as it is.
func TestMaskArgs(t *testing.T) {
	tool := &ferrule.Tool{Secrets: []string{"code"}}
	for args, want := range map[string]string{
		`{"n":1.50,"data":{"x":[{"Code":{"a":1}},2]}}`: `{"data":{"x":[{"Code":"…"},2]},"n":1.50}`,
		`{"code":"1234","text":"a"}`:                   `{"code":"…","text":"a"}`,
		`{"text":"code",  "n":12345678901234567890}`:   `{"text":"code",  "n":12345678901234567890}`,
	} {
		if got := string(tool.MaskArgs(json.RawMessage(args), true)); got != want {
			t.Errorf("%s: got %s", args, got)
		}
	}
}

func TestMaskURL(t *testing.T) {
	for raw, want := range map[string]string{
		"http://h/mcp":                         "http://h/mcp",
		"http://me:word@h/mcp":                 "http://…@h/mcp",
		"nats://me:wo/rd@h:4222":               "nats://…@h:4222",
		"nats://me:wo?rd@h:4222":               "nats://…@h:4222",
		"me:word@h:4222":                       "…@h:4222",
		"wss://api.example.com/mcp/?token=abc": "wss://api.example.com/mcp/?…",
		"http://a@b@h/?q#f":                    "http://…@h/?…",
		"auto":                                 "auto",
	} {
		if got := ferrule.MaskURL(raw); got != want {
			t.Errorf("%s: got %s, want %s", raw, got, want)
		}
	}
	for text, want := range map[string]string{
		`dial "nats://me:word@h:4222", then wss://h/?token=abc: refused`: `dial "nats://…@h:4222", then wss://h/?…: refused`,
		"opening /dev/ttyUSB0@115200 of me@example.com":                  "opening /dev/ttyUSB0@115200 of me@example.com",
		"unknown resource weather://berlin?unit=c":                       "unknown resource weather://berlin?unit=c",
	} {
		if got := ferrule.MaskURLs(text); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	err := ferrule.MaskError(fmt.Errorf("reading http://me:word@h: %w", fs.ErrNotExist))
	if err.Error() != "reading http://…@h: file does not exist" || !errors.Is(err, fs.ErrNotExist) || ferrule.MaskError(nil) != nil {
		t.Errorf("got %v", err)
	}
}

// TestMaskLog: whatever is logged, URLs lose their secrets.
func TestMaskLog(t *testing.T) {
	var out bytes.Buffer
	const url = "http://me:hunter2@h/"
	log := slog.New(ferrule.MaskLog(slog.NewTextHandler(&out, nil))).With("base", url).WithGroup("g")
	log.Info("connecting to "+url, "url", url, "err", errors.New(url), "group", slog.GroupValue(slog.String("in", url)), "list", []string{url}, "n", 3)
	if text := out.String(); strings.Contains(text, "hunter2") || strings.Count(text, "…@h") != 6 || !strings.Contains(text, "g.n=3") {
		t.Errorf("got %s", text)
	}
}

func FuzzMaskURL(f *testing.F) {
	for _, text := range []string{"http://me:hunter2@h/?token=hunter2", "://", "@?", "nats://hunter2@", "a://b?c@d"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		once := ferrule.MaskURL(text)
		if ferrule.MaskURL(once) != once {
			t.Errorf("%q becomes %q and then %q", text, once, ferrule.MaskURL(once))
		}
		ferrule.MaskURLs(text)
	})
}
