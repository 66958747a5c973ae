// Package taskstore keeps the records of tasks in a NATS key-value bucket, where a restart does
// not lose them and every node of the tenant can read them.
//
//	Put ─▶ JSON ─▶ gzip ─▶ encrypted ─▶ bucket ferrule-tasks: TENANT.ID
//	                            └─ what does not fit into a message: TENANT.ID.SET.N
//
// A record is encrypted and authenticated with a key that is derived from the secret of the
// tenant: other clients of NATS can neither read nor write one. A client that may write keys
// of the tenant can put back an older version of a record, or delete one. Nothing is called
// because of a record, so that moves no device.
//
// Put returns when the servers have confirmed the record. Unlike shared records, nothing is
// kept in memory: the caller decides what an error means.
package taskstore

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/concurrent"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// Limits of records.
const (
	// MaxRecord is the maximum size of a record in bytes.
	MaxRecord = 8 << 20
	// maxTTL is how long a record is kept at most. One of a task that has not ended is kept for
	// as long: its node may be away.
	maxTTL = 7 * 24 * time.Hour

	// maxBytes limits the bucket. New tasks are refused before it is full: the outcomes of
	// others must still fit.
	maxBytes = 256 << 20
	// smallRecord is the size up to which an outcome is stored in what is left then.
	smallRecord = 64 << 10
	// putTime is how long Put and Delete wait for the bucket.
	putTime = 5 * time.Second
	// settleTime is how long another replica may take to have a record.
	settleTime = 250 * time.Millisecond
	// watchPause is the pause before a watch that failed is repeated.
	watchPause = time.Second
)

// Errors of a Store.
var (
	ErrUnknown = errors.New("no such record")
	// ErrConflict means that the record has another revision.
	ErrConflict = errors.New("changed by another node meanwhile")
	// ErrTooLarge means that a record is larger than MaxRecord.
	ErrTooLarge = fmt.Errorf("larger than %d MiB", MaxRecord>>20)
	// ErrFull means that there is no space for another task, or for a large result.
	ErrFull = errors.New("the store of tasks is full")
	// ErrUnreachable means that the bucket is not open.
	ErrUnreachable = errors.New("the store of tasks cannot be reached")
)

// Options are the parts that a Store needs.
type Options struct {
	Names engine.Names
	// Secret is what the nodes of the tenant share. A single node keeps its own.
	Secret []byte
	Log    *slog.Logger
}

// Store keeps records. It is safe for concurrent use.
type Store struct {
	names engine.Names
	key   []byte // other keys are derived from it
	log   *slog.Logger

	mu        sync.Mutex
	session   *Session      // nil while the bucket is not open
	changed   chan struct{} // closed when session changes
	complaint ratelimit.Limiter
}

// New returns a Store that is not connected.
func New(o Options) (*Store, error) {
	key, err := hkdf.Key(sha256.New, o.Secret, nil, fmt.Sprintf("ferrule tasks %q", o.Names.Tenant), sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("deriving a key: %w", err)
	}
	return &Store{names: o.Names, key: key, log: o.Log, changed: make(chan struct{})}, nil
}

// Put writes a record that replaces a revision; 0 creates one. The servers have it when Put
// returns a revision. After another error than ErrConflict it may be written nevertheless:
// the same Put can be repeated.
func (s *Store) Put(ctx context.Context, t *ferrule.Task, revision uint64) (uint64, error) {
	if checkID(t.ID) != nil {
		return 0, fmt.Errorf("invalid ID of a task: %.100q", t.ID)
	}
	open, err := s.opened(ctx)
	if err != nil {
		return 0, err
	}
	if revision == 0 && open.full() {
		return 0, ErrFull
	}
	text, err := json.Marshal(t)
	if err != nil {
		return 0, err
	}
	if len(text) > MaxRecord {
		return 0, fmt.Errorf("the record of a task has %d bytes: %w", len(text), ErrTooLarge)
	}
	head, rest, err := seal(s.key, t.ID, text)
	if err != nil {
		return 0, err
	}
	size := uint64(len(head))
	for _, part := range rest {
		size += uint64(len(part))
	}
	if size > smallRecord && open.full() {
		return 0, ErrFull
	}
	ctx, cancel := context.WithTimeout(ctx, putTime)
	defer cancel()
	ttl := lifetime(t, time.Now())
	for i, part := range rest {
		if _, err := open.publish(ctx, partKey(t.ID, head, i+1), part, ttl, 0); err != nil && !errors.Is(err, engine.ErrStale) {
			return 0, open.failed(err)
		}
	}
	now, err := open.publish(ctx, t.ID, head, ttl, revision)
	if errors.Is(err, engine.ErrStale) {
		return s.compare(ctx, open, t.ID, text)
	}
	if err != nil {
		return 0, open.failed(err)
	}
	open.failures.Store(0)
	open.bytes.Add(size) // until it is measured
	open.stale.Store(true)
	return now, nil
}

// compare returns the revision of a record if it is what was to be written: an earlier attempt
// was not confirmed.
func (s *Store) compare(ctx context.Context, open *Session, id string, text []byte) (uint64, error) {
	stored, revision, err := s.read(ctx, open, id)
	switch {
	case errors.Is(err, ErrUnknown):
		return 0, ErrConflict
	case err != nil:
		return 0, open.engine.Explain(err)
	case !bytes.Equal(stored, text):
		return 0, ErrConflict
	}
	return revision, nil
}

