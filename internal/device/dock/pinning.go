package dock

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/pinning"
)

// comparison is what is in use of a device that offers another Kind than its owner
// accepted.
type comparison struct {
	accepted, offered ferrule.Kind
	known             bool // the accepted manifest was read
	pinning.Usable
	kind, reference ferrule.Kind // of the manifest in use, and of the reference
}

// comparisons keeps the last ones: after an update of many devices, all have the same.
type comparisons struct {
	mu   sync.Mutex
	last []*comparison
}

// maxComparisons limits the memory that changing devices can take.
const maxComparisons = 8

func (c *comparisons) find(accepted, offered ferrule.Kind) *comparison {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, known := range c.last {
		if known.accepted == accepted && known.offered == offered {
			return known
		}
	}
	return nil
}

func (c *comparisons) add(one *comparison) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = append(c.last, one)
	c.last = c.last[max(0, len(c.last)-maxComparisons):]
}

// acceptedTime limits the time to fetch an accepted manifest from another node.
const acceptedTime = 5 * time.Second

// compareKinds compares what a device offers with what was accepted. Read returns the
// accepted manifest. If that fails, nothing is in use.
func (r *registry) compareKinds(accepted, offered ferrule.Kind, m *ferrule.Manifest, read func(ferrule.Kind) (*ferrule.Manifest, error)) (*comparison, error) {
	if c := r.comparisons.find(accepted, offered); c != nil {
		return c, nil
	}
	was, err := read(accepted)
	if err != nil {
		r.log.Warn("the accepted manifest "+accepted.Short()+" cannot be read, so nothing of it is in use", "err", err)
		was = nil
	}
	c := &comparison{accepted: accepted, offered: offered, known: was != nil, Usable: pinning.Compare(accepted, was, m)}
	c.reference = accepted
	if c.Reference != was {
		if c.reference, err = c.Reference.Kind(); err != nil {
			return nil, err
		}
	}
	if c.kind = c.reference; c.Manifest != c.Reference {
		if c.kind, err = c.Manifest.Kind(); err != nil {
			return nil, err
		}
	}
	if c.known {
		r.comparisons.add(c)
	}
	return c, nil
}

// prepare compares a manifest before the registry is locked, because it may take a while.
// The result is nil if there is nothing to compare.
func (r *registry) prepare(ctx context.Context, at *slot, dev *ferrule.Device, m *ferrule.Manifest) (*comparison, error) {
	r.mu.Lock()
	kept, _ := r.store.At(at.sighting.Address)
	before := r.lastKnown(r.chooseID(at.sighting, dev.Model, kept), at.sighting, kept)
	accepted, _ := acceptedBefore(kept, before)
	unpinned := r.unpinned(at.sighting)
	r.mu.Unlock()
	if accepted == "" || accepted == dev.Kind || unpinned {
		return nil, nil
	}
	return r.compareKinds(accepted, dev.Kind, m, func(kind ferrule.Kind) (*ferrule.Manifest, error) {
		was, err := r.store.Manifest(kind)
		if err != nil && r.remotes != nil {
			ctx, cancel := context.WithTimeout(ctx, acceptedTime)
			defer cancel()
			was, err = r.remotes.Manifest(ctx, kind)
		}
		return was, err
	})
}

// acceptedBefore returns the Kind that was accepted, from the record of this node and from
// the latest one, which may be another node's. The later decision counts, if a node of
// this tenant made it. Both may be nil.
func acceptedBefore(kept, latest *ferrule.Device) (ferrule.Kind, time.Time) {
	switch {
	case latest == nil || latest.Accepted == "":
		latest = kept
	case kept == nil || kept.Accepted == "":
		// A forged record makes nothing worse: without it, anything would be accepted.
	case !latest.Vouched || !latest.AcceptedAt.After(kept.AcceptedAt):
		latest = kept
	}
	if latest == nil {
		return "", time.Time{}
	}
	return latest.Accepted, latest.AcceptedAt
}

// unpinned reports whether changes of a device are accepted at once: it is plugged into
// this machine, and its owner has just flashed it.
func (r *registry) unpinned(s *transport.Sighting) bool { return s.Attached && !r.pinUSB }

