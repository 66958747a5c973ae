package poller

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// HeardPoll is the name of the poll in readings of what devices report by themselves.
const HeardPoll = "reported"

// HeardParts are the dependencies of Heard.
type HeardParts struct {
	// Publish takes a reading and reports whether there was room for it. It must not
	// block.
	Publish func(ferrule.Reading) bool
	// History is nil if nothing is recorded.
	History History
	Node    string
	Log     *slog.Logger
}

// Heard records what devices report by themselves, with the time at which it arrived. A
// device may be silent for hours because nothing changes, so silence is not a gap. A gap
// is the time in which the device was not connected, and the gateway could hear nothing.
// Heard is a ferrule.DeviceWatcher.
type Heard struct {
	parts HeardParts

	// wake interrupts Run when there is something in resuming.
	wake chan struct{}

	mu       sync.Mutex
	devices  map[string]*heardDevice
	resuming []string  // devices whose recorded samples are to be read
	warned   time.Time // when a dropped reading was last logged
}

// heardDevice is a device that has reported something.
type heardDevice struct {
	active  bool
	lost    time.Time // when it was last disconnected; zero if never
	signals map[string]heardSignal
	// recorded has the time of the last sample of an earlier run, for signals that were
	// not heard since; nil until it is read. Until then resuming is set, and readings are
	// held: the last sample must not be one of them.
	recorded map[string]time.Time
	resuming bool
	held     []ferrule.Reading
}

// maxHeld limits the readings of a device that wait until earlier samples are read.
const maxHeld = 64

// heardSignal is what was last heard of a signal.
type heardSignal struct {
	value    float64
	first    time.Time // in this run
	at       time.Time
	recorded time.Time // of the last sample
	unit     string
	state    bool
	dropped  bool // its last sample was not published
}

// NewHeard returns a Heard.
func NewHeard(p HeardParts) *Heard {
	return &Heard{parts: p, devices: make(map[string]*heardDevice), wake: make(chan struct{}, 1)}
}

// Run reads what was recorded in earlier runs, of each device that reports something, until
// ctx ends.
func (h *Heard) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.wake:
		}
		for ctx.Err() == nil && h.resumeNext(ctx) {
			continue
		}
	}
}

// Put implements ferrule.DeviceWatcher.
func (h *Heard) Put(dev *ferrule.Device, _ *ferrule.Manifest) {
	active := dev.State == ferrule.StateOnline && dev.Trust != ferrule.TrustPending
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.devices[dev.ID]
	if d == nil || d.active == active {
		return
	}
	if d.active = active; !active {
		d.lost = time.Now()
	}
}

// Current returns what was last heard of a signal in the present connection of a device. A
// state is still the same; another value was measured when it was heard.
func (h *Heard) Current(device, signal string) (ferrule.Latest, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.devices[device]
	if d == nil || !d.active {
		return ferrule.Latest{}, false
	}
	n, known := d.signals[signal]
	if !known || n.dropped || d.lost.After(n.at) {
		return ferrule.Latest{}, false
	}
	return ferrule.Latest{Signal: signal, Unit: n.unit, State: n.state, Sample: ferrule.Sample{Time: n.at, Value: n.value}}, true
}

// Remove implements ferrule.DeviceWatcher.
func (h *Heard) Remove(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.devices, id)
}

// Report records measurements of a device that arrived at a time. It does not block. Their
// number is limited, because devices choose the names.
func (h *Heard) Report(device string, at time.Time, measured []ferrule.Measurement) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.devices[device]
	if d == nil {
		d = &heardDevice{active: true, signals: make(map[string]heardSignal)}
		h.devices[device] = d
		h.resume(device, d)
	}
	var batches []ferrule.SampleBatch
	for i := range measured {
		m := &measured[i]
		if len(m.Values) != 1 || math.IsNaN(m.Values[0]) || math.IsInf(m.Values[0], 0) || ferrule.CheckSignal(m.Signal) != nil {
			continue
		}
		if _, known := d.signals[m.Signal]; !known && len(d.signals) >= maxSignals {
			continue
		}
		if batch := d.hear(m, at); len(batch.Samples)+len(batch.Gaps) > 0 {
			batches = append(batches, batch)
		}
	}
	h.publish(device, d, at, batches)
}

