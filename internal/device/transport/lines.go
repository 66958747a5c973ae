package transport

import (
	"bytes"
	"fmt"
	"io"

	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// Limits bounds what a peer can make a line reader do.
type Limits struct {
	// Line is the longest line in bytes.
	Line int
	// Rate is how many bytes a second are read in the long run, and Burst how
	// many at once. Each line costs LineCost on top, so that a flood of short
	// ones is bounded too. A peer that sends more is read more slowly.
	Rate, Burst int
}

// LineCost is what one line counts for against the rate, beside its bytes.
const LineCost = 256

// DefaultLimits are far above what a microcontroller can send.
func DefaultLimits() Limits {
	return Limits{Line: 256 << 10, Rate: 16 << 20, Burst: 4 << 20}
}

// The buffer of a reader starts at smallBuffer and is given back when it is
// empty and has grown beyond idleBuffer: most links are idle most of the time.
const (
	smallBuffer = 512
	idleBuffer  = 1024
)

// Lines cuts a stream of bytes into lines. It holds at most one line in memory.
type Lines struct {
	r      io.Reader
	limits Limits

	buf      []byte
	start    int  // where the current line begins in buf
	scanned  int  // up to here buf holds no line end
	skipping bool // the rest of a line that was too long

	throttle ratelimit.Throttle
}

// NewLines reads lines from r.
func NewLines(r io.Reader, limits Limits) *Lines {
	return &Lines{r: r, limits: limits}
}

// Next returns the next line that is not empty, without its end (LF or CRLF),
// in memory of its own. ErrTooLong tells once of a line that was dropped for
// its length; Next may be called again. Any other error is the reader's, and
// what came of the line before it is kept for the next call.
func (l *Lines) Next() ([]byte, error) {
	for {
		line, ok := l.cut()
		switch {
		case ok && l.skipping:
			l.skipping = false
		case ok:
			l.throttle.Spend(LineCost, l.limits.Rate, l.limits.Burst)
			if line = bytes.TrimSuffix(line, []byte{'\r'}); len(line) > 0 {
				return bytes.Clone(line), nil
			}
		case len(l.buf)-l.start > l.limits.Line:
			l.buf, l.start, l.scanned = nil, 0, 0
			if !l.skipping {
				l.skipping = true
				return nil, fmt.Errorf("%w: more than %d bytes without a line end", ErrTooLong, l.limits.Line)
			}
		default:
			if err := l.fill(); err != nil {
				return nil, err
			}
		}
	}
}

// Rest is what has come of a line whose end has not. It is valid until the next
// call of Next.
func (l *Lines) Rest() []byte { return l.buf[l.start:] }

// cut takes the next whole line out of the buffer.
func (l *Lines) cut() ([]byte, bool) {
	i := bytes.IndexByte(l.buf[l.scanned:], '\n')
	if i < 0 {
		l.scanned = len(l.buf)
		return nil, false
	}
	line := l.buf[l.start : l.scanned+i]
	l.start = l.scanned + i + 1
	l.scanned = l.start
	return line, true
}

// fill reads more into the buffer, making room first.
func (l *Lines) fill() error {
	if l.start > 0 { // what there is of the current line moves to the front
		rest := l.buf[l.start:]
		if len(rest) == 0 && cap(l.buf) > idleBuffer {
			l.buf = nil
		}
		l.buf = append(l.buf[:0], rest...)
		l.start, l.scanned = 0, len(l.buf)
	}
	if len(l.buf) == cap(l.buf) {
		size := min(max(smallBuffer, 2*cap(l.buf)), l.limits.Line+1)
		l.buf = append(make([]byte, 0, size), l.buf...)
	}
	n, err := l.r.Read(l.buf[len(l.buf):cap(l.buf)])
	l.buf = l.buf[:len(l.buf)+n]
	l.throttle.Spend(n, l.limits.Rate, l.limits.Burst)
	if n > 0 {
		return nil // an error comes again with the next read
	}
	return err
}
