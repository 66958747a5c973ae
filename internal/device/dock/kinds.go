package dock

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Behind a hub there may be hundreds of devices of one Kind. One decision is about all of
// them: those that are known, and those that are found later.

// kindDecision is a decision about all devices of a Kind behind a hub.
type kindDecision struct {
	Hub  string       `json:"hub"`
	Kind ferrule.Kind `json:"kind"`
	// From is the accepted Kind of a device that offers Kind now. It is empty if devices
	// of Kind are adopted.
	From ferrule.Kind `json:"from,omitempty"`
	// Undone reports that the decision no longer counts.
	Undone bool `json:"undone,omitempty"`
}

// decide records a decision. It is on disk when it returns without an error.
func (m *Store) decide(d kindDecision) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.decisions[d.key()]
	m.replayDecision(d)
	err := m.write(storeLine{Decision: &d})
	if err == nil {
		err = m.file.Sync()
	}
	if err != nil {
		delete(m.decisions, d.key())
		if before {
			m.decisions[d.key()] = true
		}
		m.torn = true // the next write replaces the file, without this line
		return fmt.Errorf("device store: %w", err)
	}
	return nil
}

// key returns the decision without what may change about it.
func (d kindDecision) key() kindDecision { return kindDecision{Hub: d.Hub, Kind: d.Kind, From: d.From} }

// replayDecision applies a decision from the log.
func (m *Store) replayDecision(d kindDecision) {
	if d.Undone {
		delete(m.decisions, d.key())
		return
	}
	m.decisions[d.key()] = true
}

// decided reports whether the owner made a decision: to adopt devices of a Kind, or to
// accept a change from one Kind to another.
func (m *Store) decided(hub string, from, kind ferrule.Kind) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return hub != "" && m.decisions[kindDecision{Hub: hub, Kind: kind, From: from}]
}

// AdoptKind adopts a device and all others of its Kind behind the same hub, also those that
// are found later. It returns the others that are known. The decision is on disk when it
// returns.
func (d *Dock) AdoptKind(id string) (others []string, err error) {
	dev, err := d.registry.kindOf(id)
	if err != nil {
		return nil, err
	}
	if err := d.Adopt(dev.ID); err != nil {
		return nil, err
	}
	if err := d.registry.store.decide(kindDecision{Hub: dev.Hub, Kind: decidedKind(dev)}); err != nil {
		return nil, ferrule.Errorf(ferrule.Internal, "only %s was adopted, because the decision about its Kind cannot be stored: %w", dev.ID, err).
			WithHint("free space in the data directory, then try again")
	}
	var errs []error
	for _, other := range d.registry.alike(dev) {
		if other.Trust != ferrule.TrustPending || other.ID == dev.ID {
			continue
		}
		if err := d.Adopt(other.ID); err != nil {
			errs = append(errs, err)
			continue
		}
		others = append(others, other.ID)
	}
	return others, errors.Join(errs...)
}

// ForgetKind undoes AdoptKind, and forgets a device and all others of its Kind behind the
// same hub. It returns the others.
func (d *Dock) ForgetKind(id string) (others []string, err error) {
	dev, err := d.registry.kindOf(id)
	if err != nil {
		return nil, err
	}
	if err := d.registry.store.decide(kindDecision{Hub: dev.Hub, Kind: decidedKind(dev), Undone: true}); err != nil {
		return nil, ferrule.Errorf(ferrule.Internal, "nothing was forgotten, because that cannot be stored: %w", err).
			WithHint("free space in the data directory, then try again")
	}
	var errs []error
	for _, other := range d.registry.alike(dev) {
		if err := d.Forget(other.ID); err != nil {
			errs = append(errs, err)
		} else if other.ID != dev.ID {
			others = append(others, other.ID)
		}
	}
	return others, errors.Join(errs...)
}

// AdoptsKind reports whether a device would be adopted again if it were forgotten, because
// its Kind was adopted.
func (d *Dock) AdoptsKind(id string) bool {
	dev, err := d.registry.kindOf(id)
	return err == nil && d.registry.store.decided(dev.Hub, "", decidedKind(dev))
}

