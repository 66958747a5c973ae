package console

import (
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The topics of live updates. A change of a device has the topic deviceTopic plus its ID,
// and topicDevices.
const (
	topicDevices   = "devices"   // any device
	topicApprovals = "approvals" // a call waits, or was answered
	topicStop      = "stop"
	topicActivity  = "activity" // the journal has new records
	topicWatches   = "watches"  // a watch was changed, or has fired
	deviceTopic    = "device/"
	// callsTopic plus the ID of a device is published when the journal has new records of it.
	// A page of a device follows it, and is not woken by the calls of all others.
	callsTopic = "calls/"
)

// hub tells open pages what has changed. It follows the fleet and the events once, for all
// of them.
type hub struct {
	stops []func()

	mu   sync.Mutex
	subs map[string]map[*subscription]bool // by topic
}

// subscription is an open page. Changed is called with topics, and must not block.
type subscription struct{ changed func(topic string) }

func newHub(fleet Fleet, streams Streams) *hub {
	h := &hub{subs: make(map[string]map[*subscription]bool)}
	h.stops = append(h.stops, fleet.WatchDevices(h), streams.Listen(h.event))
	return h
}

func (h *hub) close() {
	for _, stop := range h.stops {
		stop()
	}
}

// Put implements ferrule.DeviceWatcher.
func (h *hub) Put(dev *ferrule.Device, _ *ferrule.Manifest) {
	h.publish(deviceTopic+dev.ID, topicDevices)
}

// Remove implements ferrule.DeviceWatcher.
func (h *hub) Remove(id string) { h.publish(deviceTopic+id, topicDevices) }

func (h *hub) event(e ferrule.Event) {
	switch e.Type {
	case ferrule.ApprovalEvent:
		h.publish(topicApprovals, deviceTopic+e.Device)
	case ferrule.WasStopped, ferrule.WasResumed:
		h.publish(topicStop, deviceTopic+e.Device)
	case ferrule.WatchFired:
		h.publish(topicWatches, deviceTopic+e.Device)
	default:
		h.publish(deviceTopic + e.Device)
	}
}

// ApprovalsChanged updates open pages after a call began to wait or was answered.
func (c *Console) ApprovalsChanged() { c.hub.publish(topicApprovals) }

// WatchesChanged updates open pages after a watch was changed, or its state.
func (c *Console) WatchesChanged() { c.hub.publish(topicWatches) }

// StopChanged updates open pages after something was stopped or resumed.
func (c *Console) StopChanged() { c.hub.publish(topicStop) }

// called is called with the devices that have new records in the journal.
func (h *hub) called(devices []string) {
	topics := []string{topicActivity}
	for _, id := range devices {
		topics = append(topics, callsTopic+id)
	}
	h.publish(topics...)
}

// publish tells the pages that are interested in topics.
func (h *hub) publish(topics ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, topic := range topics {
		for s := range h.subs[topic] {
			s.changed(topic)
		}
	}
}

// subscribe calls changed with each of the topics that something was published for, until
// stop is called.
func (h *hub) subscribe(changed func(topic string), topics ...string) (stop func()) {
	s := &subscription{changed}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, topic := range topics {
		if h.subs[topic] == nil {
			h.subs[topic] = make(map[*subscription]bool)
		}
		h.subs[topic][s] = true
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, topic := range topics {
			if delete(h.subs[topic], s); len(h.subs[topic]) == 0 {
				delete(h.subs, topic)
			}
		}
	}
}
