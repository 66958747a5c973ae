// Package query answers questions in SQL about what was measured, whoever asks them.
//
//	Asker ─▶ one statement? ─▶ a child process ─▶ SQLite, read only ─▶ rows as JSON
//	         lex.go            bounded in time,   bounded in memory,
//	                           rows and bytes     sizes and depth
//
// SQL is a language in which one can ask for anything. Each question has a process of its
// own, a child of the same program: whatever becomes of it, it ends within two seconds,
// and the gateway does not notice.
package query

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The bounds of a question.
const (
	MaxTime       = 1800 * time.Millisecond // it has ended when two seconds are over
	MaxText       = 10_000                  // bytes of a question
	MaxRows       = 1000
	defaultRows   = 100
	maxAnswer     = 256 << 10 // bytes of all rows
	maxHeap       = 8 << 20   // bytes that SQLite may take
	maxConcurrent = 2         // questions; others wait
	maxWait       = 5 * time.Second
)

// Asker answers questions about one file.
type Runner struct {
	path    string
	program []string
	env     []string
	slots   chan struct{}
	timeout time.Duration // of a question

	started func(pid int) // tests look at the process; nil otherwise
}

// New makes an asker of the file at path. Program is the command of which the child is
// made: a file, what it is to call itself, and its arguments. It must call Serve.
func New(path string, program ...string) *Runner {
	if whole, err := filepath.Abs(path); err == nil { // a URI has no other
		path = whole
	}
	return &Runner{path: path, program: program, env: environment(), slots: make(chan struct{}, maxConcurrent), timeout: MaxTime}
}

// Self is this program, as the file of a command: also if another one is in its place by
// now.
func Self() (string, error) {
	const here = "/proc/self/exe"
	if _, err := os.Stat(here); err == nil && runtime.GOOS == "linux" {
		return here, nil
	}
	return os.Executable()
}

// request is what the child is asked.
type request struct {
	Path string `json:"path"`
	Text string `json:"text"`
	Rows int    `json:"rows"`
}

// reply is what it answers.
type reply struct {
	Columns []string          `json:"columns"`
	Rows    []json.RawMessage `json:"rows"`
	More    bool              `json:"more"`
	Error   *ferrule.Error    `json:"error,omitempty"`
}

// Ask answers a question: the names of the columns, and rows, each of which is a JSON
// array. It tells whether there are more rows than those, which are rows at most, or as
// many as usual if that is 0.
func (a *Runner) Ask(ctx context.Context, text string, rows int) (columns []string, answer []json.RawMessage, more bool, err error) {
	if err := Check(text); err != nil {
		return nil, nil, false, err
	}
	if rows <= 0 {
		rows = defaultRows
	}
	wait, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	case <-wait.Done():
		return nil, nil, false, ferrule.Errorf(ferrule.Limited, "other questions are being answered").WithHint("ask again in a moment")
	}
	r, err := a.run(ctx, request{a.path, text, min(rows, MaxRows)})
	if err != nil {
		return nil, nil, false, err
	}
	return r.Columns, r.Rows, r.More, nil
}

// run asks a child.
func (a *Runner) run(ctx context.Context, asked request) (*reply, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	line, err := json.Marshal(asked)
	if err != nil {
		return nil, ferrule.Errorf(ferrule.Internal, "the question cannot be told: %w", err)
	}
	cmd := exec.CommandContext(ctx, a.program[0])
	cmd.Args = a.program[1:]
	cmd.Env = a.env
	cmd.WaitDelay = MaxTime / 10
	out := &bounded{most: maxAnswer * 2}
	cmd.Stdout = out
	in, err := cmd.StdinPipe() // it is open as long as somebody waits for the answer
	if err != nil {
		return nil, ferrule.Errorf(ferrule.Internal, "asking: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, ferrule.Errorf(ferrule.Internal, "a process for the question cannot be started: %w", err)
	}
	if a.started != nil {
		a.started(cmd.Process.Pid)
	}
	_, err = in.Write(append(line, '\n'))
	ended := cmd.Wait()
	var r reply
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		return nil, ferrule.Errorf(ferrule.Limited, "the question took longer than %v and was ended", a.timeout).WithHint(narrowHint)
	case ctx.Err() != nil:
		return nil, ferrule.Errorf(ferrule.Cancelled, "nobody waits for the answer any more")
	case json.Unmarshal(out.Bytes(), &r) == nil && r.Error != nil:
		return nil, r.Error
	case ended == nil && r.Columns != nil:
		return &r, nil
	case err != nil:
		ended = errors.Join(ended, err)
	}
	// It was ended from outside: it took more than it may have.
	return nil, ferrule.Errorf(ferrule.Limited, "the question took more than it may have: %w", cause(ended)).WithHint(narrowHint)
}

// fewer is what to do about a question that is too much.
const narrowHint = "ask for fewer rows: of one device and signal, of a short time, or of minutes or hours"

// cause is why a process has ended.
func cause(err error) error {
	if err == nil {
		return errors.New("there is no answer")
	}
	return err
}

// environment is that of the child, which needs none of ours.
func environment() []string {
	env := []string{"GOMEMLIMIT=16MiB", "GOGC=50", "GOMAXPROCS=2", "GOTRACEBACK=none"}
	if root := os.Getenv("SYSTEMROOT"); root != "" { // Windows starts nothing without it
		env = append(env, "SYSTEMROOT="+root)
	}
	return env
}

// bounded keeps the first bytes that are written to it, and refuses more.
type bounded struct {
	bytes.Buffer
	most int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.most {
		return 0, fmt.Errorf("%w: more than %d bytes", io.ErrShortBuffer, b.most)
	}
	return b.Buffer.Write(p)
}
