package dock

import (
	"maps"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Label sets labels of a device and removes others. It returns all labels that the device
// then has.
func (d *Dock) Label(id string, set map[string]string, remove []string) (map[string]string, error) {
	r := d.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	id = r.current(id)
	if err := r.checkHeldHere(id); err != nil {
		return nil, err
	}
	at := r.slots[r.ids[id]]
	dev, ok := r.store.Get(id)
	switch {
	case !ok && at == nil:
		return nil, ferrule.UnknownDevice(id)
	case !ok:
		return nil, at.device.Load().OfflineError() // it was never reached, so nothing is stored
	}
	labels := maps.Clone(dev.Labels)
	if labels == nil {
		labels = make(map[string]string)
	}
	for _, key := range remove {
		if _, ok := labels[key]; !ok {
			return nil, ferrule.Errorf(ferrule.NotFound, "%s has no label %q", id, ferrule.Clean(key, ferrule.MaxWord))
		}
		delete(labels, key)
	}
	for key, value := range set {
		if err := ferrule.CheckLabel(key, value); err != nil {
			return nil, ferrule.Errorf(ferrule.Invalid, "%w", err)
		}
		labels[key] = value
	}
	if len(labels) > ferrule.MaxLabels {
		return nil, ferrule.Errorf(ferrule.Invalid, "%s would have %d labels; limit is %d", id, len(labels), ferrule.MaxLabels)
	}
	if len(set) == 0 && len(remove) == 0 {
		return labels, nil
	}
	labeled := *dev
	if at != nil {
		labeled = *at.device.Load()
	}
	labeled.Labels = labels
	if at != nil {
		r.publish(at, &labeled)
	} else {
		r.publishAbsent(&labeled)
	}
	return labels, r.store.Keep(&labeled, nil)
}
