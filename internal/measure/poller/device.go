package poller

import (
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// device is a device that can be polled.
type device struct {
	id       string
	kind     ferrule.Kind
	manifest *ferrule.Manifest
	active   bool // online and trusted
	polls    []*poll
	waiting  []*poll // due
	busy     bool    // in ready, or running a poll
	removed  bool    // deleted once it is not busy
	// No poll runs before pausedUntil. failures counts polls in a row without an answer.
	pausedUntil time.Time
	failures    int
	// signals maps a signal to the poll that owns it: the poll of that name, or the first
	// that brought it. claimed counts the latter. It is nil without a plan.
	signals map[string]*poll
	claimed int
	// recorded is the last recorded sample of each signal; nil until it is needed.
	recorded map[string]ferrule.Sample
}

// poll is one poll of one device, and its state.
type poll struct {
	device *device
	spec   *ferrule.Poll
	every  time.Duration
	// timeout limits the wait for an answer; zero if the tool has its own deadline.
	timeout time.Duration

	position position
	due      time.Time
	running  bool
	// failures counts failed polls in a row, and refusals the answers in a row by which
	// the device says that it does not have what was asked for.
	failures, refusals int
	// ring reports whether it reads values that the device samples on its own.
	ring bool
	// disabled polls never run again. The device of a removed poll has other polls now.
	disabled, removed bool
	// missed counts the answers that are missing, and reason is that of the last. Stopped is
	// set if the poll was stopped since its last run.
	missed  int
	reason  ferrule.GapReason
	stopped bool

	// The fields below belong to the worker that runs the poll.
	signals  map[string]signal
	reported int             // how many of missed were reported as a gap
	took     []time.Duration // how long the last answers took
}

// maxTook is how many answers tell how long an answer usually takes.
const maxTook = 5

// answered notes how long an answer took.
func (p *poll) answered(took time.Duration) {
	p.took = append(p.took, took)
	p.took = p.took[max(0, len(p.took)-maxTook):]
}

// usual returns the usual time between two answers. A slow device is polled less often, but
// one slow answer does not make it a slow device.
func (p *poll) usual() time.Duration {
	sorted := slices.Sorted(slices.Values(p.took))
	return max(p.every, loadDivisor*sorted[(len(sorted)-1)/2])
}

// Put implements ferrule.DeviceWatcher.
func (s *Poller) Put(dev *ferrule.Device, manifest *ferrule.Manifest) {
	active := dev.State == ferrule.StateOnline && dev.Trust != ferrule.TrustPending && manifest != nil
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.devices[dev.ID]
	switch {
	case d == nil && !active:
		return // it may never become active
	case d == nil:
		d = &device{id: dev.ID}
		s.devices[dev.ID] = d
	}
	d.removed = false
	if d.kind != dev.Kind || d.manifest != manifest {
		s.removePolls(d)
		d.kind, d.manifest = dev.Kind, manifest
	}
	if active == d.active {
		return
	}
	if d.active = active; !active {
		s.stop(d)
		return
	}
	if d.signals == nil {
		s.addPolls(d, dev.Protocol)
	}
	s.start(d)
}

// Remove implements ferrule.DeviceWatcher. While a poll of the device runs, a new device with
// the same ID has to wait for it.
func (s *Poller) Remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.devices[id]
	if d == nil {
		return
	}
	s.removePolls(d)
	if d.removed = true; !d.busy {
		s.idle(d)
	}
}

// idle marks a device as not busy, and deletes it if it was removed.
func (s *Poller) idle(d *device) {
	if d.busy = false; d.removed {
		delete(s.devices, d.id)
	}
}

// addPolls creates the polls of a device. Devices with the same manifest share a plan.
func (s *Poller) addPolls(d *device, protocol string) {
	shared := s.plans[d.manifest]
	if shared == nil {
		shared = newPlan(d.manifest, s.parts.Polls[protocol])
		s.plans[d.manifest] = shared
		for _, note := range shared.notes {
			s.parts.Log.Warn(note, "device", d.id)
		}
	}
	shared.devices++
	d.signals = make(map[string]*poll)
	for i := range shared.polls {
		p := &poll{device: d, signals: make(map[string]signal)}
		s.setSpec(p, &shared.polls[i])
		d.polls = append(d.polls, p)
		d.signals[p.spec.Name] = p // reserved
	}
}

// removePolls ends the polls of a device for good.
func (s *Poller) removePolls(d *device) {
	s.stop(d)
	for _, p := range d.polls {
		p.removed = true
	}
	if shared := s.plans[d.manifest]; shared != nil && d.signals != nil {
		if shared.devices--; shared.devices == 0 {
			delete(s.plans, d.manifest)
		}
	}
	d.active, d.polls, d.signals, d.claimed, d.recorded = false, nil, nil, 0, nil
	d.pausedUntil, d.failures = time.Time{}, 0
}

// setSpec sets what a poll reads, and resets its state.
func (s *Poller) setSpec(p *poll, spec *ferrule.Poll) {
	p.spec, p.every, p.failures, p.refusals, p.ring = spec, everyOf(spec, s.parts.Config.Fastest), 0, 0, false
	p.timeout = min(max(p.every/loadDivisor, minTimeout), maxTimeout)
	if tool := p.device.manifest.Tool(spec.Tool); tool != nil && tool.Deadline > 0 {
		p.timeout = 0
	}
}

// start schedules the polls of a device, spread over a few seconds. A poll that failed
// before may be why the device was gone, so it keeps its pause.
func (s *Poller) start(d *device) {
	d.pausedUntil = time.Time{}
	now := time.Now()
	for _, p := range d.polls {
		switch {
		case p.disabled || p.running: // a running poll is scheduled when it ends
		case p.failures > 0:
			s.schedule(p, now.Add(jitter(p.pause(p.every, p.failures))))
		default:
			s.schedule(p, now.Add(randomUpTo(min(p.every, startSpread))))
		}
	}
}

// stop unschedules the polls of a device until start.
func (s *Poller) stop(d *device) {
	d.waiting = nil
	for _, p := range d.polls {
		s.wheel.take(p)
		p.stopped = true
		if !p.running { // else done does it
			s.recordSeen(p)
		}
	}
}
