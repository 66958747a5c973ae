package ratelimit

import (
	"sync"
	"time"
)

// Digest bounds how much is written about events that others can cause without end. Of each
// key, such as the address of a peer, the first ones are written one by one. Those that
// follow are counted and summed up once per window, until there is a window without any.
// It is safe for concurrent use.
type Digest[K comparable, E any] struct {
	rules DigestRules
	sum   func(key K, count int, last E)

	mu   sync.Mutex
	open map[K]*counted[E]
}

// DigestRules are the limits of a Digest.
type DigestRules struct {
	First  int           // events of a key that are written one by one
	Window time.Duration // for which the others are summed up
	// Keys is the limit of keys at a time. The events of others are counted together, with
	// the zero key.
	Keys int
}

type counted[E any] struct {
	first, count int
	last         E
	timer        *time.Timer
}

// NewDigest returns a Digest. It calls sum with the number of events that were counted in a
// window, and the last of them, if there are any.
func NewDigest[K comparable, E any](rules DigestRules, sum func(key K, count int, last E)) *Digest[K, E] {
	return &Digest[K, E]{rules: rules, sum: sum, open: make(map[K]*counted[E])}
}

// Alone reports whether an event is to be written by itself. If not, it is counted.
func (d *Digest[K, E]) Alone(key K, event E) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.open[key]
	if c == nil && d.full() {
		key = *new(K)
		c = d.open[key]
	}
	if c == nil {
		c = &counted[E]{}
		c.timer = time.AfterFunc(d.rules.Window, func() { d.end(key, c) })
		d.open[key] = c
	}
	if c.first < d.rules.First {
		c.first++
		return true
	}
	c.count++
	c.last = event
	return false
}

// full reports whether no other key can be counted by itself. It is called with mu held.
func (d *Digest[K, E]) full() bool {
	n := len(d.open)
	if _, ok := d.open[*new(K)]; ok {
		n--
	}
	return n >= d.rules.Keys
}

// end ends a window of a key.
func (d *Digest[K, E]) end(key K, c *counted[E]) {
	d.mu.Lock()
	count, last := c.count, c.last
	switch {
	case d.open[key] != c: // flushed meanwhile
		count = 0
	case count == 0:
		delete(d.open, key)
	default:
		c.first, c.count, c.last = d.rules.First, 0, *new(E)
		c.timer.Reset(d.rules.Window)
	}
	d.mu.Unlock()
	if count > 0 {
		d.sum(key, count, last)
	}
}

// Flush sums up at once what was counted so far.
func (d *Digest[K, E]) Flush() {
	d.mu.Lock()
	open := d.open
	d.open = make(map[K]*counted[E])
	for _, c := range open {
		c.timer.Stop()
	}
	d.mu.Unlock()
	for key, c := range open {
		if c.count > 0 {
			d.sum(key, c.count, c.last)
		}
	}
}
