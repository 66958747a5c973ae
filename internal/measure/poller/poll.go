package poller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// principal is the caller of all polls.
var principal = ferrule.Principal{Role: ferrule.Gateway, Name: "poller"}

// maxRefusals is how many refusals in a row disable a poll. Noise on a serial line may
// look like one refusal.
const maxRefusals = 2

// answer is the decoded answer of a device.
type answer struct {
	sent, received time.Time
	measurements   []ferrule.Measurement
}

// poll runs one poll and publishes the result.
func (s *Poller) poll(ctx context.Context, p *poll) {
	s.mu.Lock()
	spec, missed, due, timeout := p.spec, p.missed, p.due, p.timeout
	reasons := gapReasons{certain: p.reason, ifLate: ferrule.Late}
	if p.stopped {
		reasons.ifLate = ferrule.Silent
	}
	p.stopped = false
	s.mu.Unlock()
	s.counts.reads.Add(1)
	got, err := s.call(ctx, p.device.id, spec, timeout)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		s.counts.failures.Add(1)
		s.done(p, 0, func() { s.failed(p, err) })
		return
	}
	s.counts.late.Observe(got.sent.Sub(due))
	if missed == p.reported {
		reasons.certain = ""
	}
	p.answered(got.received.Sub(got.sent))
	err = s.record(ctx, p, spec, got, reasons)
	if err == nil {
		p.reported = missed
	}
	s.done(p, got.received.Sub(got.sent), func() {
		p.ring = slices.ContainsFunc(got.measurements, isRing)
		s.succeeded(p, err)
	})
}

// call calls the tool of a poll and decodes the answer.
func (s *Poller) call(ctx context.Context, device string, spec *ferrule.Poll, timeout time.Duration) (answer, error) {
	result, err := s.parts.Handle(ctx, &ferrule.Call{
		Principal: principal, Device: device, Tool: spec.Tool, Args: spec.Args, Timeout: ferrule.Duration(timeout),
	})
	if err != nil {
		return answer{}, err
	}
	if result.Sent.IsZero() { // answered by another node, which has its own poller
		return answer{}, ferrule.Errorf(ferrule.Offline, "%s is connected to another node", device)
	}
	got := answer{sent: result.Sent, received: result.Answered}
	if spec.Parse != nil {
		got.measurements, err = spec.Parse(jsonValue(result))
	} else {
		got.measurements, err = measurements(spec, result)
	}
	return got, err
}

// done ends a poll: it applies the outcome and schedules the next poll of the device.
func (s *Poller) done(p *poll, took time.Duration, outcome func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.running = false; !p.removed {
		outcome()
	}
	now, d := time.Now(), p.device
	switch active := !p.removed && d.active; {
	case active && !p.disabled:
		s.schedule(p, p.ringDue(p.nextDue(now, took)))
	case !active:
		s.recordSeen(p) // stop left it to the running poll
	}
	switch {
	case len(d.waiting) == 0:
		s.idle(d)
	case d.pausedUntil.After(now):
		for _, waiting := range d.waiting {
			s.schedule(waiting, d.pausedUntil)
		}
		d.waiting = nil
		s.idle(d)
	default:
		s.ready = append(s.ready, d)
	}
}

// succeeded handles an answer. If it was not recorded, the poll keeps its interval: a ring
// still holds the samples.
func (s *Poller) succeeded(p *poll, err error) {
	p.failures, p.refusals, p.device.failures = 0, 0, 0
	if err == nil {
		return
	}
	p.missed++
	p.reason = ferrule.Dropped
	if now := time.Now(); now.Sub(s.warned) > time.Minute { // one warning for all devices
		s.warned = now
		s.parts.Log.Warn("measurement not recorded, other devices may be affected too", "device", p.device.id, "tool", p.spec.Tool, "err", err)
	}
}

// failed handles an error: it pauses the poll, and if the device did not answer, all of
// the device's polls.
func (s *Poller) failed(p *poll, err error) {
	p.failures++
	p.missed++
	p.reason = ferrule.Silent
	level := slog.LevelDebug
	code := ferrule.AsError(err).Code
	if code != ferrule.Refused {
		p.refusals = 0
	}
	switch code {
	case ferrule.Unanswered, ferrule.Offline, ferrule.Busy:
		p.device.failures++
		p.device.pausedUntil = time.Now().Add(jitter(min(p.pause(p.every, p.device.failures), maxPause)))
	case ferrule.Refused:
		if p.refusals++; p.spec.Parse != nil && p.refusals == maxRefusals {
			s.fallBack(p)
			return
		}
	case ferrule.Invalid, ferrule.Denied, ferrule.NotFound:
		if p.failures == 1 { // the owner can fix it
			level = slog.LevelWarn
		}
	}
	s.parts.Log.Log(context.Background(), level, fmt.Sprintf("poll %s failed, %d in a row", p.spec.Name, p.failures),
		"device", p.device.id, "tool", p.spec.Tool, "err", err)
}

// fallBack switches a poll to its fallback, or disables it: the device says that it does
// not have what its manifest declares.
func (s *Poller) fallBack(p *poll) {
	log := s.parts.Log.With("device", p.device.id, "tool", p.spec.Tool)
	if p.spec.Fallback == nil || unusable(p.device.manifest, p.spec.Fallback.Tool) != "" {
		p.disabled = true
		log.Warn(fmt.Sprintf("poll %s disabled: the device says that it does not have this value", p.spec.Name))
		return
	}
	log.Info(fmt.Sprintf("poll %s uses %s from now on: the device says that it does not have this value", p.spec.Name, p.spec.Fallback.Tool))
	p.signals, p.device.recorded = make(map[string]signal), nil
	s.setSpec(p, p.spec.Fallback)
}
