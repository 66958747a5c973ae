package mqttclient

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// readAheadLimit is the number of bytes that may wait to be decoded.
const readAheadLimit = 64 << 20

// readAhead reads from a connection as fast as it can, because a broker drops without a
// word what a subscriber does not take. When the buffer is full it stops reading.
type readAhead struct {
	limit int
	// last is when bytes came last, in Unix nanoseconds.
	last atomic.Int64

	mu     sync.Mutex
	cond   sync.Cond
	chunks [][]byte
	size   int
	err    error
	closed bool
}

func newReadAhead(limit int) *readAhead {
	r := &readAhead{limit: limit}
	r.cond.L = &r.mu
	r.last.Store(time.Now().UnixNano())
	return r
}

// fill reads from a connection until it breaks.
func (r *readAhead) fill(conn net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := conn.Read(buf)
		if n > 0 {
			r.last.Store(time.Now().UnixNano())
		}
		r.mu.Lock()
		if n > 0 {
			r.chunks = append(r.chunks, bytes.Clone(buf[:n]))
			r.size += n
		}
		if err != nil {
			r.err = err
		}
		r.cond.Broadcast()
		for r.size >= r.limit && !r.closed {
			r.cond.Wait()
			r.last.Store(time.Now().UnixNano()) // the silence was ours
		}
		end := r.err != nil || r.closed
		r.mu.Unlock()
		if end {
			return
		}
	}
}

// full reports whether reading has stopped.
func (r *readAhead) full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.size >= r.limit
}

// Read implements io.Reader. What was read before the connection broke comes first.
func (r *readAhead) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.chunks) == 0 && r.err == nil && !r.closed {
		r.cond.Wait()
	}
	if r.closed {
		return 0, net.ErrClosed
	}
	if len(r.chunks) == 0 {
		return 0, r.err
	}
	n := copy(p, r.chunks[0])
	if r.chunks[0] = r.chunks[0][n:]; len(r.chunks[0]) == 0 {
		r.chunks[0] = nil
		if r.chunks = r.chunks[1:]; len(r.chunks) == 0 {
			r.chunks = nil
		}
	}
	r.size -= n
	r.cond.Broadcast()
	return n, nil
}

// close ends fill, once its connection is closed, and Read.
func (r *readAhead) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed, r.chunks, r.size = true, nil, 0
	r.cond.Broadcast()
}

// errTooLong is the error of readFrame for a packet over the limit.
var errTooLong = errors.New("packet too long")

// readFrame reads the first byte and the body of a packet. It allocates no more than
// maxPacket, whatever length the packet claims. The error of a longer one is errTooLong;
// its body is skipped if skip is set.
func readFrame(r *bufio.Reader, skip bool) (first byte, body []byte, err error) {
	if first, err = r.ReadByte(); err != nil {
		return 0, nil, err
	}
	length := 0
	for shift := 0; ; shift += 7 {
		b, err := r.ReadByte()
		if err != nil {
			return 0, nil, unexpectedEOF(err)
		}
		if shift == 21 && b > 0x7F {
			return 0, nil, errors.New("broken packet: its length has more than four bytes")
		}
		length |= int(b&0x7F) << shift
		if b <= 0x7F {
			break
		}
	}
	if length > maxPacket && !skip {
		return first, nil, fmt.Errorf("%w: %d bytes", errTooLong, length)
	}
	if length > maxPacket {
		if n, err := io.CopyN(io.Discard, r, int64(length)); err != nil {
			return 0, nil, fmt.Errorf("after %d of %d bytes: %w", n, length, unexpectedEOF(err))
		}
		return first, nil, errTooLong
	}
	body = make([]byte, length)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, unexpectedEOF(err)
	}
	return first, body, nil
}

func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