// kindOf returns a device behind a hub whose Kind is known.
func (r *registry) kindOf(id string) (*ferrule.Device, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	dev, err := r.storedDevice(r.current(id))
	switch {
	case err != nil:
		return nil, err
	case dev.Hub == "":
		return nil, ferrule.Errorf(ferrule.Invalid, "%s is not behind a broker or a Home Assistant, so its Kind cannot be decided on", dev.ID).WithHint("leave out --kind")
	case dev.Kind == "":
		return nil, ferrule.Errorf(ferrule.Invalid, "the Kind of %s is not known before it is connected", dev.ID).WithHint("leave out --kind")
	}
	return dev, nil
}

// alike returns the stored devices that have the Kind of a device and are behind its hub,
// itself included.
func (r *registry) alike(dev *ferrule.Device) []*ferrule.Device {
	return slices.DeleteFunc(r.store.Devices(), func(other *ferrule.Device) bool {
		return other.Hub != dev.Hub || decidedKind(other) != decidedKind(dev)
	})
}

// decidedKind returns the Kind of a device that a decision is about: what its owner
// accepted, or what it says if it is pending.
func decidedKind(dev *ferrule.Device) ferrule.Kind {
	if dev.Trust == ferrule.TrustPending {
		return dev.Kind
	}
	return cmp.Or(dev.Accepted, dev.Kind)
}

// adoptKnown adopts a device that is being admitted, if its owner adopted its Kind.
func (r *registry) adoptKnown(dev *ferrule.Device) {
	if dev.Trust != ferrule.TrustPending && !dev.Sensor || !r.store.decided(dev.Hub, "", dev.Kind) {
		return
	}
	dev.Trust, dev.Sensor = ferrule.TrustAdopted, false
	r.log.Info("device adopted, because its owner adopted its Kind "+dev.Kind.Short()+" on "+dev.Hub, "device", dev.ID)
}

// acceptAlike accepts for all devices behind a hub what was accepted for one of them. Before
// is that one as it was. It returns the others. It is called with mu held.
func (r *registry) acceptAlike(before *ferrule.Device, m *ferrule.Manifest) (others []string) {
	if before.Hub == "" {
		return nil
	}
	decisions := []kindDecision{{Hub: before.Hub, Kind: before.Offered, From: before.Accepted}}
	if r.store.decided(before.Hub, "", before.Accepted) { // a new device has the new Kind
		decisions = append(decisions, kindDecision{Hub: before.Hub, Kind: before.Offered})
	}
	for _, d := range decisions {
		if err := r.store.decide(d); err != nil {
			r.log.Warn("the changes are accepted for one device only, because the decision cannot be stored", "device", before.ID, "err", err)
			return nil
		}
	}
	for _, other := range r.store.Devices() {
		if at := r.slots[other.Address]; at != nil {
			other = at.device.Load()
		}
		if other.ID == before.ID || other.Hub != before.Hub || other.Offered != before.Offered || other.Accepted != before.Accepted || other.Trust == ferrule.TrustPending {
			continue
		}
		if _, err := r.acceptOffer(other, m, r.storeSoon); err != nil {
			r.log.Warn("changes not accepted", "device", other.ID, "err", err)
			continue
		}
		others = append(others, other.ID)
	}
	return others
}

// storeSoon stores a device without waiting for the disk: if that is lost, the decision is
// not, and the device is accepted again.
func (r *registry) storeSoon(dev *ferrule.Device) error { return r.store.Keep(dev, nil) }

// acceptDecided accepts what a device offers, if its owner accepted that change for another
// device behind its hub. It reports whether it did.
func (r *registry) acceptDecided(dev *ferrule.Device, c *comparison) bool {
	if !r.store.decided(dev.Hub, c.reference, c.offered) {
		return false
	}
	r.log.Info(fmt.Sprintf("changes accepted, because they were accepted for another device on %s: %s, before %s", dev.Hub, c.offered.Short(), c.reference.Short()), "device", dev.ID)
	dev.Accepted, dev.AcceptedAt, dev.Sensor = c.offered, time.Now(), false
	return true
}
