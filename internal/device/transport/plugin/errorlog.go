package plugin

import (
	"bytes"
	"fmt"
	"log/slog"
	"time"

	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// maxErrorLine is how much of a line of a standard error output is logged, in bytes.
const maxErrorLine = 1 << 10

// errorRate limits how many of its lines are logged.
var errorRate = ratelimit.Rate{Burst: 20, Every: time.Second}

// errorLog writes the lines of a standard error output to the log. It must not be used
// concurrently.
type errorLog struct {
	log     *slog.Logger
	limit   ratelimit.Limiter
	line    []byte
	dropped int // lines since the last one that was logged
}

func newErrorLog(log *slog.Logger) *errorLog { return &errorLog{log: log} }

// Write implements io.Writer. It cuts long lines.
func (l *errorLog) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		l.line = append(l.line, line[:min(len(line), maxErrorLine-len(l.line))]...)
		if rest = after; ended {
			l.flush()
		}
	}
	return len(p), nil
}

// flush logs the current line, unless there are too many.
func (l *errorLog) flush() {
	text := bytes.TrimSpace(l.line)
	l.line = l.line[:0]
	switch {
	case len(text) == 0:
		return
	case !l.limit.Allow(errorRate, time.Now()):
		l.dropped++
		return
	}
	note := ""
	if l.dropped > 0 {
		note = fmt.Sprintf(" (%d lines before it were dropped)", l.dropped)
		l.dropped = 0
	}
	l.log.Info("plugin: " + string(text) + note)
}
