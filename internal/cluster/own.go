package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// intake takes in what the fleet tells of this node's own devices, which it does
// with its lock held, until it can be looked at.
type intake struct {
	mu      sync.Mutex
	changes []change
	said    int // how many of them are what devices said
	wake    func()
}

// maxSaid is how many things that devices said wait to be looked at, and how many wait
// to be brought to where all nodes can read them: devices that talk all the time do not
// keep anybody from hearing that one has gone.
const maxSaid = 1024

// change is news of an own device, which is nil if the device is gone; or what it has
// said.
type change struct {
	id     string
	device *ferrule.Device
	laid   *ferrule.Manifest
	said   *ferrule.Event
}

// Put implements ferrule.Follower.
func (i *intake) Put(dev *ferrule.Device, laid *ferrule.Manifest) {
	i.add(change{id: dev.ID, device: dev, laid: laid})
}

// Remove implements ferrule.Follower.
func (i *intake) Remove(id string) { i.add(change{id: id}) }

func (i *intake) add(c change) {
	if ferrule.CheckID(c.id) != nil {
		return // it has yet to be reached: its address stands for its name
	}
	i.mu.Lock()
	i.changes = append(i.changes, c)
	i.mu.Unlock()
	i.wake()
}

// say adds what a device said, in its turn. It is false if there is too much of that.
func (i *intake) say(e ferrule.Event) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.said >= maxSaid {
		return false
	}
	i.said++
	i.changes = append(i.changes, change{id: e.Device, said: &e})
	i.wake()
	return true
}

func (i *intake) take() []change {
	i.mu.Lock()
	defer i.mu.Unlock()
	changes := i.changes
	i.changes, i.said = nil, 0
	return changes
}

// length is how many changes wait to be taken in.
func (i *intake) length() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.changes) - i.said
}

// settle takes in changes of own devices, and returns the events that they are.
func (v *view) settle(from *intake) (events []ferrule.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range from.take() {
		if c.said != nil {
			events = append(events, *c.said)
			continue
		}
		h := v.own[c.id]
		if h == nil {
			h = &holding{}
			v.own[c.id] = h
		}
		events = append(events, eventsOf(h.device, c)...)
		if hello(h.device, c.device) {
			h.claim = true
		}
		h.device, h.laid = c.device, c.laid
		v.dirty[c.id] = true
	}
	return events
}

func online(dev *ferrule.Device) bool { return dev != nil && dev.State == ferrule.StateOnline }

// hello tells whether a device has come, or come anew.
func hello(before, now *ferrule.Device) bool {
	return online(now) && (!online(before) || !before.Since.Equal(now.Since))
}

// proposal is a write, and what it is for.
type proposal struct {
	write
	device *ferrule.Device // as it will be in the registry; nil to remove it
	hash   uint64
}

var seed = maphash.MakeSeed()

// propose plans the writes of some dirty records. None are planned before the
// registry is known, and none of a record that is being written: what comes of that
// is to be known first.
func (v *view) propose(most int) []proposal {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.synced {
		return nil
	}
	var all []proposal
	for id := range v.dirty {
		if len(all) == most {
			break
		}
		if _, busy := v.writing[id]; busy {
			continue
		}
		delete(v.dirty, id)
		if p, ok := v.plan(id); ok {
			all = append(all, p)
			v.writing[id] = p
		}
	}
	return all
}

// waiting counts the own records that are not in the registry yet, as far as is
// known.
func (v *view) waiting(from *intake) int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return from.length() + len(v.dirty) + len(v.writing)
}

