package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/transporttest"
	"github.com/ferrulehq/ferrule/internal/program"
)

// TestMain makes the test binary a plugin, if the variable PLUGIN says so.
func TestMain(m *testing.M) {
	switch mode, arg, _ := strings.Cut(os.Getenv("PLUGIN"), " "); mode {
	case "":
		os.Exit(m.Run())
	case "bridge": // to a socket of the test
		conn, err := net.Dial("unix", arg)
		if err != nil {
			os.Exit(3)
		}
		go func() { // without splice, which waits for input and output at once
			io.Copy(struct{ io.Writer }{conn}, struct{ io.Reader }{os.Stdin})
			conn.Close()
		}()
		io.Copy(struct{ io.Writer }{os.Stdout}, struct{ io.Reader }{conn})
	case "exit":
		fmt.Fprintln(os.Stderr, "bad license")
		os.Exit(7)
	case "environment":
		fmt.Println(strings.Join(os.Environ(), " "))
		io.Copy(io.Discard, os.Stdin)
	case "stubborn":
		select {}
	}
}

// self returns a plugin that is this test binary.
func self(mode string) Plugin {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return Plugin{Name: "helper", Command: program.Command{Args: []string{path}, Env: []string{"PLUGIN=" + mode}}}
}

// connector returns a Connector with the limits that the suite expects.
func connector(log io.Writer, plugins ...Plugin) *Connector {
	cfg := DefaultConfig()
	cfg.Plugins, cfg.Protocols, cfg.Patience, cfg.Limits = plugins, []string{"any"}, 100*time.Millisecond, transport.DefaultLimits()
	return New(cfg, slog.New(slog.NewTextHandler(log, nil)))
}

func open(t *testing.T, log io.Writer, p Plugin) transport.Link {
	t.Helper()
	link, err := connector(log).open(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close() })
	return link
}

func TestLink(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the bridge needs a Unix socket")
	}
	transporttest.RunLines(t, func(t *testing.T) (transport.Link, io.ReadWriteCloser) {
		dir, err := os.MkdirTemp("", "plugin") // the path of a socket must be short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		ln, err := net.Listen("unix", filepath.Join(dir, "s"))
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		link := open(t, io.Discard, self("bridge "+ln.Addr().String()))
		far, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { far.Close() })
		return link, far
	})
}

// TestEndOfProcess: the error of Recv says how the process ended, and its last words are in
// the log.
func TestEndOfProcess(t *testing.T) {
	var log bytes.Buffer
	link := open(t, &log, self("exit"))
	_, err := link.Recv(t.Context())
	if err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("got %v", err)
	}
	link.Close()
	if !strings.Contains(log.String(), "bad license") || !strings.Contains(log.String(), "device=helper") {
		t.Errorf("logged %q", log.String())
	}
}

// TestEnvironment: a plugin does not get the variables of the gateway.
func TestEnvironment(t *testing.T) {
	t.Setenv("FERRULE_TOKEN", "hunter2hunter2")
	link := open(t, io.Discard, self("environment"))
	m, err := link.Recv(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := string(m.Data); strings.Contains(got, "hunter2") || !strings.Contains(got, "PLUGIN=environment") || !strings.Contains(got, "PATH=") {
		t.Errorf("the environment is %q", got)
	}
}

// TestStubborn: a plugin that ignores the end of its input is ended.
func TestStubborn(t *testing.T) {
	link := open(t, io.Discard, self("stubborn"))
	if err := link.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-link.(*Link).process.Ended():
	default:
		t.Error("the process runs after Close")
	}
}

// TestOpenFails: a program that cannot be run is an error, as is one that everybody can
// change.
func TestOpenFails(t *testing.T) {
	open := filepath.Join(t.TempDir(), "open")
	if err := os.WriteFile(open, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	os.Chmod(open, 0o777)
	for path, want := range map[string]string{
		filepath.Join(t.TempDir(), "none"): "no such file", t.TempDir(): "is a directory", open: "everybody can change", "python3": "must begin with the path",
	} {
		if runtime.GOOS == "windows" && path == open {
			continue
		}
		_, err := connector(io.Discard).open(t.Context(), Plugin{Name: "a", Command: program.Command{Args: []string{path}}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
}

// TestWatch: a plugin with other settings is another instance, and one that is not
// configured any longer is gone.
func TestWatch(t *testing.T) {
	type report struct {
		group string
		all   []transport.Sighting
	}
	ctx, cancel := context.WithCancel(t.Context())
	reports := make(chan report)
	c := connector(io.Discard, self("exit"))
	ended := make(chan error)
	go func() {
		ended <- c.Watch(ctx, func(group string, all []transport.Sighting) { reports <- report{group, all} })
	}()
	if r := <-reports; len(r.all) != 1 || r.all[0].Name != "helper" || !r.all[0].Adopted || r.all[0].Attached || r.all[0].Instance != 1 {
		t.Errorf("got %+v", r)
	}
	other := self("environment")
	other.Pending = true
	c.Set([]Plugin{other})
	if r := <-reports; len(r.all) != 1 || r.all[0].Adopted || r.all[0].Instance != 2 {
		t.Errorf("got %+v", r)
	}
	c.Set(nil)
	if r := <-reports; len(r.all) != 0 || r.group != "plugin:helper" {
		t.Errorf("got %+v", r)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestErrorLog: long lines are cut, and too many are dropped and counted.
func TestErrorLog(t *testing.T) {
	var out bytes.Buffer
	l := newErrorLog(slog.New(slog.NewTextHandler(&out, nil)))
	io.WriteString(l, strings.Repeat("x", 10*maxErrorLine))
	io.WriteString(l, "\n")
	for i := range 1000 {
		fmt.Fprintf(l, "line %d\n", i)
	}
	if n := strings.Count(out.String(), "\n"); n > errorRate.Burst+5 || out.Len() > 3*maxErrorLine+100*errorRate.Burst || l.dropped < 900 {
		t.Errorf("%d lines, %d bytes, %d dropped", n, out.Len(), l.dropped)
	}
}

// TestCheck: a config with a mistake is refused.
func TestCheck(t *testing.T) {
	good := program.Command{Args: []string{"/bin/true"}}
	if runtime.GOOS == "windows" {
		good.Args = []string{`C:\true.exe`}
	}
	if err := (Config{Plugins: []Plugin{{Name: "a", Command: good}}}).Check(); err != nil {
		t.Error(err)
	}
	for name, plugins := range map[string][]Plugin{
		"no name":       {{Command: good}},
		"twice":         {{Name: "a", Command: good}, {Name: "a", Command: good}},
		"no program":    {{Name: "a"}},
		"relative":      {{Name: "a", Command: program.Command{Args: []string{"true"}}}},
		"NUL":           {{Name: "a", Command: program.Command{Args: append(good.Args, "a\x00b")}}},
		"bad variable":  {{Name: "a", Command: program.Command{Args: good.Args, Env: []string{"=x"}}}},
		"long argument": {{Name: "a", Command: program.Command{Args: append(good.Args, strings.Repeat("x", 1<<20))}}},
		"too many":      make([]Plugin, maxPlugins+1),
	} {
		if err := (Config{Plugins: plugins}).Check(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := connector(io.Discard).open(canceled(), Plugin{Name: "a", Command: good}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
