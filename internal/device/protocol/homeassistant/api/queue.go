package api

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// queue keeps frames that were read and not handled. If it holds more bytes than its limit,
// nothing is read until they were handled.
type queue struct {
	limit int

	mu     sync.Mutex
	cond   sync.Cond
	frames [][]byte
	size   int
	err    error // why no more frames come
}

func newQueue(limit int) *queue {
	q := &queue{limit: limit}
	q.cond.L = &q.mu
	return q
}

// fill reads from a link until that ends.
func (q *queue) fill(link transport.Link) {
	for {
		m, err := link.Recv(context.Background())
		if errors.Is(err, transport.ErrTooLong) {
			// It cannot be skipped: it may be an answer, or all states.
			err = fmt.Errorf("Home Assistant sent a message of more than %d MiB", maxMessage>>20)
		}
		q.mu.Lock()
		for q.size > q.limit && q.err == nil {
			q.cond.Wait()
		}
		switch {
		case q.err != nil:
			err = q.err
		case err != nil:
			q.err = err
		default:
			q.frames = append(q.frames, m.Data)
			q.size += len(m.Data)
		}
		q.cond.Broadcast()
		q.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// next waits for the next frame. The frames that were read before the link ended come first.
func (q *queue) next() ([]byte, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.frames) == 0 && q.err == nil {
		q.cond.Wait()
	}
	if len(q.frames) == 0 {
		return nil, q.err
	}
	data := q.frames[0]
	q.frames[0] = nil
	if q.frames = q.frames[1:]; len(q.frames) == 0 {
		q.frames = nil
	}
	q.size -= len(data)
	q.cond.Broadcast()
	return data, nil
}

// end ends fill, once its link is closed. The first reason counts.
func (q *queue) end(reason error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = reason
	}
	q.cond.Broadcast()
}

// close does the same, and drops all frames.
func (q *queue) close() {
	q.end(transport.ErrClosed)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.frames, q.size = nil, 0
}