// Get returns a record and its revision. The error is ErrUnknown if there is none or it has
// expired.
func (s *Store) Get(ctx context.Context, id string) (*ferrule.Task, uint64, error) {
	if checkID(id) != nil {
		return nil, 0, ErrUnknown
	}
	open, err := s.opened(ctx)
	if err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, putTime)
	defer cancel()
	t, revision, err := s.get(ctx, open, id)
	if errors.Is(err, ErrUnknown) && !open.alone {
		concurrent.Sleep(ctx, settleTime)
		t, revision, err = s.get(ctx, open, id)
	}
	if err != nil && !errors.Is(err, ErrUnknown) {
		return nil, 0, open.engine.Explain(err)
	}
	return t, revision, err
}

func (s *Store) get(ctx context.Context, open *Session, id string) (*ferrule.Task, uint64, error) {
	text, revision, err := s.read(ctx, open, id)
	if err != nil {
		return nil, 0, err
	}
	t, err := decode(id, text)
	if err != nil {
		s.complain(id, err)
		return nil, 0, ErrUnknown
	}
	if expired(t, time.Now()) {
		return nil, 0, ErrUnknown
	}
	return t, revision, nil
}

// read returns the text of a record. A forged one is as good as none.
func (s *Store) read(ctx context.Context, open *Session, id string) ([]byte, uint64, error) {
	const attempts = 3 // the parts of a record are gone once it is replaced
	for attempt := 1; ; attempt++ {
		head, revision, err := open.last(ctx, id)
		if err != nil {
			return nil, 0, err
		}
		if len(head) == 0 {
			return nil, revision, ErrUnknown
		}
		text, err := s.assemble(ctx, open, id, head)
		switch {
		case err == nil:
			return text, revision, nil
		case errors.Is(err, errPart) && attempt < attempts:
			continue
		case errors.Is(err, errForged) || errors.Is(err, errPart):
			s.complain(id, err)
			return nil, revision, ErrUnknown
		}
		return nil, 0, err
	}
}

// assemble fetches the other parts of a record and opens it.
func (s *Store) assemble(ctx context.Context, open *Session, id string, head []byte) ([]byte, error) {
	n, err := parts(head)
	if err != nil {
		return nil, err
	}
	rest := make([][]byte, 0, n)
	for i := range n {
		part, _, err := open.last(ctx, partKey(id, head, i+1))
		if err != nil {
			return nil, err
		}
		if len(part) == 0 {
			return nil, errPart
		}
		rest = append(rest, part)
	}
	return unseal(s.key, id, head, rest)
}

// Delete removes a record.
func (s *Store) Delete(ctx context.Context, id string) error {
	if checkID(id) != nil {
		return nil
	}
	open, err := s.opened(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, putTime)
	defer cancel()
	head, _, err := open.last(ctx, id)
	if err != nil {
		return open.engine.Explain(err)
	}
	if len(head) == 0 {
		return nil
	}
	if err := open.bucket.Purge(ctx, s.names.Key(id), jetstream.PurgeTTL(markerTTL)); err != nil {
		return open.engine.Explain(err)
	}
	if n, err := parts(head); err == nil {
		for i := range n { // else they expire
			open.bucket.Purge(ctx, s.names.Key(partKey(id, head, i+1)), jetstream.PurgeTTL(markerTTL))
		}
	}
	return nil
}

// Watch calls fn with each record that exists, and then with each change, until ctx ends. It
// may leave out changes of this Store. Calls are sequential. A record may be reported again
// after a connection was lost.
func (s *Store) Watch(ctx context.Context, fn func(t *ferrule.Task, revision uint64)) error {
	for {
		open, changed := s.current()
		if open == nil {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		err := s.watch(ctx, open, changed, fn)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			s.log.Debug("cluster: the watch of tasks has ended", "err", err)
			concurrent.Sleep(ctx, watchPause)
		}
	}
}

// complain logs that a record is not valid.
func (s *Store) complain(id string, err error) {
	s.mu.Lock()
	allowed := s.complaint.Allow(ratelimit.PerMinute(10), time.Now())
	s.mu.Unlock()
	if allowed {
		s.log.Warn("cluster: ignored the record of a task that no node of this tenant wrote", "task", fmt.Sprintf("%.8q", id), "err", err)
	}
}

// expired reports whether a record is no longer valid.
func expired(t *ferrule.Task, now time.Time) bool {
	return t.Status.Final() && !now.Before(t.Created.Add(t.TTL))
}

// lifetime returns for how long the servers keep a record.
func lifetime(t *ferrule.Task, now time.Time) time.Duration {
	if !t.Status.Final() {
		return maxTTL
	}
	const least = time.Second // of NATS
	left := t.Created.Add(t.TTL).Sub(now).Truncate(time.Second) + time.Second
	return min(max(left, least), maxTTL)
}

// decode reads the text of a record.
func decode(id string, text []byte) (*ferrule.Task, error) {
	var t ferrule.Task
	if err := json.Unmarshal(text, &t); err != nil {
		return nil, err
	}
	if t.ID != id {
		return nil, errForged
	}
	return &t, nil
}

var idPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{8,64}$`)

// checkID keeps an agent's text out of subjects.
func checkID(id string) error {
	if !idPattern.MatchString(id) {
		return ErrUnknown
	}
	return nil
}
