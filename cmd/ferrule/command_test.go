package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// commandLine is a command line with its own data directory and configuration. Commands
// run in this process.
type commandLine struct{ t *testing.T }

func newCommandLine(t *testing.T) commandLine {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv("FERRULE_DATA", filepath.Join(dir, "data"))
	t.Setenv("FERRULE_LISTEN", "127.0.0.1:0")
	if err := os.Mkdir(filepath.Join(dir, "config"), 0o700); err != nil {
		t.Fatal(err)
	}
	return commandLine{t}
}

// up runs `ferrule up`, until the test ends or by stop.
func (c commandLine) up(args ...string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, append([]string{"up"}, args...), c.t.Output(), c.t.Output()) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if code := <-ended; code != 0 {
			c.t.Errorf("ferrule up exits with %d", code)
		}
	})
	c.t.Cleanup(stop)
	return stop
}

// run runs a command and returns its exit code and output.
func (c commandLine) run(args ...string) (code int, text string) {
	var b strings.Builder
	code = run(context.Background(), args, &b, &b)
	return code, b.String()
}

// want runs a command and checks its exit code and a part of its output. The doctor is
// run again if a check took too long on a busy machine.
func (c commandLine) want(code int, words string, args ...string) {
	c.t.Helper()
	got, text := c.run(args...)
	for range 3 {
		if !strings.Contains(text, "this check took too long") {
			break
		}
		got, text = c.run(args...)
	}
	if got != code || !strings.Contains(text, words) {
		c.t.Errorf("ferrule %s: want %d and %q, got %d and\n%s", strings.Join(args, " "), code, words, got, text)
	}
}

// device returns a device of `ferrule devices --json`, by address or ID.
func (c commandLine) device(which string) (d builtin.DescribedDevice) {
	_, text := c.run("devices", "--json")
	var all []builtin.DescribedDevice
	json.Unmarshal([]byte(text), &all) // an error while no gateway is running
	for _, d := range all {
		if d.ID == which || d.Address == which {
			return d
		}
	}
	return builtin.DescribedDevice{}
}

// until waits until a device is in a state, and returns it.
func (c commandLine) until(which string, state ferrule.State) (d builtin.DescribedDevice) {
	c.t.Helper()
	for end := time.Now().Add(wait.Ample); ; time.Sleep(20 * time.Millisecond) {
		if d = c.device(which); d.State == string(state) {
			return d
		} else if time.Now().After(end) {
			c.t.Fatalf("%s is not %s but %+v", which, state, d)
		}
	}
}
