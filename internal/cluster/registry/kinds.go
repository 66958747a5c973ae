package registry

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/concurrent"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// kinds fetches the manifests of devices of other nodes, once per Kind, and applies
// this node's overlays.
type kinds struct {
	names    engine.Names
	overlays Overlays
	log      *slog.Logger
	arrived  func(ids []string) // called with the devices whose manifest was fetched

	mu      sync.Mutex
	fetcher *fetcher // nil while the buckets are not open
	known   map[kindKey]*ferrule.Manifest
	waiting map[kindKey]map[string]bool // IDs of devices
}

// kindKey identifies an effective manifest.
type kindKey struct {
	protocol string
	kind     ferrule.Kind
	device   string // empty unless the device has an overlay of its own
}

// fetcher fetches manifests during one session.
type fetcher struct {
	ctx    context.Context
	bucket jetstream.KeyValue
	wg     *sync.WaitGroup
	slots  chan struct{} // limits concurrent fetches
}

// maxFetches hides the latency to the server.
const maxFetches = 32

func newKinds(n engine.Names, overlays Overlays, log *slog.Logger) *kinds {
	return &kinds{names: n, overlays: overlays, log: log, known: make(map[kindKey]*ferrule.Manifest), waiting: make(map[kindKey]map[string]bool)}
}

func (k *kinds) key(dev *ferrule.Device) kindKey {
	key := kindKey{protocol: dev.Protocol, kind: dev.Kind}
	if k.overlays.MatchesDevice(dev.ID) {
		key.device = dev.ID
	}
	return key
}

// manifest returns the effective manifest of a device, or nil if it is not fetched yet.
func (k *kinds) manifest(dev *ferrule.Device) *ferrule.Manifest {
	key := k.key(dev)
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.known[key]
}

// request fetches the manifest of a device in the background and reports its arrival.
func (k *kinds) request(dev *ferrule.Device) {
	key := k.key(dev)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waiting[key] == nil {
		k.waiting[key] = make(map[string]bool)
		defer k.fetch(key)
	}
	k.waiting[key][dev.ID] = true
}

// begin starts to fetch from a bucket. Fetches are added to wg.
func (k *kinds) begin(ctx context.Context, bucket jetstream.KeyValue, wg *sync.WaitGroup) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fetcher = &fetcher{ctx, bucket, wg, make(chan struct{}, maxFetches)}
	for key := range k.waiting {
		k.fetch(key)
	}
}

// end starts no more fetches. It must be called before waiting for begin's WaitGroup.
func (k *kinds) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fetcher = nil
}

// fetch fetches one manifest in the background. It is called with mu held.
func (k *kinds) fetch(key kindKey) {
	f := k.fetcher
	if f == nil {
		return
	}
	f.wg.Go(func() {
		manifest := k.getUntil(f, key)
		if manifest == nil {
			return // the session has ended; the next one fetches it
		}
		k.mu.Lock()
		k.known[key] = manifest
		ids := k.waiting[key]
		delete(k.waiting, key)
		k.mu.Unlock()
		k.arrived(slices.Collect(maps.Keys(ids)))
	})
}

// getUntil fetches a manifest and applies overlays, and retries until the session ends.
// It gives up its slot between attempts: a manifest may never arrive.
func (k *kinds) getUntil(f *fetcher, key kindKey) *ferrule.Manifest {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
		select {
		case f.slots <- struct{}{}:
		case <-f.ctx.Done():
			return nil
		}
		m, err := k.get(f.ctx, f.bucket, key.kind)
		<-f.slots
		if err == nil {
			return k.overlay(key, m)
		}
		if f.ctx.Err() != nil {
			return nil
		}
		k.log.Debug("cluster: manifest of "+key.kind.Short()+" not available yet", "err", err)
		concurrent.Sleep(f.ctx, wait)
	}
}

// overlay returns the effective manifest.
func (k *kinds) overlay(key kindKey, m *ferrule.Manifest) *ferrule.Manifest {
	return k.overlays.Apply(key.protocol, key.kind, key.device, m)
}

// get reads a manifest. The hash in its key proves its content, whichever node wrote it.
func (k *kinds) get(ctx context.Context, bucket jetstream.KeyValue, kind ferrule.Kind) (*ferrule.Manifest, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	e, err := bucket.Get(ctx, k.names.Key(string(kind)))
	if err != nil {
		return nil, err
	}
	return unpackManifest(kind, e.Value())
}

