package dock

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// admit connects a device and puts it into the fleet: it opens the link, greets,
// bounds the manifest, and determines Kind, ID and trust. Then calls can reach it.
func (c *supervisor) admit(ctx context.Context, s transport.Sighting) (protocol.Session, error) {
	d := c.dock
	greeting, leave, err := d.enterGreeting(ctx, s, c.isStranger(s))
	if err != nil {
		return nil, err
	}
	defer leave()
	session, manifest, name, err := c.greetWhereTrusted(greeting, s)
	if err != nil {
		return nil, err
	}
	dev, compared, err := c.describe(ctx, s, name, manifest)
	if err != nil {
		return nil, err
	}
	c.forwardNotifications(session)
	c.forwardReports(session)
	if changer, ok := session.(protocol.Changer); ok {
		changer.Changed(func(m *ferrule.Manifest) { c.updateManifest(ctx, session, s, name, m) }, c.checkCurrent)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err // the peer is another instance now, or gone
	}
	if c.link.Info().Restarts {
		dev.Restarted = dev.Since
	}
	d.registry.admit(c.slot, dev, manifest, compared)
	c.session, c.began = session, dev.Since
	close(c.connected)
	d.news.notify()
	d.parts.Log.Info("device online: "+summary(dev, len(manifest.Tools)), "device", dev.ID)
	return session, nil
}

// summary describes a device for the log. Many have no model and no version.
func summary(dev *ferrule.Device, tools int) string {
	about := strings.TrimSpace(dev.Model + " " + dev.Version)
	if about != "" {
		about += ", "
	}
	return fmt.Sprintf("%s%s, tools: %d", about, dev.Trust, tools)
}

// isStranger reports whether the owner has not accepted the peer, as far as is known
// before it is greeted.
func (c *supervisor) isStranger(s transport.Sighting) bool {
	return !s.Adopted && !s.Sensor && c.slot.device.Load().Trust == ferrule.TrustPending
}

// enterGreeting waits until a peer may be greeted. Strangers wait for each other, and
// nobody else waits for them. A stranger waits a second time if its manifest turns out
// to be large.
func (d *Dock) enterGreeting(ctx context.Context, s transport.Sighting, stranger bool) (greeting context.Context, leave func(), err error) {
	if !stranger {
		leave, err = enter(ctx, d.greetings, 0)
		return ctx, leave, err
	}
	slots := d.foundStrangers
	if s.Inbound {
		slots = d.strangers
	}
	leaveFirst, err := enter(ctx, slots, strangerTime)
	if err != nil {
		return nil, nil, err
	}
	var leaveLarge func()
	greeting = protocol.WithPace(ctx, func(bytes int) (err error) {
		if bytes > maxPendingManifest && leaveLarge == nil {
			leaveLarge, err = enter(ctx, d.largeStrangers, strangerTime)
		}
		return err
	})
	return greeting, func() {
		leaveFirst()
		if leaveLarge != nil {
			leaveLarge()
		}
	}, nil
}

// enter takes a slot until leave is called, or until a time has passed unless it is 0.
func enter(ctx context.Context, slots chan struct{}, limit time.Duration) (leave func(), err error) {
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	leave = sync.OnceFunc(func() { <-slots })
	if limit > 0 {
		slow := time.AfterFunc(limit, leave)
		once := leave
		leave = func() { slow.Stop(); once() }
	}
	return leave, nil
}

// describe returns the device for a manifest, and how it differs from what was accepted.
func (c *supervisor) describe(ctx context.Context, s transport.Sighting, name string, manifest *ferrule.Manifest) (*ferrule.Device, *comparison, error) {
	stranger := c.isStranger(s)
	if stranger { // one at a time: this takes many times the memory of the manifest
		c.dock.reading.Lock()
		defer c.dock.reading.Unlock()
	}
	manifest.Bound()
	kind, err := manifest.Kind()
	if err != nil {
		return nil, nil, err
	}
	dev := &ferrule.Device{
		Address: s.Address, Local: s.Local, Hub: s.Hub, Transport: s.Transport, Protocol: name, Sensor: s.Sensor,
		Kind: kind, Model: manifest.Model, Version: manifest.Version,
		State: ferrule.StateOnline, Since: time.Now(), Notes: manifest.Notes,
	}
	compared, err := c.dock.registry.prepare(ctx, c.slot, dev, manifest)
	if err != nil || stranger {
		return dev, compared, err
	}
	if compared != nil {
		kind, manifest = compared.kind, compared.Manifest
	}
	c.dock.parts.Overlays.Apply(name, kind, "", manifest) // into its cache, before the registry is locked
	return dev, compared, nil
}

// updateManifest handles a new manifest of a device that stays connected. If it is
// unusable, the session ends: the device is no longer what the old manifest says.
func (c *supervisor) updateManifest(ctx context.Context, session protocol.Session, s transport.Sighting, name string, manifest *ferrule.Manifest) {
	dev, compared, err := c.describe(ctx, s, name, manifest)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		why := fmt.Errorf("its new manifest is unusable: %w", err)
		c.observe(transport.Frame{Direction: transport.Remark, Note: why.Error()})
		if c.session == session {
			c.session, c.connected = nil, make(chan struct{})
			c.offline(why)
			c.reconnect(why)
		}
		return
	}
	was := c.slot.device.Load()
	if c.session != session || was.Says() == dev.Kind {
		return // the session has ended, or nothing changed
	}
	dev.Since, dev.Restarted = was.Since, was.Restarted
	c.dock.registry.admit(c.slot, dev, manifest, compared)
	c.dock.parts.Log.Info(fmt.Sprintf("device manifest changed: %d tools", len(manifest.Tools)), "device", dev.ID)
}
