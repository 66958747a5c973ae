package dock

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Some devices are found by announcements. Anybody can announce that a device is
// somewhere else, so for these devices:
//
//   - A session is not given up for an announcement while the endpoint in use accepts
//     connections (staysWhereTrusted).
//   - A device is greeted first where it was last trusted (greetWhereTrusted).
//   - At another endpoint, it must be of the same Kind as before. Otherwise it is pending
//     until its owner adopts it, or until it is back (checkEndpoint).

// staysWhereTrusted reports whether a connected device keeps its session although it is
// announced at another endpoint. If nothing accepts connections at its present endpoint,
// the session ends a moment later. It is called with mu held.
func (c *supervisor) staysWhereTrusted(s *transport.Sighting) bool {
	dev := c.slot.device.Load()
	if s.Announced == nil || dev.Trusted == nil || dev.Trust != ferrule.TrustAdopted {
		return false
	}
	if c.session == nil || c.checking { // a greeting ends by itself; else announcements could prevent every one
		return true
	}
	session, endpoint, done := c.session, dev.Trusted.Endpoint, c.done
	c.checking = c.dock.start(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			select {
			case <-done:
				cancel()
			case <-ctx.Done():
			}
		}()
		accepts := s.Announced.Accepts(ctx, endpoint)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.checking = false
		if !accepts && c.session == session {
			c.cancel()
		}
	})
	return true
}

// greetWhereTrusted greets a device at the endpoint at which it was last trusted, and at
// the announced one if it is not there any longer.
func (c *supervisor) greetWhereTrusted(ctx context.Context, s transport.Sighting) (protocol.Session, *ferrule.Manifest, string, error) {
	last := c.slot.device.Load().Trusted
	if s.Announced == nil || last == nil || last.Endpoint == "" {
		return c.negotiate(ctx, s)
	}
	there := s
	there.Open = func(ctx context.Context) (transport.Link, error) { return s.Announced.OpenAt(ctx, last.Endpoint) }
	session, manifest, name, err := c.negotiate(ctx, there)
	announced := s.Announced.Endpoints()
	switch {
	case err == nil && (slices.Contains(announced, last.Endpoint) || isOfKind(manifest, last.Kind)):
		return session, manifest, name, nil
	case err != nil && (ctx.Err() != nil || len(announced) == 1 && announced[0] == last.Endpoint):
		return nil, nil, "", err
	case err == nil: // its endpoint belongs to another device now
		c.mu.Lock()
		link := c.link
		c.mu.Unlock()
		link.Close()
	}
	return c.negotiate(ctx, s)
}

func isOfKind(m *ferrule.Manifest, kind ferrule.Kind) bool {
	m.Bound()
	is, err := m.Kind()
	return err == nil && is == kind
}

// movedNote is the prefix of the note on a device that moved and changed its Kind.
const movedNote = "moved from "

// checkEndpoint makes a device pending if it was trusted at another endpoint as another
// Kind. Otherwise, if it is adopted, the present endpoint is trusted from now on. Before
// and kept are earlier records of the device; both may be nil.
func (r *registry) checkEndpoint(s *transport.Sighting, dev, before, kept *ferrule.Device) {
	if s.Announced == nil {
		return
	}
	last, now := lastTrusted(before, kept), &ferrule.Contact{Endpoint: s.Reached(), Kind: dev.Says()}
	switch {
	case last != nil && last.Endpoint != now.Endpoint && last.Kind != now.Kind:
		dev.Trust, dev.Trusted = ferrule.TrustPending, last
		from := last.Endpoint
		if from == "" {
			from = "an unknown endpoint"
		}
		note := fmt.Sprintf("%s%s to %s and offers something else than before; adopt it only if that is right", movedNote, from, now.Endpoint)
		dev.Notes = append([]string{note}, dev.Notes...)
		r.log.Warn("device "+note, "device", dev.ID)
	case last != nil || dev.Trust == ferrule.TrustAdopted:
		dev.Trust, dev.Trusted = ferrule.TrustAdopted, now
	}
}

// lastTrusted returns where a device was last trusted, or nil. Another node does not tell
// where, but as which Kind.
func lastTrusted(before, kept *ferrule.Device) *ferrule.Contact {
	switch {
	case before != nil && before.Trusted != nil:
		return before.Trusted
	case kept != nil && kept.Trusted != nil:
		return kept.Trusted
	case before != nil && before.Kind != "" && before.Trust == ferrule.TrustAdopted && (before == kept || before.Vouched):
		return &ferrule.Contact{Kind: before.Says()}
	}
	return nil
}

// trustEndpoint trusts a device that its owner adopts where it is. At is nil if the device
// is not in sight.
func trustEndpoint(dev *ferrule.Device, at *slot) {
	dev.Notes = slices.DeleteFunc(slices.Clone(dev.Notes), func(note string) bool { return strings.HasPrefix(note, movedNote) })
	switch {
	case dev.Kind == "":
	case at != nil && at.sighting.Announced != nil:
		dev.Trusted = &ferrule.Contact{Endpoint: at.sighting.Reached(), Kind: dev.Says()}
	case dev.Trusted != nil:
		dev.Trusted = &ferrule.Contact{Kind: dev.Says()}
	}
}

// takeOver returns the record of a device that was adopted after an announcement, if its
// owner has now configured the endpoint at which it was trusted. It is one device, so the
// record moves to the new address. What is announced plays no part.
func (r *registry) takeOver(s *transport.Sighting, dev *ferrule.Device, m *ferrule.Manifest) (*ferrule.Device, bool) {
	if s.Announced != nil || !s.Adopted || s.Reached == nil {
		return nil, false
	}
	endpoint := s.Reached()
	all := r.store.Devices()
	i := slices.IndexFunc(all, func(old *ferrule.Device) bool {
		return old.Trusted != nil && old.Trust == ferrule.TrustAdopted && old.Trusted.Endpoint == endpoint && old.Says() == dev.Kind &&
			r.slots[old.Address] == nil && r.ids[old.ID] == old.Address
	})
	if i < 0 {
		return nil, false
	}
	old := *all[i]
	if old.Offered != "" { // while the accepted manifest is stored
		if _, err := r.compareKinds(old.Accepted, dev.Kind, m, r.store.Manifest); err != nil {
			r.log.Warn("comparing manifests failed", "device", old.ID, "err", err)
		}
	}
	r.removeID(old.ID)
	if err := r.store.dropPending(old.ID); err != nil {
		r.logNotStored(&old, err)
	}
	if s.Name != "" && s.Name != old.ID {
		old.Aliases = withAlias(old.Aliases, old.ID, s.Name)
	}
	old.Address, old.Trusted = s.Address, nil
	return &old, true
}