// plan decides what is to be written of a device, if anything.
func (v *view) plan(id string) (proposal, bool) {
	h, now := v.own[id], v.records[id]
	r := now.device
	theirs := r != nil && r.Node != v.self
	switch {
	case h == nil:
		if !online(r) || theirs {
			return proposal{}, false
		}
		gone := *r
		gone.State, gone.Since, gone.Reason = ferrule.StateOffline, time.Now(), "its node no longer knows it"
		return v.proposal(&holding{}, id, &gone, gone.Epoch, now.revision)
	case h.device == nil:
		if r == nil || theirs {
			delete(v.own, id)
			return proposal{}, false
		}
		return proposal{write: write{id: id, revision: now.revision}}, true
	case h.device.Kind == "":
		return proposal{}, false // it was never reached
	case r != nil && !r.SameHardware(h.device): // another device has that name
		if h.epoch, h.claim = 0, true; !theirs {
			break // this node's own, until it was given to another
		}
		return proposal{}, false
	}
	epoch := h.epoch
	switch {
	case online(h.device) && (r == nil || h.epoch == 0 || r.Epoch != h.epoch):
		if theirs && !h.claim && h.epoch <= r.Epoch {
			return proposal{}, false // it was taken
		}
		epoch = max(h.epoch, epochOf(r)+1) // a claim that did not get there is made again
	case !online(h.device) && theirs:
		return proposal{}, false
	case !online(h.device):
		epoch = max(h.epoch, epochOf(r))
	}
	return v.proposal(h, id, h.device, epoch, now.revision)
}

func epochOf(dev *ferrule.Device) uint64 {
	if dev == nil {
		return 0
	}
	return dev.Epoch
}

// proposal writes a device down under an epoch, unless it stands so already.
func (v *view) proposal(h *holding, id string, dev *ferrule.Device, epoch, revision uint64) (proposal, bool) {
	r := recordOf(dev, epoch)
	r.Node = v.self
	data, err := json.Marshal(&r)
	if err != nil || len(data) > maxRecord {
		return proposal{}, false // what nobody could read is not written
	}
	hash := maphash.Bytes(seed, data)
	if hash == h.wrote && revision == h.at {
		return proposal{}, false
	}
	if online(dev) {
		h.epoch = epoch
	}
	written := *dev
	written.Node, written.Epoch = v.self, epoch
	return proposal{write{id, data, revision}, &written, hash}, true
}

// landed takes in what became of a write. Stale ones have to be read anew.
func (v *view) landed(p proposal, o outcome) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.writing, p.id)
	h := v.own[p.id]
	if o.err != nil {
		if h != nil {
			h.wrote = 0
		}
		v.dirty[p.id] = true
		return
	}
	if h != nil {
		h.wrote, h.at = p.hash, o.revision
		if online(p.device) && h.epoch == p.device.Epoch {
			h.claim = false
		}
		if p.device == nil && h.device == nil {
			delete(v.own, p.id)
		}
	}
	if now := v.records[p.id]; o.revision > now.revision {
		v.records[p.id] = entry{p.device, o.revision}
		v.show(p.id)
	}
}

// drop gives up a write that will never be.
func (v *view) drop(p proposal) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.writing, p.id)
}

// The pace of writing.
const (
	writeBatch = 2048
	writers    = 4 // batches that are on their way at once
	// mostPending is more than that: a library that has to wait for room gives up
	// after a moment.
	mostPending = 2 * writers * writeBatch
	writePause  = 250 * time.Millisecond // after a failure
	writeTime   = 5 * time.Second
)

// digest takes in what has changed here, and passes on what has changed elsewhere,
// until ctx ends.
func (b *Cluster) digest(ctx context.Context) {
	for {
		select {
		case <-b.view.news:
		case <-ctx.Done():
			return
		}
		for _, e := range b.view.settle(b.intake) {
			b.happened(e)
		}
		for _, id := range b.view.takeMoved() {
			b.parts.Moved(id)
		}
		select {
		case b.work <- struct{}{}:
		default:
		}
	}
}

