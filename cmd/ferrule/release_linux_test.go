package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
)

// TestRelease checks that another program gets the port of a released board, and that
// the gateway reconnects by itself, when the other program is done.
func TestRelease(t *testing.T) {
	board := uno.Start(t, uno.Options{BootTime: 200 * time.Millisecond, Link: filepath.Join(t.TempDir(), "board")})
	port, err := filepath.EvalSymlinks(board.Path())
	if err != nil {
		t.Fatal(err)
	}
	c := newCommandLine(t)
	file := filepath.Join(t.TempDir(), "ferrule.yaml")
	if err := os.WriteFile(file, []byte("retry: {min: 20ms, max: 500ms, wait: 500ms}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.up("--serial", "robot="+board.Path(), "--config", file)
	before := c.until("robot", ferrule.StateOnline)

	code, text := c.run("release", "robot", "--for", "1h")
	until, ok := strings.CutPrefix(text, "robot is released until ")
	if code != 0 || !ok {
		t.Fatalf("got %d and %s", code, text)
	}
	until = strings.TrimSuffix(until, ".\n")
	_, letGo := startFlash(t, port)
	c.want(exitNotReached, "ferrule: robot is released for other programs until "+until+"\n  Ferrule reconnects by itself; to reconnect now, run `ferrule release robot --for 0s`\n",
		"call", "robot", "gpio_read", "pin=13")
	c.want(0, "  is released for other programs until "+until+"\n", "devices")
	letGo()
	if d := c.device("robot"); d.State != string(ferrule.StateReleased) || d.Kind != before.Kind {
		t.Errorf("got %+v", d)
	}
	began := time.Now()
	c.want(0, "robot is released until ", "release", "robot", "--for", "2s")
	if d := c.until("robot", ferrule.StateOnline); d.Since.Before(began.Add(2*time.Second)) || d.Kind != before.Kind || !d.Restarted.After(*before.Restarted) {
		t.Errorf("got %+v", d)
	}
	c.want(0, `"value":true`, "call", "robot", "gpio_write", "pin=13", "value=true")
	board.WaitPin("B5", true)

	// The other program takes longer.
	c.want(0, "robot is released until ", "release", "robot", "--for", "1h")
	other, letGo := startFlash(t, port)
	c.want(0, "robot is released until ", "release", "robot", "--for", "100ms")
	inUse := fmt.Sprintf("opening %s: in use by flash (process %d)", port, other.Process.Pid)
	if d := c.until("robot", ferrule.StateOffline); d.Reason != inUse {
		t.Errorf("got %+v, want %s", d, inUse)
	}
	c.want(exitNotReached, inUse, "call", "robot", "gpio_read", "pin=13")
	c.want(0, inUse+"\n", "devices")
	resets := board.Resets()
	time.Sleep(time.Second)
	if board.Resets() != resets {
		t.Error("the board was restarted while another program had it")
	}
	letGo()
	c.until("robot", ferrule.StateOnline)

	// The other program is done early.
	c.want(0, "robot is released until ", "release", "robot", "--for", "1h")
	c.want(0, "robot is no longer released.\n", "release", "robot", "--for", "0s")
	c.until("robot", ferrule.StateOnline)
	c.want(0, `"value":false`, "call", "robot", "gpio_read", "pin=13")
	c.want(exitUsage, "--for must be from 0s to 24h0m0s, got 25h0m0s", "release", "robot", "--for", "25h")
	c.want(exitNotRun, `there is no device "toaster"`, "release", "toaster")
}
