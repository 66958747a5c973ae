package dock

import (
	"context"
	"fmt"
	"time"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/dialect"
	"github.com/ferrulehq/ferrule/wire"
)

// admit brings a device from sight to the fleet: open, greet, bound, Kind, ID,
// trust. From then on calls reach it.
func (b *berth) admit(ctx context.Context, s wire.Sighting) (dialect.Session, error) {
	select {
	case b.dock.greetings <- struct{}{}:
		defer func() { <-b.dock.greetings }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	session, manifest, spoken, err := b.speak(ctx, s)
	if err != nil {
		return nil, err
	}
	manifest.Bound()
	kind, err := manifest.Kind()
	if err != nil {
		return nil, err
	}
	dev := &ferrule.Device{
		Address: s.Address, Medium: s.Medium, Dialect: spoken,
		Kind: kind, Model: manifest.Model, Version: manifest.Version,
		State: ferrule.StateOnline, Since: time.Now(), Notes: manifest.Notes,
	}
	b.settle(dev, manifest, session, s)
	return session, nil
}

// settle gives a greeted device its ID, compares it with what was there before,
// and hands it to the fleet.
func (b *berth) settle(dev *ferrule.Device, manifest *ferrule.Manifest, session dialect.Session, s wire.Sighting) {
	d := b.dock
	d.naming.Lock()
	defer d.naming.Unlock()
	dev.ID = d.Memory.Name(s.Address, s.Name, dev.Model)
	if other, ok := d.Memory.Get(dev.ID); ok && other.Address != s.Address {
		d.displace(other)
	}
	before, known := d.Memory.At(s.Address)
	if known {
		b.compare(dev, manifest, before)
		dev.Labels = before.Labels
		if before.ID != dev.ID { // the owner has named it since
			d.Fleet.Remove(before.ID)
			d.kinds.forget(before.ID)
		}
	}
	dev.Trust = trust(&s, before)

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.device != nil {
		d.rename(b, b.device.ID, dev.ID)
		if b.device.ID != dev.ID { // it was expected under another
			d.Fleet.Remove(b.device.ID)
		}
	} else {
		d.rename(b, "", dev.ID)
	}
	d.kinds.use(dev, manifest)
	b.session = session
	b.publish(dev, manifest)
	close(b.arrival)
	d.Log.Info("device online", "device", dev.ID, "model", dev.Model, "version", dev.Version,
		"kind", dev.Kind.Short(), "trust", dev.Trust, "tools", len(manifest.Tools))
}

// trust tells whether a device is adopted: because its owner asked for it, or
// because they have adopted it before.
func trust(s *wire.Sighting, before *ferrule.Device) ferrule.Trust {
	switch {
	case s.Adopted:
		return ferrule.TrustAdopted
	case before != nil:
		return before.Trust
	}
	return ferrule.TrustHeld
}

// compare notes what has changed about a device since it was last seen.
func (b *berth) compare(dev *ferrule.Device, manifest *ferrule.Manifest, before *ferrule.Device) {
	dev.Changed, dev.Previous = before.Changed, before.Previous
	if before.Kind == dev.Kind {
		return
	}
	dev.Changed, dev.Previous = time.Now(), before.Kind
	b.dock.Log.Warn("device has become another kind", "device", dev.ID, "kind", dev.Kind.Short(), "previous", before.Kind.Short())
	if old, err := b.dock.Memory.Manifest(before.Kind); err == nil {
		if note := shrunken(old, manifest); note != "" {
			dev.Notes = append(dev.Notes, note)
		}
	}
}

// shrunken tells of a device that offers less than it did and says that it is
// the same: a list that was cut without a trace looks so.
func shrunken(old, now *ferrule.Manifest) string {
	if now.Model != old.Model || now.Version != old.Version ||
		len(now.Tools) > len(old.Tools) || len(now.Pins) > len(old.Pins) ||
		len(now.Tools)+len(now.Pins) == len(old.Tools)+len(old.Pins) {
		return ""
	}
	for _, t := range now.Tools {
		if old.Tool(t.Name) == nil {
			return ""
		}
	}
	return fmt.Sprintf("its list has shrunk from %d tools and %d pins to %d and %d, and its version is the same: the board may be short of memory",
		len(old.Tools), len(old.Pins), len(now.Tools), len(now.Pins))
}