// pin decides what of a device is in use. Dev has the Kind that the device offers, and gets
// the Kind in use. It returns the manifest in use, and those to store.
func (r *registry) pin(s *transport.Sighting, dev *ferrule.Device, m *ferrule.Manifest, kept, before *ferrule.Device, c *comparison) (*ferrule.Manifest, map[ferrule.Kind]*ferrule.Manifest) {
	dev.Accepted, dev.AcceptedAt = acceptedBefore(kept, before)
	if dev.Trust == ferrule.TrustPending {
		return m, nil // nobody can use it
	}
	whole := map[ferrule.Kind]*ferrule.Manifest{dev.Kind: m}
	switch {
	case dev.Accepted == dev.Kind:
		return m, whole
	case dev.Accepted == "":
		dev.Accepted = dev.Kind
		return m, whole
	case r.unpinned(s):
		r.log.Warn(fmt.Sprintf("device accepted with another Kind, because it is plugged into this machine: %s, before %s", dev.Kind.Short(), dev.Accepted.Short()), "device", dev.ID)
		dev.Accepted, dev.AcceptedAt = dev.Kind, time.Now()
		return m, whole
	}
	if c == nil || c.accepted != dev.Accepted || c.offered != dev.Kind {
		var err error
		if c, err = r.compareKinds(dev.Accepted, dev.Kind, m, r.store.Manifest); err != nil {
			c = &comparison{accepted: dev.Accepted, offered: dev.Kind, reference: dev.Accepted, Usable: pinning.Compare(dev.Accepted, nil, m)}
			c.kind, _ = c.Manifest.Kind() // it is empty, so this cannot fail
		}
	}
	if r.acceptDecided(dev, c) {
		return m, whole
	}
	return r.use(dev, m, c, before)
}

// use applies a comparison to a device.
func (r *registry) use(dev *ferrule.Device, m *ferrule.Manifest, c *comparison, before *ferrule.Device) (*ferrule.Manifest, map[ferrule.Kind]*ferrule.Manifest) {
	manifests := map[ferrule.Kind]*ferrule.Manifest{c.offered: m, c.kind: c.Manifest}
	if c.known {
		manifests[c.reference] = c.Reference
		dev.Model = c.Reference.Model
		if !pinning.PlainVersion(dev.Version) {
			dev.Version = c.Reference.Version
		}
	} else {
		dev.Model, dev.Version = "", ""
	}
	if c.Waiting > 0 {
		dev.Notes = nil // they may quote what waits
	}
	dev.Kind, dev.Offered, dev.Waiting = c.kind, c.offered, c.Waiting
	if c.reference != dev.Accepted {
		dev.Accepted, dev.AcceptedAt = c.reference, time.Now()
	}
	if before == nil || before.Offered != dev.Offered {
		text := fmt.Sprintf("device offers another Kind than its owner accepted: %s, accepted %s", dev.Offered.Short(), dev.Accepted.Short())
		if note := dev.WaitingNote(); note != "" {
			r.log.Warn(text+"; "+note, "device", dev.ID)
		} else {
			r.log.Info(text+"; nothing waits", "device", dev.ID)
		}
	}
	return c.Manifest, manifests
}

// SetPinUSB sets Config.PinUSB. It counts from the next change of a device on.
func (d *Dock) SetPinUSB(pin bool) {
	d.registry.mu.Lock()
	defer d.registry.mu.Unlock()
	d.registry.pinUSB = pin
}

// Changes returns what a device offers and its owner has not accepted. If since is not
// empty, it returns how the device differs from that Kind instead, which must be one that it
// had before: manifests of other devices are not shown.
func (d *Dock) Changes(id string, since ferrule.Kind) (pinning.Report, error) {
	if since != "" && !since.Valid() {
		return pinning.Report{}, ferrule.Errorf(ferrule.Invalid, "since must be a Kind of 64 hexadecimal digits, got %q", ferrule.Clean(string(since), ferrule.MaxWord))
	}
	r := d.registry
	r.mu.Lock()
	dev, err := r.decidable(id)
	r.mu.Unlock()
	if err != nil {
		return pinning.Report{}, err
	}
	report := pinning.Report{Device: dev.ID, Accepted: dev.Accepted, Offered: dev.Offered, Waiting: dev.Waiting, Changes: []pinning.Change{}}
	is, was := dev.Offered, dev.Accepted
	if since != "" {
		is, was, report.Since, report.Now = cmp.Or(dev.Offered, dev.Kind), since, since, cmp.Or(dev.Offered, dev.Kind)
	}
	if is == "" || is == was {
		return report, nil
	}
	offered, err := r.store.Manifest(is)
	if err != nil {
		return pinning.Report{}, notStored(dev, err)
	}
	var accepted *ferrule.Manifest
	err = os.ErrNotExist
	if slices.Contains(kindsOf(dev), was) {
		accepted, err = r.store.Manifest(was)
	}
	switch {
	case err != nil && since != "":
		accepted, report.Note = nil, "What it was before is no longer stored, so everything is shown as added."
	case err != nil:
		accepted, report.Note = nil, "What you accepted is no longer stored, so everything is shown as added."
	}
	report.Changes, report.Incomplete = pinning.Diff(accepted, offered)
	for i := range report.Changes {
		report.Changes[i].Waits = report.Changes[i].Waits && dev.Offered != ""
	}
	return report, nil
}

