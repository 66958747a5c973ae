package records

import (
	"context"
	"log/slog"
	"sync"
)

// Shared holds small records that all nodes of a tenant see. Put and Delete may wait for
// other nodes. After an error they are retried in the background, if that can help.
type Shared interface {
	Put(key string, value []byte) error
	Delete(key string) error
	// Watch calls fn with every record, and then with every change. The value is nil if
	// the record was deleted.
	Watch(fn func(key string, value []byte))
}

// Synced are shared records that say when they are complete, so that a node can share what
// the others have missed.
type Synced interface {
	Shared
	// OnSync calls fn when all records of other nodes have been read.
	OnSync(fn func())
}

// Outbox writes shared records in the background, because other nodes may be out of reach.
// Of several changes of a key it writes the last.
type Outbox struct {
	wake chan struct{}

	mu     sync.Mutex
	values map[string][]byte // nil deletes the key
	order  []string
	done   map[string]chan struct{} // closed when the value of a key was written, or that failed
}

// NewOutbox returns an empty Outbox.
func NewOutbox() *Outbox {
	return &Outbox{wake: make(chan struct{}, 1), values: make(map[string][]byte), done: make(map[string]chan struct{})}
}

// Put shares a value; nil deletes the key. It does not block. The channel is closed when
// the value was written, or when that failed.
func (o *Outbox) Put(key string, value []byte) (done <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, waiting := o.values[key]; !waiting {
		o.order = append(o.order, key)
		o.done[key] = make(chan struct{})
	}
	o.values[key] = value
	select {
	case o.wake <- struct{}{}:
	default:
	}
	return o.done[key]
}

// take returns the oldest change.
func (o *Outbox) take() (key string, value []byte, done chan struct{}, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.order) == 0 {
		return "", nil, nil, false
	}
	key = o.order[0]
	value = o.values[key]
	o.order = o.order[1:]
	delete(o.values, key)
	done = o.done[key]
	delete(o.done, key)
	return key, value, done, true
}

// Run writes changes until ctx ends, and then what is left, unless that fails.
func (o *Outbox) Run(ctx context.Context, shared Shared, log *slog.Logger) error {
	failed := false
	for {
		key, value, done, ok := o.take()
		if !ok {
			if ctx.Err() != nil {
				return nil
			}
			select {
			case <-o.wake:
			case <-ctx.Done():
			}
			continue
		}
		write := func() error { return shared.Put(key, value) }
		if value == nil {
			write = func() error { return shared.Delete(key) }
		}
		err := write()
		close(done)
		if err != nil && !failed {
			log.Warn("leases, physical limits or logins of agents are not shared with other nodes", "err", err)
		}
		if failed = err != nil; failed && ctx.Err() != nil {
			return nil
		}
	}
}
