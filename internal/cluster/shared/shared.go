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
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// Limits of records.
const (
	// MaxValue is the maximum size of a value in bytes.
	MaxValue = 4 << 10
	// MaxRecords is the maximum number of records, including deleted ones.
	MaxRecords = 16384

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
	key   []byte // signs records
	log   *slog.Logger
	dirty chan struct{} // wakes the writer
	again chan struct{} // wakes the watch
	slots chan struct{} // limits announcements that are being served

	mu         sync.Mutex
	records    map[string]*entry
	waiting    map[string][]chan struct{} // closed when the newest record of a key is written
	watchers   []func(key string, value []byte)
	synced     []func()
	serve      func(key string, value []byte, reply func(data []byte))
	queue      []delivery
	busy       bool // somebody delivers the queue
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

// delivery is one call of a watcher.
type delivery struct {
	fn    func(key string, value []byte)
	key   string
	value []byte
	done  func() // called after it; may be nil
}

// New returns records that are not connected.
func New(o Options) (*Records, error) {
	key, err := hkdf.Key(sha256.New, o.Secret, nil, fmt.Sprintf("ferrule shared %q", o.Names.Tenant), sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("deriving a key: %w", err)
	}
	return &Records{
		names: o.Names, key: key, log: o.Log, dirty: make(chan struct{}, 1), again: make(chan struct{}, 1), slots: make(chan struct{}, maxServed),
		records: make(map[string]*entry), waiting: make(map[string][]chan struct{}),
	}, nil
}

// Put writes a record. Watchers of this node see it at once. The error wraps
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
	r.deliver()
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
func (r *Records) store(key string, value []byte) (written chan struct{}, connected bool, err error) {
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
	if known == nil && len(r.records) >= MaxRecords {
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
	written = make(chan struct{})
	r.waiting[key] = append(r.waiting[key], written)
	r.wake(r.dirty)
	return written, r.engine != nil && r.engine.Unreachable() == nil, nil
}

// set stores a newer record and tells watchers. It is called with mu held.
func (r *Records) set(next record, signed []byte) {
	e := r.records[next.Key]
	if e == nil {
		e = &entry{}
		r.records[next.Key] = e
	}
	e.record, e.signed = next, signed
	for _, fn := range r.watchers {
		r.queue = append(r.queue, delivery{fn: fn, key: next.Key, value: next.Value})
	}
}

// Watch calls fn with every record, and then with every change. The value is nil if the
// record was deleted. Calls are sequential, in order for each key. fn may call Put and
// Delete. It must not block for long.
func (r *Records) Watch(fn func(key string, value []byte)) {
	r.mu.Lock()
	r.watchers = append(r.watchers, fn)
	for key, e := range r.records {
		if !e.Deleted {
			r.queue = append(r.queue, delivery{fn: fn, key: key, value: e.Value})
		}
	}
	r.mu.Unlock()
	r.deliver()
}

// OnSync calls fn each time that all records in the bucket have been read, after watchers
// were called with them. It is then certain what other nodes wrote before.
func (r *Records) OnSync(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.synced = append(r.synced, fn)
}

// deliver calls watchers with what is queued, unless somebody else is doing so.
func (r *Records) deliver() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy {
		return
	}
	r.busy = true
	defer func() { r.busy = false }()
	for len(r.queue) > 0 {
		d := r.queue[0]
		r.queue = r.queue[1:]
		r.mu.Unlock()
		if d.fn != nil {
			d.fn(d.key, d.value)
		}
		if d.done != nil {
			d.done()
		}
		r.mu.Lock()
	}
}

// settled waits until watchers have been called with what is queued now.
func (r *Records) settled(ctx context.Context) {
	done := make(chan struct{})
	r.mu.Lock()
	r.queue = append(r.queue, delivery{done: func() { close(done) }})
	r.mu.Unlock()
	r.deliver()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// receive handles what the bucket has, or what another node announced. A bucket's
// revision is not 0. The data is nil if the bucket has no record of the key.
func (r *Records) receive(key string, data []byte, revision uint64) (record, bool) {
	defer r.deliver()
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
	case valid && known == nil && len(r.records) >= MaxRecords:
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
		delete(r.records, key) // it has expired
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
	for _, written := range r.waiting[key] {
		close(written)
	}
	delete(r.waiting, key)
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
