package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/concurrent"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Session is the registry's buckets, opened, with this node's lease taken.
type Session struct {
	r       *Registry
	engine  *engine.Engine
	devices store
	nodes   jetstream.KeyValue
	kinds   jetstream.KeyValue
	lease   uint64 // revision of this node's lease when it was taken

	publishing sync.Mutex            // held while manifests are written
	published  map[ferrule.Kind]bool // manifests that are in the bucket
}

// layout is chosen by the first node for all others.
type layout struct {
	Shards int `json:"shards"`
}

// Size limits of the buckets.
const (
	maxKindsBytes  = 1 << 30
	maxLeasesBytes = 16 << 20
)

// settleTime is about how long servers take to elect a leader. settleJitter keeps nodes
// that lost the same server from reading all records at the same moment.
const (
	settleTime   = 5 * time.Second
	settleJitter = settleTime
)

// Open opens the buckets, creates missing ones, and takes this node's lease. It makes
// independent requests concurrently, so that a node starts fast.
func (r *Registry) Open(ctx context.Context, e *engine.Engine) (*Session, error) {
	s := &Session{r: r, engine: e, published: make(map[ferrule.Kind]bool)}
	return s, concurrent.All(
		func() (err error) {
			if s.nodes, err = e.Bucket(ctx, jetstream.KeyValueConfig{
				Bucket: engine.NodesBucket, Description: "leases of Ferrule's nodes", LimitMarkerTTL: time.Minute, MaxBytes: e.SizeLimit(maxLeasesBytes),
			}); err != nil {
				return err
			}
			return concurrent.All(
				func() (err error) { s.devices, err = s.openDevices(ctx); return err },
				func() (err error) { s.lease, err = s.firstLease(ctx); return err },
			)
		},
		func() (err error) {
			s.kinds, err = e.Bucket(ctx, jetstream.KeyValueConfig{
				Bucket: engine.KindsBucket, Description: "manifests of devices, by Kind", MaxBytes: e.SizeLimit(maxKindsBytes),
			})
			return err
		},
	)
}

// openDevices opens the device buckets, as many as the layout says.
func (s *Session) openDevices(ctx context.Context) (store, error) {
	want := layout{Shards: s.r.cfg.Shards}
	if s.r.cfg.Alone() {
		want.Shards = 1
	}
	text, err := json.Marshal(want)
	if err != nil {
		return nil, err
	}
	got, err := engine.Retry(ctx, func(ctx context.Context) (jetstream.KeyValueEntry, error) {
		got, err := s.nodes.Get(ctx, engine.LayoutKey)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			if _, err = s.nodes.Create(ctx, engine.LayoutKey, text); err == nil {
				return s.nodes.Get(ctx, engine.LayoutKey)
			}
		}
		return got, err
	})
	if err != nil {
		return nil, fmt.Errorf("layout: %w", err)
	}
	if err := json.Unmarshal(got.Value(), &want); err != nil || want.Shards < 1 || want.Shards > engine.MaxShards {
		return nil, fmt.Errorf("invalid layout of the registry: %.100q", got.Value())
	}
	kv := &kvStore{engine: s.engine, names: s.r.names, shards: make([]jetstream.KeyValue, want.Shards)}
	var all []func() error
	for shard := range want.Shards {
		all = append(all, func() (err error) {
			kv.shards[shard], err = s.engine.Bucket(ctx, jetstream.KeyValueConfig{
				Bucket: engine.DevicesBucket(shard), Description: "devices", MaxValueSize: maxRecord,
			})
			return err
		})
	}
	return kv, concurrent.All(all...)
}

// Run writes the records of own devices, keeps the lease, and watches devices and
// nodes, until ctx ends or one of them fails.
func (s *Session) Run(ctx context.Context) error {
	r := s.r
	r.session.Store(s)
	defer r.session.Store(nil)
	r.options.LeaseProblem("")
	r.options.WriteProblem("")
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	r.kinds.begin(ctx, s.kinds, &wg)
	defer func() {
		r.kinds.end()
		cancel()
		wg.Wait()
	}()
	if r.cfg.Alone() {
		known := make(chan struct{})
		close(known)
		return concurrent.UntilFirst(ctx, s.keepOwn, func(ctx context.Context) error { return s.watchDevices(ctx, known) })
	}
	return concurrent.UntilFirst(ctx, s.keepOwn, s.keepLease, s.keepView)
}

// Leave writes the last changes of own devices, as far as there is time. The caller
// then calls GiveUpLease.
func (s *Session) Leave(ctx context.Context) { s.writeAll(ctx) }

// watchDevices watches device records. They wait until it is known which nodes are
// alive: a device is reachable only if its node is.
func (s *Session) watchDevices(ctx context.Context, known <-chan struct{}) error {
	wait := func() (ok bool) {
		select {
		case <-known:
			return true
		case <-ctx.Done():
			return false
		}
	}
	received := func(id string, data []byte, revision uint64) {
		if wait() {
			s.r.view.receive(id, data, revision)
		}
	}
	s.r.view.begin()
	return s.devices.watch(ctx, received, func() {
		if wait() {
			s.r.view.complete()
			s.r.options.Synced()
		}
	})
}

// keepView watches nodes and devices until ctx ends. After Refresh it starts over.
func (s *Session) keepView(ctx context.Context) error {
	for {
		watch, cancel := context.WithCancel(ctx)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			select {
			case <-s.r.refresh:
				cancel()
			case <-watch.Done():
			}
		}()
		err := s.watchAll(watch)
		again := watch.Err() != nil || errors.Is(err, context.Canceled)
		cancel()
		<-stopped
		if !again || ctx.Err() != nil {
			return err
		}
	}
}

func (s *Session) watchAll(ctx context.Context) error {
	known := make(chan struct{})
	return concurrent.UntilFirst(ctx,
		func(ctx context.Context) error {
			return s.watchNodes(ctx, sync.OnceFunc(func() { close(known) }))
		},
		func(ctx context.Context) error { return s.watchDevices(ctx, known) },
	)
}

// Refresh reads all nodes and devices again, once servers had time to elect leaders. A
// watch that was lost with its server may be silent for long.
func (r *Registry) Refresh() {
	time.AfterFunc(settleTime+rand.N(settleJitter), func() {
		select {
		case r.refresh <- struct{}{}:
		default:
		}
	})
}
