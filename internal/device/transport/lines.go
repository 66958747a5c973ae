package transport

import (
	"bytes"
	"fmt"
	"io"

	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// Limits bounds what a peer can make a line reader use.
type Limits struct {
	// Line is the longest line in bytes.
	Line int
	// Rate is the sustained rate in bytes per second, Burst the number of bytes at
	// once. Each line costs LineCost in addition, which bounds a flood of short
	// lines. A peer that sends more is read more slowly.
	Rate, Burst int
}

// LineCost is the cost of one line against the rate, in addition to its bytes.
const LineCost = 256

// DefaultLimits are far above what a microcontroller can send.
func DefaultLimits() Limits {
	return Limits{Line: 256 << 10, Rate: 16 << 20, Burst: 4 << 20}
}

// The buffer of a reader starts at smallBuffer. It is freed when it is empty and
// larger than idleBuffer: most links are idle most of the time.
const (
	smallBuffer = 512
	idleBuffer  = 1024
)

// Lines splits a stream of bytes into lines. It holds at most one line in memory.
type Lines struct {
	r      io.Reader
	limits Limits

	buf      []byte
	start    int  // of the current line in buf
	scanned  int  // buf has no line end before this offset
	skipping bool // until the end of a line that is too long

	throttle ratelimit.Throttle
}

// NewLines returns a Lines that reads from r.
func NewLines(r io.Reader, limits Limits) *Lines {
	return &Lines{r: r, limits: limits, throttle: ratelimit.NewThrottle(limits.Burst)}
}

// Next returns a copy of the next line that is not empty, without its end (LF or
// CRLF). It returns ErrTooLong once for each line that it drops for its length; Next
// may be called again. Any other error is the reader's, and the partial line is kept
// for the next call.
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
				return nil, fmt.Errorf("%w: limit is %d bytes", ErrTooLong, l.limits.Line)
			}
		default:
			if err := l.fill(); err != nil {
				return nil, err
			}
		}
	}
}

// Rest returns the partial line. It is valid until the next call of Next.
func (l *Lines) Rest() []byte { return l.buf[l.start:] }

// cut returns the next whole line in the buffer.
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

// fill reads more into the buffer.
func (l *Lines) fill() error {
	if l.start > 0 { // move the partial line to the front
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
		return nil // the next read returns the error again
	}
	return err
}
