package registry

import (
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// intake queues changes of own devices. The fleet reports them with its lock held, so
// they are processed later.
type intake struct {
	mu      sync.Mutex
	changes []change
	said    int // how many of changes are events that devices sent
	wake    func()
}

// maxSaid limits the events of devices that wait here: talkative devices must not hide
// that another one is gone.
const maxSaid = 1024

// change is the new state of an own device, with a nil device if it was removed, or an
// event that it sent.
type change struct {
	id       string
	device   *ferrule.Device
	manifest *ferrule.Manifest
	said     *ferrule.Event
}

func (i *intake) add(c change) {
	if ferrule.CheckID(c.id) != nil {
		return // not reached yet: its address takes the place of an ID
	}
	i.mu.Lock()
	i.changes = append(i.changes, c)
	i.mu.Unlock()
	i.wake()
}

// say adds an event that a device sent. It reports false if too many are waiting.
func (i *intake) say(e ferrule.Event) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.said >= maxSaid {
		return false
	}
	i.said++
	i.changes = append(i.changes, change{id: e.Device, said: &e})
	i.wake()
	return true
}

func (i *intake) take() []change {
	i.mu.Lock()
	defer i.mu.Unlock()
	changes := i.changes
	i.changes, i.said = nil, 0
	return changes
}

// length returns how many device changes are waiting.
func (i *intake) length() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.changes) - i.said
}
