package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// home is what all nodes share: the registry, the leases of nodes, the manifests,
// and the streams of journals and events.
type home struct {
	registry registry
	nodes    jetstream.KeyValue
	lease    uint64 // revision of this node's at first
	kinds    jetstream.KeyValue
	events   jetstream.Stream
	journal  jetstream.Stream // nil where nodes are alone: a copy on the same disk is none
}

// layout is what the first node decides for all.
type layout struct {
	Shards int `json:"shards"`
}

// The bounds of what is kept, of the kinds that only grow.
const (
	eventsAge   = 7 * 24 * time.Hour
	eventsBytes = 256 << 20
	eventsEach  = 256 // of one sort, of one device at one node
	journalMost = 4 << 30
	kindsMost   = 1 << 30
	leasesMost  = 16 << 20
	spoolBytes  = 64 << 20
	// What was measured is on its way to histories, which keep it: it is kept for as long
	// as one of them may be stopped.
	samplesAge   = 24 * time.Hour
	samplesBytes = 4 << 30
)

// openHome opens what all nodes share, makes what is not there yet, and takes this
// node's lease. All that can be asked for at once is: a new node is there sooner.
func (b *Cluster) openHome(ctx context.Context, e *engine) (*home, error) {
	h := &home{}
	all := []func() error{
		func() (err error) {
			if h.nodes, err = b.bucket(ctx, e, jetstream.KeyValueConfig{
				Bucket: nodesBucket, Description: "leases of Ferrule's nodes", LimitMarkerTTL: time.Minute, MaxBytes: b.bytes(leasesMost),
			}); err != nil {
				return err
			}
			return atOnce([]func() error{
				func() (err error) { h.registry, err = b.openRegistry(ctx, e, h); return err },
				func() (err error) { h.lease, err = b.firstLease(ctx, e); return err },
			})
		},
		func() (err error) {
			h.kinds, err = b.bucket(ctx, e, jetstream.KeyValueConfig{
				Bucket: kindsBucket, Description: "manifests of devices, by Kind", MaxBytes: b.bytes(kindsMost),
			})
			return err
		},
		func() (err error) {
			h.events, err = b.stream(ctx, e, jetstream.StreamConfig{
				Name: eventsStream, Description: "what happened to devices", Subjects: []string{"ferrule.*.event.>"}, MaxMsgsPerSubject: eventsEach,
				MaxAge: eventsAge, MaxBytes: b.bytes(eventsBytes), Discard: jetstream.DiscardOld, AllowDirect: true,
			})
			return err
		},
	}
	if !b.cfg.alone() {
		all = append(all, func() (err error) {
			h.journal, err = b.stream(ctx, e, jetstream.StreamConfig{
				Name: journalStream, Description: "the journals of nodes", Subjects: []string{"ferrule.*.journal.*.*"},
				MaxBytes: journalMost, Discard: jetstream.DiscardNew, DenyDelete: true, DenyPurge: true, AllowDirect: true,
			})
			return err
		})
	}
	return h, atOnce(all)
}

// atOnce does things at once, and tells what went wrong first.
func atOnce(all []func() error) error {
	var wg sync.WaitGroup
	errs := make(chan error, len(all))
	for _, do := range all {
		wg.Go(func() {
			if err := do(); err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// bytes is a bound that fits into the store of a node by itself.
func (b *Cluster) bytes(most int64) int64 {
	if b.cfg.alone() {
		return min(most, b.cfg.Store/4)
	}
	return most
}

// openRegistry opens the registry in as many shards as it was first made with.
func (b *Cluster) openRegistry(ctx context.Context, e *engine, h *home) (registry, error) {
	want := layout{Shards: b.cfg.Shards}
	if b.cfg.alone() {
		want.Shards = 1
	}
	text, err := json.Marshal(want)
	if err != nil {
		return nil, err
	}
	got, err := patiently(ctx, func(ctx context.Context) (jetstream.KeyValueEntry, error) {
		got, err := h.nodes.Get(ctx, layoutKey)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			if _, err = h.nodes.Create(ctx, layoutKey, text); err == nil {
				return h.nodes.Get(ctx, layoutKey)
			}
		}
		return got, err
	})
	if err != nil {
		return nil, fmt.Errorf("layout: %w", err)
	}
	if err := json.Unmarshal(got.Value(), &want); err != nil || want.Shards < 1 || want.Shards > maxShards {
		return nil, fmt.Errorf("the layout of the registry makes no sense: %.100q", got.Value())
	}
	r := &kvRegistry{engine: e, names: b.names, shards: make([]jetstream.KeyValue, want.Shards)}
	var all []func() error
	for shard := range want.Shards {
		all = append(all, func() (err error) {
			r.shards[shard], err = b.bucket(ctx, e, jetstream.KeyValueConfig{
				Bucket: devicesBucket(shard), Description: "devices", MaxValueSize: maxRecord,
			})
			return err
		})
	}
	return r, atOnce(all)
}

// bucket opens a bucket, or makes it.
func (b *Cluster) bucket(ctx context.Context, e *engine, cfg jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	cfg.History, cfg.Storage, cfg.Replicas = 1, jetstream.FileStorage, b.replicas()
	var missing missing
	kv, err := patiently(ctx, func(ctx context.Context) (jetstream.KeyValue, error) {
		kv, err := e.home.KeyValue(ctx, cfg.Bucket)
		if errors.Is(err, jetstream.ErrBucketNotFound) {
			kv, err = e.home.CreateKeyValue(ctx, cfg)
			err = missing.made(b.cfg.Tenant, err)
		}
		return kv, err
	})
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", cfg.Bucket, err)
	}
	return kv, nil
}

// stream opens a stream, or makes it.
func (b *Cluster) stream(ctx context.Context, e *engine, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	cfg.Storage, cfg.Replicas = jetstream.FileStorage, b.replicas()
	var missing missing
	s, err := patiently(ctx, func(ctx context.Context) (jetstream.Stream, error) {
		s, err := e.home.Stream(ctx, cfg.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			s, err = e.home.CreateStream(ctx, cfg)
			err = missing.made(b.cfg.Tenant, err)
		}
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", cfg.Name, err)
	}
	return s, nil
}

// missing counts how often something could not be made that is not there.
type missing int

// unheard is how often making it is not answered if it is not permitted, and not just
// slow.
const unheard = 2

// made tells what it means that something that is not there could not be made. Who may
// not is not answered by a server, and a leaf does not even pass it on.
func (m *missing) made(tenant string, err error) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		*m = unheard
	case errors.Is(err, context.DeadlineExceeded):
		*m++
	}
	if *m < unheard {
		return err
	}
	return fmt.Errorf("it is not there, and this node may not make it: start a node once with the credentials of %s's operator", tenant)
}

// requestTime is how long a request may take. One about a stream that is just being
// made by another node is not answered at all.
const requestTime = 2 * time.Second

// patiently asks again as long as it is not answered, or another node was quicker,
// until ctx ends.
func patiently[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	for {
		attempt, cancel := context.WithTimeout(ctx, requestTime)
		answer, err := ask(attempt)
		cancel()
		switch {
		case err == nil || ctx.Err() != nil:
			return answer, err
		case errors.Is(err, jetstream.ErrBucketExists), errors.Is(err, jetstream.ErrStreamNameAlreadyInUse),
			errors.Is(err, jetstream.ErrKeyExists), errors.Is(err, context.DeadlineExceeded):
			continue
		}
		return answer, err
	}
}

func (b *Cluster) replicas() int {
	if b.cfg.alone() {
		return 1
	}
	return b.cfg.Replicas
}
