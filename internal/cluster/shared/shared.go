// Package shared keeps small records that all nodes of a tenant see, in a NATS key-value
// bucket.
//
//	Put ─▶ record in memory ─▶ watchers
//	          │  └─ bucket ferrule-shared ─ watch ─▶ other nodes' memory ─▶ their watchers
//	          └──── Announce: also by a message, which does not need a bucket ─▶ answers
//
// A record is signed with a key that is derived from the secret of the tenant, so other
// clients of NATS cannot write one. The newest version of a record wins, wherever it is
// seen first: a node that finds an older record in the bucket, or a forged one, or none,
// writes the newest one back. So neither a replay nor a deletion undoes a record, as long
// as one node knows it. A deleted record is a record too, until it expires.
//
// Put does not wait for a cluster that is unreachable: what could not be written is
// written later, the newest value of each key only. It is lost if the process ends first.
package shared

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/cluster/seal"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// Limits of records.
const (
	// MaxValue is the maximum size of a value in bytes.
	MaxValue = 4 << 10
	// MaxRecords is the maximum number of records, including deleted ones and without
	// those that are urgent.
	MaxRecords = 16384

	// urgent is how the keys of orders to stop begin. They are few, and are not refused
	// because others have written many records.
	urgent = "stop."

	maxKey = 160
	// deletedTTL is how long the bucket keeps a deleted record. A node that was cut off
	// for longer may write back what was deleted meanwhile.
	deletedTTL = 7 * 24 * time.Hour
	// putTime is how long Put waits for the bucket.
	putTime = time.Second
)

// ErrNotWritten means that a record is not in the bucket yet. Writing is retried in the
// background.
var ErrNotWritten = errors.New("other nodes may not know it yet; retrying")

// Options are the parts that records need.
type Options struct {
	Names engine.Names
	// Secret is what the nodes of the tenant share.
	Secret []byte
	Log    *slog.Logger
}

// Records are the shared records as this node knows them.
type Records struct {
	names engine.Names
	key   seal.Key // signs records
	log   *slog.Logger
	dirty chan struct{} // wakes the writer
	again chan struct{} // wakes the watch
	slots chan struct{} // limits announcements that are being served

	mu         sync.Mutex
	records    map[string]*entry
	urgent     int                      // how many of the records are urgent
	waiting    map[string]chan struct{} // closed when the newest record of a key is written
	watchers   []*watcher
	synced     []func()
	serve      func(key string, value []byte, reply func(data []byte))
	announcing bool // unsaved records are being announced
	engine     *engine.Engine
	complaint  ratelimit.Limiter
}

// entry is the newest record of a key.
type entry struct {
	record
	signed   []byte
	revision uint64 // of the key in the bucket, as last seen; 0 for none
	unsaved  bool   // it is not in the bucket
}

// watcher is told of changes. Each has its own queue, because one that waits for a disk
// must not keep another from hearing of a stop.
type watcher struct {
	fn    func(key string, value []byte)
	queue []delivery
	busy  bool // a goroutine delivers the queue
}

// delivery is one call of a watcher, unless it has done.
type delivery struct {
	key   string
	value []byte
	done  func() // called instead
}

// New returns records that are not connected.
func New(o Options) (*Records, error) {
	key, err := seal.New(o.Secret, "shared", o.Names.Tenant)
	if err != nil {
		return nil, err
	}
	return &Records{
		names: o.Names, key: key, log: o.Log, dirty: make(chan struct{}, 1), again: make(chan struct{}, 1), slots: make(chan struct{}, maxServed),
		records: make(map[string]*entry), waiting: make(map[string]chan struct{}),
	}, nil
}

// Put writes a record. Watchers of this node see it soon. The error wraps
// ErrNotWritten if the bucket cannot be written within a second.
func (r *Records) Put(key string, value []byte) error {
	if value == nil {
		value = []byte{}
	}
	return r.put(key, value)
}

// Delete removes a record, like Put.
func (r *Records) Delete(key string) error { return r.put(key, nil) }

func (r *Records) put(key string, value []byte) error {
	written, connected, err := r.store(key, value)
	if err != nil {
		return err
	}
	if !connected {
		return fmt.Errorf("NATS cannot be reached: %w", ErrNotWritten)
	}
	timer := time.NewTimer(putTime)
	defer timer.Stop()
	select {
	case <-written:
		return nil
	case <-timer.C:
		return fmt.Errorf("NATS has not confirmed it: %w", ErrNotWritten)
	}
}