// hear notes a value and returns what is new to record.
func (d *heardDevice) hear(m *ferrule.Measurement, at time.Time) ferrule.SampleBatch {
	was, known := d.signals[m.Signal]
	now := heardSignal{value: m.Values[0], first: was.first, at: at, recorded: was.recorded, unit: ferrule.Clean(m.Unit, ferrule.MaxUnit), state: m.State}
	if !known {
		now.first = at
	} else if !at.After(was.at) { // two messages within one tick of the clock
		now.at = was.at.Add(time.Microsecond)
	}
	batch := ferrule.SampleBatch{Signal: m.Signal, Unit: now.unit, State: m.State}
	switch {
	case !known:
		if last, before := d.recorded[m.Signal]; before {
			delete(d.recorded, m.Signal)
			batch.Gaps = gapSince(last, now.at)
		}
	case was.dropped:
		batch.Gaps = []ferrule.Gap{{From: was.at, To: now.at, Reason: ferrule.Dropped}}
	case d.lost.After(was.at):
		batch.Gaps = []ferrule.Gap{{From: d.lost, To: now.at, Reason: ferrule.Silent}}
	}
	if !known || !m.State || len(batch.Gaps) > 0 || was.value != now.value || now.at.Sub(was.recorded) >= stateRepeat {
		batch.Samples = []ferrule.Sample{{Time: now.at, Value: now.value}}
		now.recorded = now.at
	}
	d.signals[m.Signal] = now
	return batch
}

// gapSince returns the gap after the last sample of an earlier run.
func gapSince(last, now time.Time) []ferrule.Gap {
	if !now.After(last) {
		return nil // the clock was set back
	}
	return []ferrule.Gap{{From: last, To: now, Reason: ferrule.Silent}}
}

// publish publishes batches of a device. It is called with mu held.
func (h *Heard) publish(device string, d *heardDevice, at time.Time, batches []ferrule.SampleBatch) {
	for part := range slices.Chunk(batches, ferrule.MaxBatches) {
		reading := ferrule.Reading{Device: device, Node: h.parts.Node, Poll: HeardPoll, Time: at, Batches: part}
		if d.resuming && len(d.held) < maxHeld {
			d.held = append(d.held, reading)
			continue
		}
		h.publishReading(d, reading)
	}
}

// publishReading publishes one reading. It is called with mu held.
func (h *Heard) publishReading(d *heardDevice, reading ferrule.Reading) {
	err := reading.Check()
	if err == nil && h.parts.Publish(reading) {
		return
	}
	for _, b := range reading.Batches {
		if n, known := d.signals[b.Signal]; known {
			n.dropped, n.recorded = true, time.Time{}
			d.signals[b.Signal] = n
		}
	}
	if now := time.Now(); now.Sub(h.warned) > time.Minute { // one warning for all devices
		h.warned = now
		h.parts.Log.Warn("measurement not recorded, other devices may be affected too", "device", reading.Device, "err", err)
	}
}

// resume has Run read what was recorded of a device in earlier runs. It is called with mu
// held.
func (h *Heard) resume(device string, d *heardDevice) {
	if h.parts.History == nil {
		return
	}
	d.resuming = true
	h.resuming = append(h.resuming, device)
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// resumeNext reads what was recorded of the next device that waits for it. It reports
// whether there was one.
func (h *Heard) resumeNext(ctx context.Context) bool {
	h.mu.Lock()
	if len(h.resuming) == 0 {
		h.mu.Unlock()
		return false
	}
	device := h.resuming[0]
	h.resuming = h.resuming[1:]
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	all, err := h.parts.History.Recorded(ctx, device)
	if err != nil {
		h.parts.Log.Warn("the gap since the last run is not recorded", "device", device, "err", err)
	}
	h.resumed(device, all)
	return true
}

// resumed records the gaps between an earlier run and what was heard since the start, and
// remembers the rest until it is heard.
func (h *Heard) resumed(device string, all []ferrule.Latest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.devices[device]
	if d == nil {
		return
	}
	recorded := make(map[string]time.Time)
	for _, latest := range all {
		recorded[latest.Signal] = latest.Sample.Time
	}
	var batches []ferrule.SampleBatch
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		heard, since := d.signals[name]
		if !since {
			continue
		}
		if gaps := gapSince(recorded[name], heard.first); len(gaps) > 0 {
			batches = append(batches, ferrule.SampleBatch{Signal: name, Unit: heard.unit, State: heard.state, Gaps: gaps})
		}
		delete(recorded, name)
	}
	d.recorded, d.resuming = recorded, false
	h.publish(device, d, time.Now(), batches)
	for _, reading := range d.held {
		h.publishReading(d, reading)
	}
	d.held = nil
}
