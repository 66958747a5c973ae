package streams

import "sync"

// bell wakes all goroutines that wait for it.
type bell struct {
	mu   sync.Mutex
	next chan struct{} // closed by the next ring; nil if nobody waits
}

// wait returns a channel that the next ring closes.
func (b *bell) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