// store makes a new version of a record.
func (r *Records) store(key string, value []byte) (written <-chan struct{}, connected bool, err error) {
	if err := checkKey(key); err != nil {
		return nil, false, err
	}
	if len(value) > MaxValue {
		return nil, false, fmt.Errorf("the value of %s has %d bytes, limit is %d", key, len(value), MaxValue)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	next := record{Key: key, Version: uint64(time.Now().UnixMicro()), Node: r.names.Node, Value: value, Deleted: value == nil}
	known := r.records[key]
	if known == nil && r.full(key) {
		return nil, false, fmt.Errorf("there are %d shared records, which is the limit", MaxRecords)
	}
	if known != nil {
		next.Version = max(next.Version, known.Version+1)
	}
	signed, err := next.sign(r.key)
	if err != nil {
		return nil, false, err
	}
	r.set(next, signed)
	r.records[key].unsaved = true
	if r.waiting[key] == nil {
		r.waiting[key] = make(chan struct{})
	}
	r.wake(r.dirty)
	return r.waiting[key], r.engine != nil && r.engine.Unreachable() == nil, nil
}

// set stores a newer record and tells watchers. It is called with mu held.
func (r *Records) set(next record, signed []byte) {
	e := r.records[next.Key]
	if e == nil {
		e = &entry{}
		r.records[next.Key] = e
		if strings.HasPrefix(next.Key, urgent) {
			r.urgent++
		}
	}
	e.record, e.signed = next, signed
	for _, w := range r.watchers {
		r.deliver(w, delivery{key: next.Key, value: next.Value})
	}
}

// drop forgets a record. It is called with mu held.
func (r *Records) drop(key string) {
	delete(r.records, key)
	if strings.HasPrefix(key, urgent) {
		r.urgent--
	}
}

// full reports whether there is no room for a new key. It is called with mu held.
func (r *Records) full(key string) bool {
	return !strings.HasPrefix(key, urgent) && len(r.records)-r.urgent >= MaxRecords
}

// Watch calls fn with every record, and then with every change. The value is nil if the
// record was deleted. Calls are sequential, in order for each key. fn may call Put and
// Delete. If it blocks, only its own calls wait.
func (r *Records) Watch(fn func(key string, value []byte)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &watcher{fn: fn}
	r.watchers = append(r.watchers, w)
	for key, e := range r.records {
		if !e.Deleted {
			r.deliver(w, delivery{key: key, value: e.Value})
		}
	}
}

// OnSync calls fn each time that all records in the bucket have been read, after watchers
// were called with them, or had watchTime for that.
func (r *Records) OnSync(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.synced = append(r.synced, fn)
}

// deliver adds to the queue of a watcher. It is called with mu held.
func (r *Records) deliver(w *watcher, d delivery) {
	w.queue = append(w.queue, d)
	if w.busy {
		return
	}
	w.busy = true
	go func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for len(w.queue) > 0 {
			d := w.queue[0]
			w.queue = w.queue[1:]
			r.mu.Unlock()
			if d.done != nil {
				d.done()
			} else {
				w.fn(d.key, d.value)
			}
			r.mu.Lock()
		}
		w.busy = false
	}()
}

// watchTime limits how long watchers are waited for.
const watchTime = 5 * time.Second

// settled waits until watchers have been called with what is queued now, or time is up.
func (r *Records) settled(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, watchTime)
	defer cancel()
	r.mu.Lock()
	n := len(r.watchers)
	done := make(chan struct{}, n)
	for _, w := range r.watchers {
		r.deliver(w, delivery{done: func() { done <- struct{}{} }})
	}
	r.mu.Unlock()
	for range n {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

// receive handles what the bucket has, or what another node announced. A bucket's
// revision is not 0. The data is nil if the bucket has no record of the key.
func (r *Records) receive(key string, data []byte, revision uint64) (record, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.records[key]
	var got record
	var err error
	if data != nil {
		got, err = parse(r.key, key, data)
	}
	valid := data != nil && err == nil
	if err != nil && r.complaint.Allow(ratelimit.PerMinute(10), time.Now()) {
		r.log.Warn("cluster: ignored a shared record that no node of this tenant wrote", "key", fmt.Sprintf("%.100q", key), "err", err)
	}
	switch {
	case valid && known == nil && r.full(key):
		if r.complaint.Allow(ratelimit.PerMinute(10), time.Now()) {
			r.log.Warn("cluster: ignored a shared record: there are too many", "key", key)
		}
		return got, false
	case valid && (known == nil || got.newer(known.record)):
		r.set(got, data)
		r.records[key].unsaved = false // its node writes it, if it is not in the bucket
		r.settle(key)
	case known == nil:
		return got, false
	case valid && !known.newer(got):
		// It is the same.
	case data == nil && known.Deleted && !known.unsaved:
		r.drop(key) // it has expired
		return got, false
	case revision > 0:
		known.unsaved = true // the bucket has something older, or nothing
	}
	known = r.records[key]
	if revision > 0 {
		known.revision = revision
		if valid && !known.newer(got) {
			known.unsaved = false
			r.settle(key)
		}
	}
	if known.unsaved {
		r.wake(r.dirty)
	}
	return got, valid
}

// settle tells those who wait that a record is written. It is called with mu held.
func (r *Records) settle(key string) {
	if written := r.waiting[key]; written != nil {
		close(written)
		delete(r.waiting, key)
	}
}

func (r *Records) wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Unsaved returns how many records are not in the bucket.
func (r *Records) Unsaved() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.records {
		if e.unsaved {
			n++
		}
	}
	return n
}

var keyPattern = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

func checkKey(key string) error {
	if len(key) > maxKey || !keyPattern.MatchString(key) {
		return fmt.Errorf("invalid key of a shared record: %.200q", key)
	}
	return nil
}
