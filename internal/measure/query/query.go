// Package query runs untrusted SQL queries on the history.
//
//	Runner ─▶ one statement? ─▶ child process ─▶ SQLite, read-only ─▶ rows as JSON
//	          lexer.go          limits on time,   limits on memory,
//	                            rows and bytes    sizes and depth
//
// A query may ask for anything. Each one runs in its own child process of the same program:
// whatever it does, it ends within two seconds, and the gateway is not affected.
package query

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The limits of a query.
const (
	MaxTime       = 1800 * time.Millisecond // ends within two seconds
	MaxText       = 10_000                  // bytes of SQL
	MaxRows       = 1000
	defaultRows   = 100
	maxAnswer     = 256 << 10 // bytes of all rows
	maxHeap       = 8 << 20   // bytes of SQLite
	maxConcurrent = 2         // queries; others wait
	maxWait       = 5 * time.Second
)

// Runner runs queries on one history file.
type Runner struct {
	path    string
	program []string
	env     []string
	slots   chan struct{}
	timeout time.Duration // of a query
	wait    time.Duration // for a slot

	started func(pid int) // for tests; nil otherwise
}

// New returns a Runner for the file at path. Program is the command of the child: its
// executable, its name (argument 0), and its arguments. It must call Serve.
func New(path string, program ...string) *Runner {
	if absolute, err := filepath.Abs(path); err == nil { // a file URI must be absolute
		path = absolute
	}
	return &Runner{path: path, program: program, env: environment(), slots: make(chan struct{}, maxConcurrent), timeout: MaxTime, wait: maxWait}
}

// Self returns the path of this program's executable, also if the file has been replaced
// since the start.
func Self() (string, error) {
	const here = "/proc/self/exe"
	if _, err := os.Stat(here); err == nil && runtime.GOOS == "linux" {
		return here, nil
	}
	return os.Executable()
}

// request is the input of the child.
type request struct {
	Path string `json:"path"`
	Text string `json:"text"`
	Rows int    `json:"rows"`
}

// reply is the output of the child.
type reply struct {
	Columns []string          `json:"columns"`
	Rows    []json.RawMessage `json:"rows"`
	More    bool              `json:"more"`
	Error   *ferrule.Error    `json:"error,omitempty"`
}

// Ask runs a query and returns its columns and rows; each row is a JSON array. It returns
// at most so many rows, or a default number if rows is 0, and reports whether there are
// more.
func (a *Runner) Ask(ctx context.Context, text string, rows int) (columns []string, answer []json.RawMessage, more bool, err error) {
	if err := Check(text); err != nil {
		return nil, nil, false, err
	}
	if rows <= 0 {
		rows = defaultRows
	}
	wait, cancel := context.WithTimeout(ctx, a.wait)
	defer cancel()
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	case <-wait.Done():
		return nil, nil, false, ferrule.Errorf(ferrule.Limited, "too many SQL queries at the same time").WithHint("try again in a moment")
	}
	r, err := a.run(ctx, request{a.path, text, min(rows, MaxRows)})
	if err != nil {
		return nil, nil, false, err
	}
	return r.Columns, r.Rows, r.More, nil
}

// run runs a query in a child.
func (a *Runner) run(ctx context.Context, query request) (*reply, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	line, err := json.Marshal(query)
	if err != nil {
		return nil, ferrule.Errorf(ferrule.Internal, "encoding the query: %w", err)
	}
	cmd := exec.CommandContext(ctx, a.program[0])
	cmd.Args = a.program[1:]
	cmd.Env = a.env
	cmd.WaitDelay = time.Second // a process that is being started may hold the output for a moment
	out := &limitedBuffer{limit: maxAnswer * 2}
	cmd.Stdout = out
	in, err := cmd.StdinPipe() // stays open: the child exits when it closes
	if err != nil {
		return nil, ferrule.Errorf(ferrule.Internal, "opening a pipe to the query process: %w", cause(err))
	}
	if err := cmd.Start(); err != nil {
		return nil, ferrule.Errorf(ferrule.Internal, "starting the query process: %w", cause(err))
	}
	if a.started != nil {
		a.started(cmd.Process.Pid)
	}
	_, err = in.Write(append(line, '\n'))
	ended := cmd.Wait()
	var r reply
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		return nil, ferrule.Errorf(ferrule.Limited, "query timed out after %v", a.timeout).WithHint(narrowHint)
	case ctx.Err() != nil:
		return nil, ferrule.Errorf(ferrule.Cancelled, "query cancelled by the caller")
	case json.Unmarshal(out.Bytes(), &r) == nil && r.Error != nil:
		return nil, r.Error
	case ended == nil && r.Columns != nil:
		return &r, nil
	case err != nil:
		ended = errors.Join(ended, err)
	}
	// The system ended the child because it exceeded a limit.
	return nil, ferrule.Errorf(ferrule.Limited, "query exceeded its resource limits: %w", cause(ended)).WithHint(narrowHint)
}

// narrowHint is the hint for queries that exceed a limit.
const narrowHint = "select fewer rows: one device and signal, a shorter time, or minutes or hours instead of samples"

// cause returns why the child ended or did not start, without the path of the program.
func cause(err error) error {
	var file *fs.PathError
	switch {
	case err == nil:
		return errors.New("no output")
	case errors.As(err, &file):
		return file.Err
	}
	return err
}

// environment returns the environment of the child. It inherits nothing.
func environment() []string {
	env := []string{"GOMEMLIMIT=16MiB", "GOGC=50", "GOMAXPROCS=2", "GOTRACEBACK=none"}
	if root := os.Getenv("SYSTEMROOT"); root != "" { // Windows cannot start a process without it
		env = append(env, "SYSTEMROOT="+root)
	}
	return env
}

// limitedBuffer is a buffer that fails above a limit.
type limitedBuffer struct {
	bytes.Buffer
	limit int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.limit {
		return 0, fmt.Errorf("%w: more than %d bytes", io.ErrShortBuffer, b.limit)
	}
	return b.Buffer.Write(p)
}
