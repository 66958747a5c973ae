package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// output is what a command has written so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// startRelease runs `ferrule release robot -- sh -c SCRIPT`. The script can use $PORT, the
// program flash, and the function wait_for, which waits for a file that done creates.
func startRelease(t *testing.T, port, script string, flags ...string) (out *output, ended <-chan int, done, interrupt func()) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "done")
	t.Setenv("PORT", port)
	t.Setenv("DONE", file)
	script = "wait_for() { until test -e $DONE; do sleep 0.05; done; }; " + script
	out = &output{}
	code := make(chan int, 1)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	args := append(append([]string{"release", "robot"}, flags...), "--", "sh", "-c", script)
	go func() { code <- run(ctx, args, out, out) }()
	return out, code, func() {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Error(err)
		}
	}, cancel
}

// TestReleaseCommand flashes a board: the command has the port for longer than the
// release, its output and its exit code are passed on, and what changed is shown.
func TestReleaseCommand(t *testing.T) {
	link := filepath.Join(t.TempDir(), "board")
	board := uno.Start(t, uno.Options{BootTime: 200 * time.Millisecond, Link: link})
	c := newCommandLine(t)
	c.up("--serial", "robot="+link)
	before := c.until("robot", ferrule.StateOnline)

	out, ended, done, _ := startRelease(t, link, `flash $PORT </dev/null; wait_for; echo flashed; exit 3`, "--for", "1s")
	wait.For(t, "the command has the port", func() bool { return strings.Contains(out.String(), `"device":"rig-uno"`) })
	c.until("robot", ferrule.StateReleased)
	resets := board.Resets()
	ends := make(map[string]bool) // the times until which it is released, in seconds
	wait.For(t, "it is extended twice", func() bool {
		now := c.device("robot")
		if now.State != string(ferrule.StateReleased) {
			t.Fatalf("the release ended: %+v", now)
		}
		ends[now.Reason] = true
		return len(ends) == 3
	})
	if board.Resets() != resets {
		t.Error("the gateway opened the port while the command ran")
	}
	board.Close()
	uno.Start(t, uno.Options{BootTime: 200 * time.Millisecond, Link: link, Large: true}) // other firmware
	done()
	if code := <-ended; code != 3 {
		t.Errorf("got exit code %d", code)
	}
	after := c.until("robot", ferrule.StateOnline)
	for _, want := range []string{
		"robot is released while sh runs.\n", "flashed\n", "robot is online.", "robot has changed: it is ", "and was " + ferrule.Kind(before.Kind).Short(), "\nadded    tool ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("missing %q in\n%s", want, out)
		}
	}
	if after.Kind == before.Kind && after.Waiting == 0 {
		t.Errorf("got %+v", after)
	}

	// The same firmware again, as JSON: standard output has nothing else.
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"release", "robot", "--json", "--", "sh", "-c", "echo text"}, &stdout, &stderr)
	var outcome struct {
		Exit    int
		State   string
		Changes struct{ Since, Now string }
	}
	if err := json.Unmarshal(stdout.Bytes(), &outcome); err != nil || code != 0 || outcome.State != "online" || outcome.Changes.Now == "" || !strings.Contains(stderr.String(), "text\n") {
		t.Errorf("got %d, %v and\n%s\n%s", code, err, &stdout, &stderr)
	}
	c.want(exitUsage, `"no-such-program": executable file not found`, "release", "robot", "--", "no-such-program")
	c.want(exitUsage, "usage: ferrule release", "release", "robot", "--")
	c.want(exitUsage, "usage: ferrule release", "release", "--", "true")
	c.want(exitUsage, "must be at least 1s with a command", "release", "robot", "--for", "0s", "--", "true")
	c.want(exitNotRun, `there is no device "toaster"`, "release", "toaster", "--", "true")
	if d := c.device("robot"); d.State != string(ferrule.StateOnline) {
		t.Errorf("got %+v", d)
	}
}

// TestReleaseInterrupted checks that the port is taken back after Ctrl-C, and that the
// exit code is that of the command.
func TestReleaseInterrupted(t *testing.T) {
	board := uno.Start(t, uno.Options{BootTime: 200 * time.Millisecond, Link: filepath.Join(t.TempDir(), "board")})
	c := newCommandLine(t)
	c.up("--serial", "robot="+board.Path())
	c.until("robot", ferrule.StateOnline)
	out, ended, _, interrupt := startRelease(t, board.Path(), `trap "echo told to end; exit 42" TERM; echo begun; wait_for`)
	wait.For(t, "the command runs", func() bool { return strings.Contains(out.String(), "begun") })
	interrupt()
	if code := <-ended; code != 42 || !strings.Contains(out.String(), "told to end\n") {
		t.Errorf("got %d and\n%s", code, out)
	}
	if d := c.device("robot"); d.State != string(ferrule.StateOnline) {
		t.Errorf("got %+v", d)
	}
}

// TestReleaseRestart checks that a gateway which is restarted does not take the port from
// the command, and that the command's end is the end of the release.
func TestReleaseRestart(t *testing.T) {
	board := uno.Start(t, uno.Options{BootTime: 200 * time.Millisecond, Link: filepath.Join(t.TempDir(), "board")})
	c := newCommandLine(t)
	stop := c.up("--serial", "robot="+board.Path())
	c.until("robot", ferrule.StateOnline)
	out, ended, done, _ := startRelease(t, board.Path(), `flash $PORT </dev/null; wait_for`, "--for", "30s")
	wait.For(t, "the command has the port", func() bool { return strings.Contains(out.String(), `"device":"rig-uno"`) })
	resets := board.Resets()
	stop()
	stop = c.up("--serial", "robot="+board.Path())
	d := c.until("robot", ferrule.StateReleased)
	c.want(exitNotReached, "robot is released for other programs until ", "call", "robot", "gpio_read", "pin=13")
	if !strings.HasPrefix(d.Reason, "is released for other programs until ") || board.Resets() != resets {
		t.Errorf("got %+v; %d resets, %d before", d, board.Resets(), resets)
	}
	done()
	if code := <-ended; code != 0 || !strings.Contains(out.String(), "robot says the same about itself as before") {
		t.Errorf("got %d and\n%s", code, out)
	}
	c.want(0, `"value"`, "call", "robot", "gpio_read", "pin=13")

	// A release that has ended is not remembered.
	stop()
	c.up("--serial", "robot="+board.Path())
	c.until("robot", ferrule.StateOnline)
}
