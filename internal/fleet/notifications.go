package fleet

import (
	"container/list"
	"slices"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The limits of stored notifications.
const (
	maxMethods       = 8        // of one device
	maxNotifications = 16 << 20 // bytes, of all devices
	notificationCost = 256      // estimated overhead in bytes
)

// notifications holds the last notification of each method of each device. When
// the limit is exceeded, the device that was silent longest is dropped.
type notifications struct {
	mu      sync.Mutex
	devices map[string]*list.Element // by ID
	order   *list.List               // of *notifier, most recent first
	size    int
}

// notifier holds the notifications of one device, most recent first.
type notifier struct {
	id   string
	last []ferrule.Event
}

func newNotifications() *notifications {
	return &notifications{devices: make(map[string]*list.Element), order: list.New()}
}

// RecordEvent stores the notification of a device. It ignores other events, and
// those of unknown and pending devices: agents may not read them, and they must
// not displace others.
func (f *Fleet) RecordEvent(e ferrule.Event) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	r := f.devices[e.Device].current()
	if e.Type == ferrule.Notified && r != nil && r.Device.Trust != ferrule.TrustPending {
		f.notifications.add(e)
	}
}

// Notifications returns the last notification of each method of a device, most recent
// first. The slice is shared and read only.
func (f *Fleet) Notifications(id string) []ferrule.Event { return f.notifications.get(id) }

func (n *notifications) add(e ferrule.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := n.devices[e.Device]
	if at == nil {
		at = n.order.PushFront(&notifier{id: e.Device})
		n.devices[e.Device] = at
	}
	n.order.MoveToFront(at)
	d := at.Value.(*notifier)
	n.size -= d.size()
	last := []ferrule.Event{e} // a new slice: readers may still use the old one
	for _, before := range d.last {
		if before.Method != e.Method && len(last) < maxMethods {
			last = append(last, before)
		}
	}
	d.last = last
	n.size += d.size()
	for n.size > maxNotifications {
		n.drop(n.order.Back())
	}
}

// size estimates the memory of a notifier in bytes.
func (d *notifier) size() (bytes int) {
	for _, e := range d.last {
		bytes += len(e.Method) + len(e.Params) + notificationCost
	}
	return bytes
}

func (n *notifications) get(id string) []ferrule.Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at := n.devices[id]; at != nil {
		return slices.Clip(at.Value.(*notifier).last)
	}
	return nil
}

func (n *notifications) forget(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at := n.devices[id]; at != nil {
		n.drop(at)
	}
}

// drop removes a device. It is called with mu held.
func (n *notifications) drop(at *list.Element) {
	d := n.order.Remove(at).(*notifier)
	delete(n.devices, d.id)
	n.size -= d.size()
}