// notStored returns the error for a device whose offer cannot be read.
func notStored(dev *ferrule.Device, err error) error {
	return ferrule.Errorf(ferrule.Offline, "what %s offers cannot be read: %w", dev.ID, err).
		WithHint("to read it from the device, run `ferrule release %s --for 0s`", dev.ID)
}

// decidable returns a device of this node that may have changes to accept.
func (r *registry) decidable(id string) (*ferrule.Device, error) {
	id = r.current(id)
	if err := r.checkHeldHere(id); err != nil {
		return nil, err
	}
	dev, err := r.storedDevice(id)
	if err != nil {
		return nil, err
	}
	if at := r.slots[dev.Address]; at != nil {
		dev = at.device.Load()
	}
	if dev.Trust == ferrule.TrustPending {
		return nil, ferrule.Errorf(ferrule.Pending, "%s is not adopted", dev.ID).WithHint("to adopt it as it is, run `ferrule adopt %s`", dev.ID)
	}
	return dev, nil
}

// Accept accepts what a device offers, if its Kind begins with the given digits. The
// decision is on disk when it returns. It is also about all devices behind the same hub
// that offer the same change, now or later; the present ones are returned.
func (d *Dock) Accept(id string, kind ferrule.Kind) (accepted *ferrule.Device, others []string, err error) {
	r := d.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	dev, err := r.decidable(id)
	switch {
	case err != nil:
		return nil, nil, err
	case len(kind) < pinning.MinKind:
		return nil, nil, ferrule.Errorf(ferrule.Invalid, "a Kind must be given with at least %d digits", pinning.MinKind).WithHint("to see it, run `ferrule diff %s`", dev.ID)
	case dev.Offered == "" && strings.HasPrefix(string(dev.Kind), string(kind)):
		return dev, nil, nil // it is accepted
	case !strings.HasPrefix(string(dev.Offered), string(kind)):
		return nil, nil, ferrule.Errorf(ferrule.Invalid, "%s does not offer %s; it offers %s now. Nothing was accepted", dev.ID, kind.Short(), cmp.Or(dev.Offered, dev.Kind).Short()).
			WithHint("to see what has changed, run `ferrule diff %s`", dev.ID)
	}
	m, err := r.store.Manifest(dev.Offered)
	if err != nil {
		return nil, nil, notStored(dev, err)
	}
	if accepted, err = r.acceptOffer(dev, m, r.store.keepDurably); err != nil {
		return nil, nil, err
	}
	return accepted, r.acceptAlike(dev, m), nil
}

// acceptOffer accepts what a device offers: a manifest. It is called with mu held.
func (r *registry) acceptOffer(dev *ferrule.Device, m *ferrule.Manifest, store func(*ferrule.Device) error) (*ferrule.Device, error) {
	accepted := *dev
	accepted.Kind, accepted.Accepted, accepted.Offered, accepted.Waiting = dev.Offered, dev.Offered, "", 0
	accepted.Sensor = false // a person has decided
	accepted.AcceptedAt, accepted.Model, accepted.Version, accepted.Notes = time.Now(), m.Model, m.Version, m.Notes
	accepted.Changed, accepted.Previous = accepted.AcceptedAt, dev.Kind
	if err := store(&accepted); err != nil {
		return nil, ferrule.Errorf(ferrule.Internal, "nothing was accepted, because it cannot be stored: %w", err).
			WithHint("free space in the data directory, then try again")
	}
	r.effective[dev.ID] = r.overlays.Apply(accepted.Protocol, accepted.Kind, accepted.ID, m)
	if at := r.slots[dev.Address]; at != nil {
		r.publish(at, &accepted)
	} else {
		r.publishAbsent(&accepted)
	}
	r.log.Info(fmt.Sprintf("changes accepted: %s, before %s", accepted.Kind.Short(), dev.Accepted.Short()), "device", dev.ID)
	return &accepted, nil
}
