package taskstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

const (
	// markerTTL is how long the servers remember that a record is gone.
	markerTTL = time.Minute
	// openTime is how long a caller waits for the bucket.
	openTime = 3 * time.Second
	// checkEvery is how often the size of the bucket is read while this node writes, and
	// idleChecks how many of these times pass while it does not: an idle node is silent.
	checkEvery = 5 * time.Second
	idleChecks = 60
	// maxHeaders is the size of the headers of a message, which counts too.
	maxHeaders = 4 << 10
)

// Session is the opened bucket.
type Session struct {
	s      *Store
	engine *engine.Engine
	bucket jetstream.KeyValue
	alone  bool
	limit  uint64
	bytes  atomic.Uint64
	// stale is set if the size must be read again.
	stale atomic.Bool
	// failures counts writes that failed since the last one that succeeded.
	failures atomic.Int32
	stuck    chan struct{} // the server must be restarted
}

// Open opens the bucket, and creates it if it does not exist.
func (s *Store) Open(ctx context.Context, e *engine.Engine, alone bool) (*Session, error) {
	limit := e.SizeLimit(4*maxBytes) / 4
	bucket, err := e.Bucket(ctx, jetstream.KeyValueConfig{
		Bucket: engine.TasksBucket, Description: "calls that outlive their requests", LimitMarkerTTL: markerTTL,
		MaxBytes: limit, MaxValueSize: headerSize + partSize + maxHeaders,
	})
	if err != nil {
		return nil, err
	}
	return &Session{s: s, engine: e, bucket: bucket, alone: alone, limit: uint64(limit), stuck: make(chan struct{}, 1)}, nil
}

// Run serves the Store until ctx ends or the bucket is gone.
func (o *Session) Run(ctx context.Context) error {
	o.s.set(o)
	defer o.s.set(nil)
	for idle := idleChecks; ; idle++ {
		if o.stale.Swap(false) || idle >= idleChecks {
			idle = 0
			if err := o.measure(ctx); errors.Is(err, jetstream.ErrStreamNotFound) {
				return fmt.Errorf("bucket %s: %w", engine.TasksBucket, err)
			}
		}
		select {
		case <-time.After(checkEvery):
		case <-o.stuck:
			return engine.ErrStuck
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// measure reads the size of the bucket.
func (o *Session) measure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, engine.RequestTime)
	defer cancel()
	status, err := o.bucket.Status(ctx)
	if err == nil {
		o.bytes.Store(status.Bytes())
	}
	return err
}

// full reports whether what is left of the bucket is kept for the outcomes of tasks.
func (o *Session) full() bool {
	full := o.bytes.Load() > o.limit/4*3
	if full {
		o.stale.Store(true) // until tasks have expired
	}
	return full
}

// set makes the bucket available.
func (s *Store) set(o *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session = o
	close(s.changed)
	s.changed = make(chan struct{})
}

// current returns the opened bucket, nil if there is none, and what is closed when that
// changes.
func (s *Store) current() (*Session, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session, s.changed
}

// opened returns the opened bucket. It waits a moment for it: agents ask for their tasks as soon
// as a gateway that was restarted listens.
func (s *Store) opened(ctx context.Context) (*Session, error) {
	late := time.NewTimer(openTime)
	defer late.Stop()
	for {
		open, changed := s.current()
		if open != nil {
			return open, nil
		}
		select {
		case <-changed:
		case <-late.C:
			return nil, ErrUnreachable
		case <-ctx.Done():
			return nil, ErrUnreachable
		}
	}
}

// Refresh reads all records again: a watch that was lost with its server may be silent for
// long.
func (s *Store) Refresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// watch reports all records and changes until ctx ends, the session changes, or it fails. A
// node that is alone makes all changes itself: the watch ends once it has all records.
func (s *Store) watch(ctx context.Context, open *Session, changed <-chan struct{}, fn func(t *ferrule.Task, revision uint64)) error {
	w, err := engine.Watch(ctx, open.bucket, s.names.Key("*"))
	if err != nil {
		return fmt.Errorf("watching %s: %w", engine.TasksBucket, err)
	}
	defer w.Stop()
	for {
		select {
		case e, ok := <-w.Updates():
			if !ok {
				return errors.New("a watch has ended")
			}
			if e == nil && open.alone {
				w.Stop()
				return untilChanged(ctx, changed)
			}
			if e != nil && e.Operation() == jetstream.KeyValuePut {
				s.report(ctx, open, e, fn)
			}
		case <-changed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// untilChanged returns when the session changes or ctx ends.
func untilChanged(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// report calls fn with a record, unless it is replaced or has expired.
func (s *Store) report(ctx context.Context, open *Session, e jetstream.KeyValueEntry, fn func(t *ferrule.Task, revision uint64)) {
	id := strings.TrimPrefix(e.Key(), s.names.Key(""))
	if checkID(id) != nil {
		return
	}
	text, err := s.assemble(ctx, open, id, e.Value())
	if errors.Is(err, errPart) {
		return // it is replaced, which is reported too
	}
	if err != nil {
		if errors.Is(err, errForged) {
			s.complain(id, err)
		}
		return
	}
	t, err := decode(id, text)
	if err != nil {
		s.complain(id, err)
		return
	}
	if !expired(t, time.Now()) {
		fn(t, e.Revision())
	}
}

// publish writes the value of a key over a revision of it. It repeats a request that is not
// answered.
func (o *Session) publish(ctx context.Context, key string, data []byte, ttl time.Duration, revision uint64) (uint64, error) {
	return engine.Retry(ctx, func(ctx context.Context) (uint64, error) {
		ack, err := o.engine.Shared.PublishMsg(ctx, &nats.Msg{Subject: o.engine.KeySubject(engine.TasksBucket, o.s.names.Key(key)), Data: data},
			jetstream.WithMsgTTL(ttl), jetstream.WithExpectLastSequencePerSubject(revision))
		if err != nil {
			return 0, engine.AsStale(err)
		}
		return ack.Sequence, nil
	})
}

// last returns the newest value of a key and its revision.
func (o *Session) last(ctx context.Context, key string) (value []byte, revision uint64, err error) {
	value, err = engine.Retry(ctx, func(ctx context.Context) (got []byte, err error) {
		got, revision, err = o.engine.LastValue(ctx, engine.TasksBucket, o.s.names.Key(key))
		return got, err
	})
	return value, revision, err
}

// failed returns why a record could not be written. After a second failure, a server in this
// process that does not write any more is restarted.
func (o *Session) failed(err error) error {
	if o.failures.Add(1) > 1 && o.alone && o.engine.Stuck(err) {
		select {
		case o.stuck <- struct{}{}:
		default:
		}
	}
	return o.engine.Explain(err)
}
