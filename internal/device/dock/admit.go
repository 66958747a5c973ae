package dock

import (
	"context"
	"fmt"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// admit brings a device from sight to the fleet: open, greet, bound, Kind, ID,
// trust. From then on calls reach it.
func (b *berth) admit(ctx context.Context, s transport.Sighting) (protocol.Session, error) {
	d := b.dock
	select {
	case d.greetings <- struct{}{}:
		defer func() { <-d.greetings }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	session, manifest, spoken, err := b.speak(ctx, s)
	if err != nil {
		return nil, err
	}
	dev, shared, err := b.describe(s, spoken, manifest)
	if err != nil {
		return nil, err
	}
	b.heed(session)
	if c, ok := session.(protocol.Changer); ok {
		c.Changed(func(m *ferrule.Manifest) { b.renew(session, s, spoken, m) })
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.link.Info().Restarts {
		dev.Restarted = dev.Since
	}
	d.roster.admit(b.slot, dev, manifest, shared)
	b.session, b.began = session, dev.Since
	close(b.arrival)
	d.parts.Log.Info(fmt.Sprintf("device online: %s %s, %s, %d tools", dev.Model, dev.Version, dev.Trust, len(manifest.Tools)), "device", dev.ID)
	return session, nil
}

// describe makes a device of what it says of itself.
func (b *berth) describe(s transport.Sighting, spoken string, manifest *ferrule.Manifest) (dev *ferrule.Device, shared *ferrule.Manifest, err error) {
	manifest.Bound()
	kind, err := manifest.Kind()
	if err != nil {
		return nil, nil, err
	}
	return &ferrule.Device{
		Address: s.Address, Local: s.Local, Transport: s.Transport, Protocol: spoken,
		Kind: kind, Model: manifest.Model, Version: manifest.Version,
		State: ferrule.StateOnline, Since: time.Now(), Notes: manifest.Notes,
	}, b.dock.parts.Overlays.Apply(spoken, kind, "", manifest), nil
}

// renew takes in what a device says of itself now, while it stays connected.
func (b *berth) renew(session protocol.Session, s transport.Sighting, spoken string, manifest *ferrule.Manifest) {
	dev, shared, err := b.describe(s, spoken, manifest)
	if err != nil {
		b.observe(transport.Frame{Way: transport.Aside, Note: "what it says of itself now cannot be used: " + err.Error()})
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.slot.device.Load()
	if b.session != session || was.Kind == dev.Kind {
		return // it has ended, or there is nothing new
	}
	dev.Since, dev.Restarted = was.Since, was.Restarted
	b.dock.roster.admit(b.slot, dev, manifest, shared)
	b.dock.parts.Log.Info(fmt.Sprintf("device says something else of itself: %d tools", len(manifest.Tools)), "device", dev.ID)
}
