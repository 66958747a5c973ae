package dock

import (
	"context"
	"fmt"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// admit connects a device and puts it into the fleet: it opens the link, greets,
// bounds the manifest, and determines Kind, ID and trust. Then calls can reach it.
func (c *supervisor) admit(ctx context.Context, s transport.Sighting) (protocol.Session, error) {
	d := c.dock
	select {
	case d.greetings <- struct{}{}:
		defer func() { <-d.greetings }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	session, manifest, name, err := c.greetWhereTrusted(ctx, s)
	if err != nil {
		return nil, err
	}
	dev, shared, err := c.describe(s, name, manifest)
	if err != nil {
		return nil, err
	}
	c.forwardNotifications(session)
	if changer, ok := session.(protocol.Changer); ok {
		changer.Changed(func(m *ferrule.Manifest) { c.updateManifest(session, s, name, m) })
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link.Info().Restarts {
		dev.Restarted = dev.Since
	}
	d.registry.admit(c.slot, dev, manifest, shared)
	c.session, c.began = session, dev.Since
	close(c.connected)
	d.parts.Log.Info(fmt.Sprintf("device online: %s %s, %s, %d tools", dev.Model, dev.Version, dev.Trust, len(manifest.Tools)), "device", dev.ID)
	return session, nil
}

// describe returns the device and the shared effective manifest for a manifest.
func (c *supervisor) describe(s transport.Sighting, name string, manifest *ferrule.Manifest) (dev *ferrule.Device, shared *ferrule.Manifest, err error) {
	manifest.Bound()
	kind, err := manifest.Kind()
	if err != nil {
		return nil, nil, err
	}
	return &ferrule.Device{
		Address: s.Address, Local: s.Local, Transport: s.Transport, Protocol: name,
		Kind: kind, Model: manifest.Model, Version: manifest.Version,
		State: ferrule.StateOnline, Since: time.Now(), Notes: manifest.Notes,
	}, c.dock.parts.Overlays.Apply(name, kind, "", manifest), nil
}

// updateManifest handles a new manifest of a device that stays connected.
func (c *supervisor) updateManifest(session protocol.Session, s transport.Sighting, name string, manifest *ferrule.Manifest) {
	dev, shared, err := c.describe(s, name, manifest)
	if err != nil {
		c.observe(transport.Frame{Direction: transport.Remark, Note: "new manifest is unusable: " + err.Error()})
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.slot.device.Load()
	if c.session != session || was.Kind == dev.Kind {
		return // the session has ended, or nothing changed
	}
	dev.Since, dev.Restarted = was.Since, was.Restarted
	c.dock.registry.admit(c.slot, dev, manifest, shared)
	c.dock.parts.Log.Info(fmt.Sprintf("device manifest changed: %d tools", len(manifest.Tools)), "device", dev.ID)
}
