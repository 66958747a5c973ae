package dock

import (
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// release releases a device, and all others at the same place, until a time. It
// returns their addresses; none if a release was ended that did not exist.
func (r *registry) release(id string, until time.Time) (addresses []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id = r.current(id)
	address, ok := r.ids[id]
	if !ok {
		return nil, ferrule.UnknownDevice(id)
	}
	if err := r.checkHeldHere(id); err != nil {
		return nil, err
	}
	at := r.slots[address]
	if at == nil || at.sighting.Absent != "" {
		return nil, ferrule.Errorf(ferrule.Offline, "%s is not in sight, so there is nothing to release", id)
	}
	addresses, keys := []string{address}, []string{address}
	if place := at.sighting.Location; place != "" {
		for other, slot := range r.slots {
			if other != address && slot.sighting.Location == place {
				addresses = append(addresses, other)
			}
		}
		keys = append(slices.Clone(addresses), place)
	}
	already := slices.ContainsFunc(keys, func(key string) bool { _, ok := r.released[key]; return ok })
	if !already && !time.Now().Before(until) {
		return nil, nil
	}
	for _, key := range keys {
		r.released[key] = until
	}
	return addresses, nil
}

// applyRelease reports whether a device is released, and until when, and publishes
// that state.
func (r *registry) applyRelease(at *slot) (until time.Time, released bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range []string{at.sighting.Address, at.sighting.Location} {
		if t, ok := r.released[key]; ok && time.Now().Before(t) {
			until, released = t, true
		} else {
			delete(r.released, key)
		}
	}
	if !released {
		return until, false
	}
	dev := *at.device.Load()
	dev.Reason = "is released for other programs until " + ferrule.FormatTime(until)
	if dev.State != ferrule.StateReleased {
		dev.State, dev.Since = ferrule.StateReleased, time.Now()
		r.log.Info("device "+dev.Reason, "device", dev.ID)
	}
	r.publish(at, &dev)
	return until, true
}