// retain drops the manifests that are not in use.
func (k *kinds) retain(inUse map[kindKey]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key := range k.known {
		if !inUse[key] {
			delete(k.known, key)
		}
	}
}

// Size limits of a manifest, compressed and not.
const (
	maxPacked   = 900 << 10 // a message is at most 1 MiB
	maxUnpacked = 8 << 20
)

// errUnpublishable means that other nodes cannot learn of a device.
var errUnpublishable = errors.New("its manifest cannot be sent")

// packers are reused: one is far larger than a packed manifest.
var packers = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return w
}}

func packManifest(m *ferrule.Manifest) ([]byte, error) {
	data, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := packers.Get().(*gzip.Writer)
	defer packers.Put(w)
	w.Reset(&b)
	w.Write(data) // to memory
	if err := w.Close(); err != nil {
		return nil, err
	}
	if b.Len() > maxPacked {
		return nil, fmt.Errorf("%w: %d bytes compressed, limit is %d", errUnpublishable, b.Len(), maxPacked)
	}
	return b.Bytes(), nil
}

// unpackManifest parses a manifest and checks that it has the given Kind.
func unpackManifest(kind ferrule.Kind, data []byte) (*ferrule.Manifest, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r, maxUnpacked+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxUnpacked {
		return nil, fmt.Errorf("longer than %d bytes", maxUnpacked)
	}
	m := &ferrule.Manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, err
	}
	m.Bound()
	got, err := m.Kind()
	if err != nil {
		return nil, err
	}
	if got != kind {
		return nil, fmt.Errorf("its Kind is %s", got.Short())
	}
	return m, nil
}

// publishKinds writes the manifests of records before the records. It returns the plans
// whose manifest is in the bucket, and why others are not.
func (s *Session) publishKinds(ctx context.Context, all []plan) (ready []plan, failed error) {
	s.publishing.Lock() // another writer that needs the same manifests waits for them
	defer s.publishing.Unlock()
	errs := s.publishMissing(ctx, all)
	for _, p := range all {
		var err error
		if p.device != nil && p.device.Trust != ferrule.TrustPending {
			err = errs[p.device.Kind]
			if accepted := errs[p.device.Accepted]; err == nil && !errors.Is(accepted, errUnpublishable) {
				err = accepted
			}
		}
		switch {
		case err == nil:
			ready = append(ready, p)
		case errors.Is(err, errUnpublishable):
			s.r.options.Log.Warn("cluster: device not visible to other nodes", "device", p.id, "err", err)
			s.r.view.drop(p)
		default:
			failed = fmt.Errorf("manifest of %s: %w", p.id, err)
			s.r.view.written(p, outcome{err: err})
		}
	}
	return ready, failed
}

// publishMissing writes the manifests that are not in the bucket yet, concurrently, and
// returns the errors by Kind. It leaves out pending devices: all devices of a Kind share
// what is in the bucket.
func (s *Session) publishMissing(ctx context.Context, all []plan) map[ferrule.Kind]error {
	errs := make(map[ferrule.Kind]error)
	for _, p := range all {
		if p.device == nil || p.device.Trust == ferrule.TrustPending {
			continue
		}
		for _, kind := range []ferrule.Kind{p.device.Kind, p.device.Accepted} { // another node may need what was accepted
			if kind != "" && !s.published[kind] {
				errs[kind] = nil
			}
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex // guards errs and s.published
	slots := make(chan struct{}, maxPublishes)
	for _, kind := range slices.Collect(maps.Keys(errs)) {
		slots <- struct{}{}
		wg.Go(func() {
			err := s.publishKind(ctx, kind)
			<-slots
			mu.Lock()
			defer mu.Unlock()
			errs[kind], s.published[kind] = err, err == nil
		})
	}
	wg.Wait()
	return errs
}

// maxPublishes hides the latency to the server.
const maxPublishes = 64

func (s *Session) publishKind(ctx context.Context, kind ferrule.Kind) error {
	key := s.r.names.Key(string(kind))
	m, err := s.r.options.Manifests.Manifest(kind)
	if err != nil { // another node, or this one before, may have published it
		_, missing := s.kinds.Get(ctx, key)
		if errors.Is(missing, jetstream.ErrKeyNotFound) {
			return fmt.Errorf("%w: %w", errUnpublishable, err)
		}
		return missing
	}
	data, err := packManifest(m)
	if err != nil {
		return err
	}
	_, err = s.kinds.Create(ctx, key, data)
	if errors.Is(err, jetstream.ErrKeyExists) {
		return nil
	}
	return err
}
