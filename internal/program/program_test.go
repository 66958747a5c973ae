package program_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/program"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// script writes a shell script, which is a program like any other.
func script(t *testing.T, text string) program.Command {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return program.Command{Args: []string{path}}
}

func TestRun(t *testing.T) {
	out, err := script(t, "cat; echo done; pwd").Run(t.Context(), []byte("hello\n"), 1<<10)
	if err != nil || !strings.HasPrefix(string(out), "hello\ndone\n/") {
		t.Errorf("got %q, %v", out, err)
	}
	c := script(t, `echo "$1" "$A"`)
	c.Args, c.Env = append(c.Args, `$(id); "x"`), []string{"A=b c"}
	if out, err := c.Run(t.Context(), nil, 1<<10); err != nil || string(out) != "$(id); \"x\" b c\n" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestRunFails(t *testing.T) {
	if _, err := script(t, "echo why >&2; exit 3").Run(t.Context(), nil, 1<<10); err == nil || err.Error() != "exit status 3: why" {
		t.Errorf("got %v", err)
	}
	start := time.Now()
	if _, err := script(t, "while :; do echo aaaaaaaaaaaaaaaaaaaaaaa; done").Run(t.Context(), nil, 1<<10); err == nil || !strings.Contains(err.Error(), "longer than 1024 bytes") {
		t.Errorf("got %v after %v", err, time.Since(start))
	}
	if _, err := script(t, "printf '%2000s' x").Run(t.Context(), nil, 1<<10); err == nil || !strings.Contains(err.Error(), "longer than 1024 bytes") {
		t.Errorf("got %v", err)
	}
}

// TestRunKillsGroup: when the time is up, the program and what it started are gone.
func TestRunKillsGroup(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	c := script(t, `trap "" TERM; sleep 1000 & echo $$ $! > "$PIDS.new"; mv "$PIDS.new" "$PIDS"; sleep 1000`)
	c.Env = []string{"PIDS=" + pids}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := c.Run(ctx, nil, 1<<10)
		ended <- err
	}()
	wait.For(t, "the program has started another one", func() bool { _, err := os.Stat(pids); return err == nil })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	gone(t, pids)
}

// TestLeftBehind: what a program leaves behind when it ends is killed.
func TestLeftBehind(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	c := script(t, `sleep 1000 >/dev/null 2>&1 & echo $! > "$PIDS"; echo ok`)
	c.Env = []string{"PIDS=" + pids}
	if out, err := c.Run(t.Context(), nil, 1<<10); err != nil || string(out) != "ok\n" {
		t.Errorf("got %q, %v", out, err)
	}
	gone(t, pids)
}

// gone waits until the processes in a file have ended.
func gone(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range strings.Fields(string(data)) {
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		wait.For(t, "process "+text+" has ended", func() bool { return ended(pid) })
	}
}

// ended reports whether a process has ended. It may wait for its parent to notice.
func ended(pid int) bool {
	if p, err := os.FindProcess(pid); err != nil || p.Signal(syscall.Signal(0)) != nil {
		return true
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && strings.Contains(string(stat), ") Z ")
}
