package shared

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/concurrent"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
)

// maxBytes limits the bucket.
const maxBytes = 64 << 20

// Session is the opened bucket.
type Session struct {
	r      *Records
	engine *engine.Engine
	bucket jetstream.KeyValue
}

// Open opens the bucket, creates it if it does not exist, and reads all records: a node
// knows what others decided before it serves them.
func (r *Records) Open(ctx context.Context, e *engine.Engine) (*Session, error) {
	bucket, err := e.Bucket(ctx, jetstream.KeyValueConfig{
		Bucket: engine.SharedBucket, Description: "what all nodes know", LimitMarkerTTL: time.Minute,
		MaxBytes: e.SizeLimit(4*maxBytes) / 4, MaxValueSize: maxSigned,
	})
	if err != nil {
		return nil, err
	}
	s := &Session{r: r, engine: e, bucket: bucket}
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := s.watch(reading, cancel); err != nil && ctx.Err() != nil || !errors.Is(err, context.Canceled) {
		return nil, fmt.Errorf("reading %s: %w", engine.SharedBucket, err)
	}
	r.settled(ctx)
	return s, nil
}

// Run follows the bucket and writes to it until ctx ends or that fails.
func (s *Session) Run(ctx context.Context) error {
	return concurrent.UntilFirst(ctx, s.follow, s.write)
}

// Leave writes what is not in the bucket yet, as far as there is time.
func (s *Session) Leave(ctx context.Context) { s.writeAll(ctx) }

// settleTime is about how long servers take to elect a leader.
const settleTime = 5 * time.Second

// Refresh reads all records again, now and once servers had time to elect leaders: a
// watch that was lost with its server may be silent for long. What could not be written is
// announced meanwhile.
func (r *Records) Refresh() {
	r.announceUnsaved()
	r.wake(r.again)
	time.AfterFunc(settleTime+rand.N(settleTime), func() { r.wake(r.again) })
}

// follow watches the bucket. After Refresh it starts over.
func (s *Session) follow(ctx context.Context) error {
	for {
		err := concurrent.UntilFirst(ctx, func(ctx context.Context) error { return s.watch(ctx, func() {}) }, func(ctx context.Context) error {
			select {
			case <-s.r.again:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if err != nil {
			return err
		}
	}
}

// watch receives all records, calls synced, and receives changes, until ctx ends.
func (s *Session) watch(ctx context.Context, synced func()) error {
	r := s.r
	watcher, err := engine.Watch(ctx, s.bucket, r.names.Key(">"))
	if err != nil {
		return fmt.Errorf("watching %s: %w", engine.SharedBucket, err)
	}
	defer watcher.Stop()
	complete, seen := false, make(map[string]bool)
	for {
		select {
		case e, open := <-watcher.Updates():
			switch {
			case !open:
				return errors.New("a watch has ended")
			case e == nil:
				complete = true
				r.missing(seen)
				go r.tellSynced()
				synced()
				continue
			}
			key := strings.TrimPrefix(e.Key(), r.names.Key(""))
			if !complete {
				seen[key] = true
			}
			if e.Operation() == jetstream.KeyValuePut {
				r.receive(key, e.Value(), e.Revision())
			} else {
				r.receive(key, nil, e.Revision())
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// missing handles records that the bucket does not have: they are written back, unless
// they are deleted ones that have expired.
func (r *Records) missing(seen map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, e := range r.records {
		if seen[key] || e.unsaved {
			continue
		}
		if e.Deleted {
			r.drop(key)
			continue
		}
		e.unsaved, e.revision = true, 0
		r.wake(r.dirty)
	}
}

// tellSynced calls what OnSync was given.
func (r *Records) tellSynced() {
	r.settled(context.Background())
	r.mu.Lock()
	all := slices.Clone(r.synced)
	r.mu.Unlock()
	for _, fn := range all {
		fn()
	}
}

// The pause before writing is tried again.
const (
	minPause = 50 * time.Millisecond
	maxPause = 2 * time.Second
)

// write writes records to the bucket until ctx ends. It keeps trying while the bucket
// cannot be written.
func (s *Session) write(ctx context.Context) error {
	s.r.wake(s.r.dirty)
	for pause := minPause; ; {
		select {
		case <-s.r.dirty:
		case <-ctx.Done():
			return ctx.Err()
		}
		err := s.writeAll(ctx)
		switch {
		case err == nil:
			pause = minPause
			continue
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return err // the bucket is gone
		}
		concurrent.Sleep(ctx, pause)
		pause = min(2*pause, maxPause)
		s.r.wake(s.r.dirty)
	}
}

// writeAll writes all records that are not in the bucket.
func (s *Session) writeAll(ctx context.Context) error {
	var failed error
	for _, key := range s.r.unsavedKeys() {
		if err := s.writeOne(ctx, key); err != nil {
			failed = err
		}
	}
	return failed
}

func (r *Records) unsavedKeys() (keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, e := range r.records {
		if e.unsaved {
			keys = append(keys, key)
		}
	}
	return keys
}

// writeOne writes the newest record of a key, only over what this node has seen: another
// node may have written a newer one meanwhile.
func (s *Session) writeOne(ctx context.Context, key string) error {
	r := s.r
	r.mu.Lock()
	e := r.records[key]
	if e == nil || !e.unsaved {
		r.mu.Unlock()
		return nil
	}
	signed, version, revision, deleted := e.signed, e.record, e.revision, e.Deleted
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, engine.RequestTime)
	defer cancel()
	options := []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(revision)}
	if deleted {
		options = append(options, jetstream.WithMsgTTL(deletedTTL))
	}
	ack, err := s.engine.Shared.PublishMsg(ctx, &nats.Msg{Subject: s.engine.KeySubject(engine.SharedBucket, r.names.Key(key)), Data: signed}, options...)
	if err = engine.AsStale(err); errors.Is(err, engine.ErrStale) {
		return s.compare(ctx, key)
	}
	if err != nil {
		if gone := s.engine.BucketMissing(ctx, engine.SharedBucket); gone != nil {
			return gone
		}
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.records[key]; e != nil {
		e.revision = ack.Sequence
		if !e.newer(version) {
			e.unsaved = false
			r.settle(key)
		}
	}
	return nil
}

// compare reads a key that another node wrote meanwhile. If this node's record is newer,
// it is written again.
func (s *Session) compare(ctx context.Context, key string) error {
	data, revision, err := s.engine.LastValue(ctx, engine.SharedBucket, s.r.names.Key(key))
	if err != nil {
		return err
	}
	if revision == 0 { // it has expired without a trace
		s.r.mu.Lock()
		defer s.r.mu.Unlock()
		if e := s.r.records[key]; e != nil {
			e.revision = 0
		}
		return engine.ErrStale
	}
	if len(data) == 0 {
		data = nil
	}
	s.r.receive(key, data, revision)
	s.r.wake(s.r.dirty)
	return nil
}
