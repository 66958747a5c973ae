package doctor

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/local/datadir"
)

// TestProcesses finds the processes that have a lock, a TCP port and a socket.
func TestProcesses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, datadir.LockFile)
	if pid, ok := lockHolder("/", path); pid != 0 || !ok {
		t.Errorf("no lock: got %d, %v", pid, ok)
	}
	lock, err := datadir.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if pid, ok := lockHolder("/", path); pid != os.Getpid() || !ok {
		t.Errorf("locked: got %d, %v", pid, ok)
	}
	lock.Close()
	if pid, ok := lockHolder("/", path); pid != 0 || !ok {
		t.Errorf("unlocked: got %d, %v", pid, ok)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	if p := portHolder("/", port); p.pid != os.Getpid() || !strings.Contains(p.command, os.Args[0]) {
		t.Errorf("listening: got %v", p)
	}
	ln.Close()
	if p := portHolder("/", port); p.pid != 0 {
		t.Errorf("closed: got %v", p)
	}
	socket := filepath.Join(dir, "s")
	unix, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close()
	if pid := listenerOf(t.Context(), socket); pid != os.Getpid() {
		t.Errorf("got %d", pid)
	}

	// A machine without /proc, and one with garbage in it.
	for _, root := range []string{t.TempDir(), machineOf(t, map[string]string{
		"proc/locks": "x\n1: FLOCK\n1: FLOCK ADVISORY WRITE -1 ::: 0 EOF\n", "proc/net/tcp": "x\n0: :0001 0 0A 1 1 1 1 1 1\n",
	})} {
		pid, _ := lockHolder(root, path)
		if p := portHolder(root, 1); pid != 0 || p.pid != 0 || commandOf(root, 1) != "" {
			t.Errorf("got %d, %v", pid, p)
		}
	}
}
