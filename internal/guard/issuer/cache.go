package issuer

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"
)

// cache has tokens that were verified, by their hash: a signature takes longer to check than
// all the rest.
type cache struct {
	mu     sync.Mutex
	tokens map[[sha256.Size]byte]*verified
}

// maxSeen is how many tokens are kept.
const maxSeen = 4096

// get returns a token that was verified with the present keys; nil if there is none.
func (c *cache) get(hash [sha256.Size]byte, version int) *verified {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.tokens[hash]; v != nil && v.version == version {
		return v
	}
	return nil
}

// put keeps a token. If there are too many, any other one goes.
func (c *cache) put(hash [sha256.Size]byte, v *verified) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tokens == nil {
		c.tokens = make(map[[sha256.Size]byte]*verified)
	}
	if len(c.tokens) >= maxSeen {
		for other := range c.tokens {
			delete(c.tokens, other)
			break
		}
	}
	c.tokens[hash] = v
}

// lifetime is a context that ends when a token expires. Unlike one with a deadline it needs
// no release: it has no timer unless somebody waits for it, and then one until the token
// expires.
type lifetime struct {
	until time.Time

	once sync.Once
	done chan struct{}
}

func newLifetime(expires time.Time) *lifetime {
	return &lifetime{until: time.Now().Add(time.Until(expires))} // whatever the clock is set to later
}

// Deadline implements context.Context.
func (l *lifetime) Deadline() (time.Time, bool) { return l.until, true }

// Done implements context.Context.
func (l *lifetime) Done() <-chan struct{} {
	l.once.Do(func() {
		l.done = make(chan struct{})
		time.AfterFunc(time.Until(l.until), func() { close(l.done) })
	})
	return l.done
}

// Err implements context.Context.
func (l *lifetime) Err() error {
	if time.Now().Before(l.until) {
		return nil
	}
	return context.DeadlineExceeded
}

// Value implements context.Context.
func (l *lifetime) Value(any) any { return nil }

// AfterFunc lets [context.AfterFunc] wait without a goroutine.
func (l *lifetime) AfterFunc(f func()) (stop func() bool) {
	return time.AfterFunc(time.Until(l.until), f).Stop
}
