// Package program runs programs that the owner of the gateway named in its configuration
// file: plugins and hooks.
//
//	Command --Start--> Process --Wait, End--> the process and everything it started is gone
//	        --Run----> the same, with bounded input, output and time
//
// No shell is involved. A program gets a small part of the gateway's environment, without
// the gateway's own settings and secrets, and a process group of its own, which is ended as
// a whole.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// Command is a program with its arguments.
type Command struct {
	// Args are the absolute path of the program and its arguments.
	Args []string
	// Env are variables as NAME=VALUE, besides those that every program gets.
	Env []string
	// Dir is the working directory; if it is empty, that of the program.
	Dir string
}

// The limits of a Command.
const (
	maxArgs = 64
	maxText = 64 << 10 // bytes of all arguments and variables
)

// Check returns an error if the command cannot be run on any machine.
func (c Command) Check() error {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return errors.New("must have the path of a program")
	}
	if !filepath.IsAbs(c.Args[0]) {
		return fmt.Errorf("must begin with the path of a program, such as /usr/bin/python3, got %q", c.Args[0])
	}
	if n := len(c.Args); n > maxArgs {
		return fmt.Errorf("has %d arguments; limit is %d", n, maxArgs)
	}
	size := 0
	for _, text := range slices.Concat(c.Args, c.Env) {
		if strings.ContainsRune(text, 0) {
			return errors.New("must not contain the character NUL")
		}
		size += len(text)
	}
	if size > maxText {
		return fmt.Errorf("arguments and variables have %d bytes; limit is %d", size, maxText)
	}
	for _, v := range c.Env {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" {
			return fmt.Errorf("variable %q must have a name", name)
		}
	}
	return nil
}

// inherited are the variables that a program gets from the gateway. Everything else may be
// a secret.
var inherited = []string{
	"PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
	"SystemRoot", "SystemDrive", "TEMP", "TMP", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PATHEXT", "ComSpec", // on Windows
}

// environment returns the variables of the program. It is never nil: the program would get
// all variables of the gateway.
func (c Command) environment() []string {
	all := []string{}
	for _, name := range inherited {
		if value, ok := os.LookupEnv(name); ok {
			all = append(all, name+"="+value)
		}
	}
	return append(all, c.Env...)
}

// Process is a program that was started.
type Process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // how it ended; set before ended is closed
}

// Start starts the program. Each of in, out and errs may be nil. A file is passed to the
// program itself. The caller must call End.
func (c Command) Start(in io.Reader, out, errs io.Writer) (*Process, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	info, err := os.Stat(c.Args[0])
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%s is a directory", c.Args[0])
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o002 != 0:
		return nil, fmt.Errorf("everybody can change %s; to correct that, run `chmod o-w %s`", c.Args[0], c.Args[0])
	}
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env, cmd.Dir = c.environment(), c.Dir
	if cmd.Dir == "" {
		cmd.Dir = filepath.Dir(c.Args[0])
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
	cmd.WaitDelay = copyTime
	newGroup(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, ended: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		killGroup(cmd) // what it started and left behind
		close(p.ended)
	}()
	return p, nil
}

// copyTime limits how long output is read after the program has ended: another process
// may still have it open.
const copyTime = 500 * time.Millisecond

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err returns how the process ended. It must be called after Ended is closed.
func (p *Process) Err() error { return p.err }

// End waits for the end of the process for as long as patience, then asks its process
// group to end, and then kills it. It returns when the process is gone. It may be called
// more than once.
func (p *Process) End(patience time.Duration) {
	for _, end := range []func(*exec.Cmd){nil, endGroup, killGroup} {
		if end != nil {
			end(p.cmd)
		}
		wait := time.NewTimer(patience)
		select {
		case <-p.ended:
			wait.Stop()
			return
		case <-wait.C:
		}
	}
	<-p.ended
}

// Run runs the program with an input until it ends, and returns its output. If ctx ends, or
// the output is longer than limit, the program is killed.
func (c Command) Run(ctx context.Context, input []byte, limit int) (output []byte, err error) {
	out, errs := &bounded{limit: limit, full: make(chan struct{})}, &bounded{limit: maxErrors}
	p, err := c.Start(bytes.NewReader(input), out, errs)
	if err != nil {
		return nil, err
	}
	defer p.End(0)
	select {
	case <-p.Ended():
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-out.full:
		return nil, fmt.Errorf("its output is longer than %d bytes", limit)
	}
	output, long := out.text()
	said, _ := errs.text()
	switch err := p.Err(); {
	case err != nil && len(bytes.TrimSpace(said)) > 0:
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(said))
	case err != nil:
		return nil, err
	case long:
		return nil, fmt.Errorf("its output is longer than %d bytes", limit)
	}
	return output, nil
}

// maxErrors is how much of its standard error output is kept, in bytes.
const maxErrors = 1 << 10

// bounded keeps the beginning of what is written to it.
type bounded struct {
	limit int
	full  chan struct{} // closed when there is more; may be nil

	mu   sync.Mutex
	data []byte
	more bool
}

// Write implements io.Writer. It drops what is too long.
func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	room := b.limit - len(b.data)
	b.data = append(b.data, p[:min(room, len(p))]...)
	if len(p) > room && !b.more {
		if b.more = true; b.full != nil {
			close(b.full)
		}
	}
	return len(p), nil
}

func (b *bounded) text() (data []byte, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data, b.more
}
