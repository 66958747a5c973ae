package dock

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	if err := r.store.keepReleases(r.released); err != nil {
		r.log.Warn("the release is not stored, so it ends if the gateway restarts", "device", id, "err", err)
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

// releasesFile has the releases that last, so that a gateway which is restarted does not
// take a port from the program that uses it.
const releasesFile = "releases.json"

// keepReleases stores the releases that last. They are on disk when it returns.
func (m *Store) keepReleases(all map[string]time.Time) error {
	lasting := make(map[string]time.Time)
	for key, until := range all {
		if time.Now().Before(until) {
			lasting[key] = until
		}
	}
	path := filepath.Join(m.dir, releasesFile)
	if len(lasting) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("device store: %w", err)
		}
		return nil
	}
	data, err := json.Marshal(lasting)
	if err == nil {
		err = replaceFile(path, data)
	}
	if err != nil {
		return fmt.Errorf("device store: %w", err)
	}
	return nil
}

// releases returns the stored releases that last. A file that cannot be read releases
// nothing. One that lasts too long was written when the clock was wrong, and is shortened.
func (m *Store) releases() map[string]time.Time {
	all := make(map[string]time.Time)
	data, err := os.ReadFile(filepath.Join(m.dir, releasesFile))
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.log.Warn("device store: releases skipped", "err", err)
		return make(map[string]time.Time)
	}
	now := time.Now()
	for key, until := range all {
		switch {
		case !now.Before(until):
			delete(all, key)
		case until.After(now.Add(ferrule.MaxRelease)):
			all[key] = now.Add(ferrule.MaxRelease)
		}
	}
	return all
}
