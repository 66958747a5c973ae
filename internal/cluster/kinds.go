package cluster

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

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// kinds fetches what devices of other nodes say of themselves, once a Kind, and
// lays on it what this node's owner says.
type kinds struct {
	names    names
	overlays Overlays
	log      *slog.Logger
	arrived  func(ids []string) // tells whoever waits

	mu      sync.Mutex
	session *kindSession // nil while there is no registry
	known   map[kindKey]*ferrule.Manifest
	waiting map[kindKey]map[string]bool // IDs of devices
}

type kindKey struct {
	dialect string
	kind    ferrule.Kind
	device  string // empty for all that share
}

// kindSession is what manifests are fetched with.
type kindSession struct {
	ctx    context.Context
	bucket jetstream.KeyValue
	wg     *sync.WaitGroup
	gate   chan struct{} // bounds how many are fetched at once
}

// fetchesAtOnce is enough to hide the way to the server.
const fetchesAtOnce = 32

func newKinds(n names, overlays Overlays, log *slog.Logger) *kinds {
	return &kinds{names: n, overlays: overlays, log: log, known: make(map[kindKey]*ferrule.Manifest), waiting: make(map[kindKey]map[string]bool)}
}

func (k *kinds) key(dev *ferrule.Device) kindKey {
	key := kindKey{dialect: dev.Protocol, kind: dev.Kind}
	if k.overlays.MatchesDevice(dev.ID) {
		key.device = dev.ID
	}
	return key
}

// laid is the laid manifest of a device, or nil if it is not known yet.
func (k *kinds) laid(dev *ferrule.Device) *ferrule.Manifest {
	key := k.key(dev)
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.known[key]
}

// want has a manifest fetched for a device, which is told of when it is there.
func (k *kinds) want(dev *ferrule.Device) {
	key := k.key(dev)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waiting[key] == nil {
		k.waiting[key] = make(map[string]bool)
		defer k.fetch(key)
	}
	k.waiting[key][dev.ID] = true
}

// begin fetches with a session from now on.
func (k *kinds) begin(ctx context.Context, bucket jetstream.KeyValue, wg *sync.WaitGroup) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.session = &kindSession{ctx, bucket, wg, make(chan struct{}, fetchesAtOnce)}
	for key := range k.waiting {
		k.fetch(key)
	}
}

// end is called before the session's WaitGroup is waited for.
func (k *kinds) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.session = nil
}

// fetch fetches one. It is called with mu held.
func (k *kinds) fetch(key kindKey) {
	s := k.session
	if s == nil {
		return
	}
	s.wg.Go(func() {
		laid := k.lay(s, key)
		if laid == nil {
			return // the session has ended, and the next one tries again
		}
		k.mu.Lock()
		k.known[key] = laid
		ids := k.waiting[key]
		delete(k.waiting, key)
		k.mu.Unlock()
		k.arrived(slices.Collect(maps.Keys(ids)))
	})
}

// lay fetches a manifest and lays it. It goes on trying until the session ends, and
// lets others have a go meanwhile: it may never come.
func (k *kinds) lay(s *kindSession, key kindKey) *ferrule.Manifest {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
		select {
		case s.gate <- struct{}{}:
		case <-s.ctx.Done():
			return nil
		}
		m, err := k.get(s.ctx, s.bucket, key.kind)
		<-s.gate
		if err == nil {
			return k.overlaid(key, m)
		}
		if s.ctx.Err() != nil {
			return nil
		}
		k.log.Debug("bus: the manifest of "+key.kind.Short()+" is not there yet", "err", err)
		sleep(s.ctx, wait)
	}
}

// overlaid lays a manifest for those who share it, or for one device alone.
func (k *kinds) overlaid(key kindKey, m *ferrule.Manifest) *ferrule.Manifest {
	return k.overlays.Apply(key.dialect, key.kind, key.device, m)
}