// keepOwn writes the records of own devices as they change, until ctx ends, or the
// engine in this process is beyond help.
func (b *Cluster) keepOwn(ctx context.Context, e *engine, h *home) error {
	for failures := 0; ; {
		err := b.writeAll(ctx, h)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			if failures++; failures > 1 && b.cfg.alone() && b.stuck(err) {
				return errStuck
			}
			b.say(writing, "records of devices cannot be written: "+b.because(e, err).Error())
			sleep(ctx, writePause)
			continue
		case failures > 0:
			failures = 0
			b.say(writing, "")
		}
		select {
		case <-b.work:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// errStuck is why an engine in this process is started anew: once its disk was full
// it does not write any more, even if there is room again.
var errStuck = errors.New("NATS does not write to its store any more")

// stuck tells whether an engine in this process does not write although it could. One
// that was given too little room says so.
func (b *Cluster) stuck(err error) bool { return !storeFull(err) && b.disk() == nil }

// Codes of a server's that the library has no names for.
const (
	codeNoResources    = 10023
	codeNotLastSubject = 10164
)

// storeFull tells whether a server says that it may not store more.
func storeFull(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == codeNoResources
}

// disk tells why nothing can be written to the disk of an engine in this process.
func (b *Cluster) disk() error {
	file, err := os.CreateTemp(b.parts.Dir, "probe-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(make([]byte, 256<<10))
	return errors.Join(err, file.Sync(), file.Close())
}

// because is why something was not written or read, in words that help: an engine
// whose disk is full just does not answer, and a hub that is away neither.
func (b *Cluster) because(e *engine, err error) error {
	if away := e.away(); away != nil {
		return fmt.Errorf("%s: %w; it is tried again", b.servers(), away)
	}
	if b.cfg.Mode == Leaf && errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("the hub at %s does not answer, or %q is not its JetStream domain; it is tried again", b.servers(), b.cfg.Domain)
	}
	if !b.cfg.alone() {
		return err
	}
	if full := b.disk(); full != nil {
		return fmt.Errorf("the disk of the data directory does not take them: %w", full)
	}
	if storeFull(err) {
		return fmt.Errorf("the %d MiB that it may store are full; `store` under `bus` in the config allows more: %w", b.cfg.Store>>20, err)
	}
	return err
}

// servers names the servers, without what is secret of their addresses.
func (b *Cluster) servers() string {
	if b.cfg.alone() {
		return "the engine in this process"
	}
	var all []string
	for _, s := range b.cfg.Servers {
		if u, err := url.Parse(s); err == nil {
			all = append(all, u.Scheme+"://"+u.Host)
		}
	}
	return strings.Join(all, ", ")
}

// writeAll writes all records that have to be, several batches at once, until one of
// them fails.
func (b *Cluster) writeAll(ctx context.Context, h *home) error {
	errs := make(chan error, writers)
	for range writers {
		go func() {
			more, err := true, error(nil)
			for more && err == nil && ctx.Err() == nil {
				more, err = b.writeSome(ctx, h)
			}
			errs <- err
		}()
	}
	var failed error
	for range writers {
		if err := <-errs; err != nil {
			failed = err
		}
	}
	return failed
}

// writeSome writes some records, and tells whether there may be more.
func (b *Cluster) writeSome(ctx context.Context, h *home) (more bool, failed error) {
	all := b.view.propose(writeBatch)
	if len(all) == 0 {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	all, failed = b.publishKinds(ctx, h, all)
	writes := make([]write, len(all))
	for i, p := range all {
		writes[i] = p.write
	}
	blind := false
	for i, o := range h.registry.put(ctx, writes) {
		if errors.Is(o.err, errStale) {
			e, err := h.registry.get(ctx, all[i].id)
			if err == nil {
				b.view.update(all[i].id, e)
			}
			blind = blind || err != nil || e.revision == all[i].revision
		} else if o.err != nil {
			failed = o.err
		}
		b.view.landed(all[i], o)
	}
	if blind && failed == nil {
		sleep(ctx, writePause) // what was written instead is yet to be seen
	}
	return true, failed
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
