package ratelimit

import (
	"sync"
	"time"
)

// Keyed has a Limiter for each key, such as the address of a peer. It remembers a limited
// number of keys; those beyond share one Limiter, so that new keys cannot take all memory.
// It is safe for concurrent use.
type Keyed[K comparable] struct {
	rate Rate
	max  int // keys

	mu    sync.Mutex
	keys  map[K]Limiter
	rest  Limiter // of all other keys
	swept time.Time
}

// NewKeyed returns a Keyed that allows each key a rate.
func NewKeyed[K comparable](rate Rate, maxKeys int) *Keyed[K] {
	return &Keyed[K]{rate: rate, max: maxKeys, keys: make(map[K]Limiter)}
}

// Take counts an event. It returns zero if the event may happen now. Otherwise it returns
// the time until one may, and the event does not count.
func (k *Keyed[K]) Take(key K, now time.Time) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, known := k.keys[key]
	if !known && !k.makeRoom(now) {
		return take(&k.rest, k.rate, now)
	}
	wait := take(&l, k.rate, now)
	k.keys[key] = l
	return wait
}

func take(l *Limiter, rate Rate, now time.Time) time.Duration {
	if l.Allow(rate, now) {
		return 0
	}
	return l.Wait(rate, now)
}

// makeRoom reports whether another key can be remembered. It drops those that are idle, at
// most once for each Every. It is called with mu held.
func (k *Keyed[K]) makeRoom(now time.Time) bool {
	if len(k.keys) >= k.max && now.Sub(k.swept) >= k.rate.Every {
		k.swept = now
		for key, l := range k.keys {
			if l.Idle(now) {
				delete(k.keys, key)
			}
		}
	}
	return len(k.keys) < k.max
}
