package poller

import (
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// device is a device that can be asked.
type device struct {
	id      string
	kind    ferrule.Kind
	laid    *ferrule.Manifest
	awake   bool // it is there, and trusted
	probes  []*probe
	waiting []*probe // those that are due
	busy    bool     // it is in line, or being asked
	removed bool     // it is forgotten when it is not busy any more
	// rests is until when it is left in peace, and struggles how often in a row it did
	// not answer.
	rests     time.Time
	struggles int
	// signals is which probe a signal is of: the one of that name, or the first that has
	// brought it, of which there are so many claimed. It is nil if there is no plan.
	signals map[string]*probe
	claimed int
	// before is what was last recorded of it, for whoever asks; nil until they do.
	before map[string]ferrule.Sample
}

// probe is something that a device is asked for, and how that goes.
type probe struct {
	device *device
	about  *ferrule.Poll
	every  time.Duration
	// patience is how long is waited for an answer; zero where the tool's owner says.
	patience time.Duration

	hand   hand
	due    time.Time
	asking bool // it is being asked for
	// fails is how often in a row it brought nothing, and refused how often in a row the
	// device has said that it does not have it.
	fails, refused int
	// rings tells that it brings what the device samples by itself.
	rings bool
	// off tells that it is asked no more, and gone that its device is another now.
	off, gone bool
	// gaps counts what may have been missed, and why was the last.
	gaps int
	why  ferrule.GapReason

	// What follows belongs to whoever asks.
	signals map[string]signal
	told    int // of the gaps, how many were told
}

// Put implements ferrule.Follower.
func (s *Poller) Put(dev *ferrule.Device, laid *ferrule.Manifest) {
	awake := dev.State == ferrule.StateOnline && dev.Trust != ferrule.TrustPending && laid != nil
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.devices[dev.ID]
	switch {
	case d == nil && !awake:
		return // it may never come
	case d == nil:
		d = &device{id: dev.ID}
		s.devices[dev.ID] = d
	}
	d.removed = false
	if d.kind != dev.Kind || d.laid != laid {
		s.unplan(d)
		d.kind, d.laid = dev.Kind, laid
	}
	if awake == d.awake {
		return
	}
	if d.awake = awake; !awake {
		s.end(d)
		return
	}
	if d.signals == nil {
		s.plan(d, dev.Protocol)
	}
	s.begin(d)
}

// Remove implements ferrule.Follower. If the device is being asked, whoever comes with its
// ID meanwhile has to wait for that.
func (s *Poller) Remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.devices[id]
	if d == nil {
		return
	}
	s.unplan(d)
	if d.removed = true; !d.busy {
		s.idle(d)
	}
}

// idle tells that a device is neither in line nor being asked.
func (s *Poller) idle(d *device) {
	if d.busy = false; d.removed {
		delete(s.devices, d.id)
	}
}

// plan makes the probes of a device. Devices with the same manifest share a plan.
func (s *Poller) plan(d *device, dialect string) {
	shared := s.plans[d.laid]
	if shared == nil {
		shared = newPlan(d.laid, s.parts.Grammars[dialect])
		s.plans[d.laid] = shared
		for _, note := range shared.notes {
			s.parts.Log.Warn("not all can be measured: "+note, "device", d.id)
		}
	}
	shared.devices++
	d.signals = make(map[string]*probe)
	for i := range shared.probes {
		p := &probe{device: d, signals: make(map[string]signal)}
		s.settle(p, &shared.probes[i])
		d.probes = append(d.probes, p)
		d.signals[p.about.Name] = p // nobody else is to have it
	}
}

// unplan ends the probes of a device for good.
func (s *Poller) unplan(d *device) {
	s.end(d)
	for _, p := range d.probes {
		p.gone = true
	}
	if shared := s.plans[d.laid]; shared != nil && d.signals != nil {
		if shared.devices--; shared.devices == 0 {
			delete(s.plans, d.laid)
		}
	}
	d.awake, d.probes, d.signals, d.claimed, d.before = false, nil, nil, 0, nil
	d.rests, d.struggles = time.Time{}, 0
}

// settle has a probe ask for something.
func (s *Poller) settle(p *probe, about *ferrule.Poll) {
	p.about, p.every, p.fails, p.refused, p.rings = about, everyOf(about, s.parts.Config.Fastest), 0, 0, false
	p.patience = min(max(p.every/share, minPatience), maxPatience)
	if tool := p.device.laid.Tool(about.Tool); tool != nil && tool.Deadline > 0 {
		p.patience = 0
	}
}

// begin has a device asked for everything soon, yet not for all at once. What has failed
// before may be why it was gone, and waits as it would have.
func (s *Poller) begin(d *device) {
	d.rests = time.Time{}
	now := time.Now()
	for _, p := range d.probes {
		switch {
		case p.off || p.asking: // of the latter, it is decided when it has ended
		case p.fails > 0:
			s.schedule(p, now.Add(jitter(p.pause(p.every, p.fails))))
		default:
			s.schedule(p, now.Add(within(min(p.every, spread))))
		}
	}
}

// end has a device not be asked until it is there again.
func (s *Poller) end(d *device) {
	d.waiting = nil
	for _, p := range d.probes {
		s.wheel.take(p)
		p.gaps++
		p.why = ferrule.Silent
	}
}
