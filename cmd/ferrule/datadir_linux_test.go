package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ferrulehq/ferrule/internal/local/datadir"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestPrivateData checks that a gateway closes its data directory to other users when it
// starts, and that everything it writes afterwards is closed as well.
func TestPrivateData(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022)) // as in most shells
	c := newCommandLine(t)
	data := os.Getenv("FERRULE_DATA")
	left := filepath.Join(data, "devices.jsonl")
	for _, err := range []error{os.Mkdir(data, 0o755), os.WriteFile(left, nil, 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c.want(exitOther, "other users can access files of the data directory: "+data+", devices.jsonl\n", "doctor")
	stop := c.up("--device-listen", "127.0.0.1:0")
	wait.For(t, "the gateway", func() bool { code, _ := c.run("devices"); return code == 0 })
	for _, name := range []string{"", datadir.HistoryFile, "journal.log", "control.sock"} {
		if _, err := os.Lstat(filepath.Join(data, name)); err != nil {
			t.Error(err)
		}
	}
	if exposed, err := datadir.Examine(data); err != nil || len(exposed) > 0 {
		t.Errorf("other users can access %v, %v", exposed, err)
	}
	stop()

	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(left, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if code, text := c.run("up"); code != exitOther || !strings.Contains(text, left+" belongs to another user") {
		t.Errorf("a file of another user: %d and %s", code, text)
	}
}