// get reads a manifest. It is known by its hash, so whoever wrote it cannot have
// written another.
func (k *kinds) get(ctx context.Context, bucket jetstream.KeyValue, kind ferrule.Kind) (*ferrule.Manifest, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	e, err := bucket.Get(ctx, k.names.key(string(kind)))
	if err != nil {
		return nil, err
	}
	return unpackManifest(kind, e.Value())
}

// tidy forgets the Kinds that no device is of.
func (k *kinds) tidy(inUse map[kindKey]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key := range k.known {
		if !inUse[key] {
			delete(k.known, key)
		}
	}
}

// The most that a manifest may take, packed and unpacked.
const (
	maxPacked   = 900 << 10 // a message is at most 1 MiB
	maxUnpacked = 8 << 20
)

// errUntellable is why a device is this node's alone.
var errUntellable = errors.New("what it says of itself cannot be sent")

// packers are kept: one is far larger than what it packs.
var packers = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // it is a level
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
		return nil, fmt.Errorf("%w: it takes %d bytes, packed, and may take %d", errUntellable, b.Len(), maxPacked)
	}
	return b.Bytes(), nil
}

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
		return nil, fmt.Errorf("more than %d bytes", maxUnpacked)
	}
	m := &ferrule.Manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, err
	}
	m.Bound()
	is, err := m.Kind()
	if err != nil {
		return nil, err
	}
	if is != kind {
		return nil, fmt.Errorf("it is of another Kind, %s", is.Short())
	}
	return m, nil
}

// publishKinds writes the manifests that go with records, before the records. It
// returns those whose manifest is there, and why others are not.
func (b *Cluster) publishKinds(ctx context.Context, h *home, all []proposal) (ready []proposal, failed error) {
	b.publishing.Lock() // whoever needs the same ones waits for them
	defer b.publishing.Unlock()
	why := b.publishMissing(ctx, h, all)
	for _, p := range all {
		var err error
		if p.device != nil {
			err = why[p.device.Kind]
		}
		switch {
		case err == nil:
			ready = append(ready, p)
		case errors.Is(err, errUntellable):
			b.parts.Log.Warn("bus: a device cannot be told to other nodes", "device", p.id, "err", err)
			b.view.drop(p)
		default:
			failed = fmt.Errorf("what %s says of itself: %w", p.id, err)
			b.view.landed(p, outcome{err: err})
		}
	}
	return ready, failed
}

// publishMissing writes the manifests that are not there yet, many at once, and tells
// which ones could not be written.
func (b *Cluster) publishMissing(ctx context.Context, h *home, all []proposal) (why map[ferrule.Kind]error) {
	why = make(map[ferrule.Kind]error)
	for _, p := range all {
		if p.device != nil && !b.published[p.device.Kind] {
			why[p.device.Kind] = nil
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex // guards why and b.published
	gate := make(chan struct{}, publishedAtOnce)
	for _, kind := range slices.Collect(maps.Keys(why)) {
		gate <- struct{}{}
		wg.Go(func() {
			err := b.publishKind(ctx, h, kind)
			<-gate
			mu.Lock()
			defer mu.Unlock()
			why[kind], b.published[kind] = err, err == nil
		})
	}
	wg.Wait()
	return why
}

// publishedAtOnce is enough to hide the way to the server.
const publishedAtOnce = 64

func (b *Cluster) publishKind(ctx context.Context, h *home, kind ferrule.Kind) error {
	m, err := b.parts.Manifests.Manifest(kind)
	if err != nil { // it may have been told by another, or before
		_, there := h.kinds.Get(ctx, b.names.key(string(kind)))
		if errors.Is(there, jetstream.ErrKeyNotFound) {
			return fmt.Errorf("%w: %w", errUntellable, err)
		}
		return there
	}
	data, err := packManifest(m)
	if err != nil {
		return err
	}
	_, err = h.kinds.Create(ctx, b.names.key(string(kind)), data)
	if errors.Is(err, jetstream.ErrKeyExists) {
		return nil
	}
	return err
}
