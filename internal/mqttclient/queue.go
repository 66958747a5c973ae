package mqttclient

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// queueLimit is the number of bytes that may wait to be written before Publish refuses.
const queueLimit = 8 << 20

// queue has the packets to write, in order.
type queue struct {
	// last is when a packet was written last, in Unix nanoseconds.
	last atomic.Int64

	mu     sync.Mutex
	cond   sync.Cond
	list   []*outgoing
	size   int
	closed bool
}

// outgoing is a packet in a queue.
type outgoing struct {
	data []byte
	id   uint16
	// begun is set when it is being written, or was withdrawn.
	begun atomic.Bool
	// done gets the result, once.
	done chan error
}

// withdraw takes a packet back unless it is being written.
func (o *outgoing) withdraw() bool { return o.begun.CompareAndSwap(false, true) }

func newQueue() *queue {
	q := &queue{}
	q.cond.L = &q.mu
	q.last.Store(time.Now().UnixNano())
	return q
}

// add appends a packet. It does not wait.
func (q *queue) add(data []byte) *outgoing {
	o := &outgoing{data: data, done: make(chan error, 1)}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		o.drop()
		return o
	}
	q.list = append(q.list, o)
	q.size += len(data)
	q.cond.Signal()
	return o
}

// drop ends a packet that was never written.
func (o *outgoing) drop() {
	if o.withdraw() {
		o.done <- unsent(errLost)
	}
}

// full reports whether too much waits.
func (q *queue) full() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.size > queueLimit
}

// close drops what was not written.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, o := range q.list {
		o.drop()
	}
	q.list = nil
	q.cond.Signal()
}

// next waits for a packet; nil if the queue was closed.
func (q *queue) next() *outgoing {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.list) == 0 && !q.closed {
		q.cond.Wait()
	}
	if q.closed {
		return nil
	}
	o := q.list[0]
	q.list[0] = nil
	if q.list = q.list[1:]; len(q.list) == 0 {
		q.list = nil
	}
	q.size -= len(o.data)
	return o
}

// write writes the packets to a connection until that fails or the queue is closed.
func (q *queue) write(conn net.Conn) error {
	for {
		o := q.next()
		if o == nil {
			return nil
		}
		if !o.begun.CompareAndSwap(false, true) {
			continue
		}
		conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		n, err := conn.Write(o.data)
		q.last.Store(time.Now().UnixNano())
		if err == nil {
			o.done <- nil
			continue
		}
		err = lostError(err)
		if _, plain := conn.(*net.TCPConn); plain && n == 0 {
			o.done <- unsent(err) // with TLS, bytes may have left all the same
		} else {
			o.done <- fmt.Errorf("the message may have been sent: %w", err)
		}
		return err
	}
}
