package jsonrpc

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// ErrNoAnswer is why a wait ended without an answer.
var ErrNoAnswer = errors.New("no answer")

// Pending holds the requests of a session that wait for an answer, by id. Each gets
// one outcome; an answer to any other id is dropped. Methods may be called
// concurrently. An idle Pending uses no memory besides itself: there may be a million.
type Pending[K comparable, A any] struct {
	mu      sync.Mutex
	waiting []*Request[K, A]
}

// Request is a request that was added to a Pending.
type Request[K comparable, A any] struct {
	ID      K
	pending *Pending[K, A]
	done    chan outcome[A] // gets the outcome, once
}

type outcome[A any] struct {
	answer A
	err    error
}

// Add adds a request. It must be called before the request is sent.
func (p *Pending[K, A]) Add(id K) *Request[K, A] {
	r := &Request[K, A]{ID: id, pending: p, done: make(chan outcome[A], 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = append(p.waiting, r)
	return r
}

// Len returns how many requests wait.
func (p *Pending[K, A]) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting)
}

// Only returns the id of the request that waits, if it is the only one.
func (p *Pending[K, A]) Only() (id K, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) != 1 {
		return id, false
	}
	return p.waiting[0].ID, true
}

// Answer gives a request its answer, and reports whether it was waiting.
func (p *Pending[K, A]) Answer(id K, answer A) bool { return p.resolve(id, outcome[A]{answer: answer}) }

// Fail ends a request without an answer, and reports whether it was waiting.
func (p *Pending[K, A]) Fail(id K, err error) bool { return p.resolve(id, outcome[A]{err: err}) }

// FailAll ends every request without an answer, and returns their ids.
func (p *Pending[K, A]) FailAll(err error) (ids []K) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.waiting {
		ids = append(ids, r.ID)
		r.done <- outcome[A]{err: err}
	}
	p.waiting = nil
	return ids
}

func (p *Pending[K, A]) resolve(id K, o outcome[A]) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.waiting, func(r *Request[K, A]) bool { return r.ID == id })
	if i < 0 {
		return false
	}
	p.waiting[i].done <- o
	p.remove(i)
	return true
}

// remove takes a request out of the list. It is called with mu held.
func (p *Pending[K, A]) remove(i int) {
	if p.waiting = slices.Delete(p.waiting, i, i+1); len(p.waiting) == 0 {
		p.waiting = nil
	}
}

// Resolved reports whether the request has its outcome, and nobody has waited for it.
func (r *Request[K, A]) Resolved() bool { return len(r.done) > 0 }

// Forget takes the request back, and reports whether it was still waiting. A later
// answer is dropped.
func (r *Request[K, A]) Forget() bool {
	p := r.pending
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.waiting, r)
	if i >= 0 {
		p.remove(i)
	}
	return i >= 0
}

// Wait waits for the outcome. If ctx ends first, it calls giveUp, which must call
// Forget, and returns ErrNoAnswer unless the outcome arrived in the last moment.
func (r *Request[K, A]) Wait(ctx context.Context, giveUp func()) (A, error) {
	select {
	case o := <-r.done:
		return o.answer, o.err
	case <-ctx.Done():
	}
	giveUp()
	select {
	case o := <-r.done:
		return o.answer, o.err
	default:
		var none A
		return none, ErrNoAnswer
	}
}
