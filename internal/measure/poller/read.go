package poller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// ourselves is who is asking.
var ourselves = ferrule.Principal{Role: ferrule.Gateway, Name: "sense"}

// refusals is how often in a row a device has to refuse something until it is believed
// that it does not have it: noise on a line may look like one.
const refusals = 2

// answer is what a device said, taken apart.
type answer struct {
	sent, came time.Time
	measures   []ferrule.Measurement
}

// ask asks a device for one thing, and has what it says published.
func (s *Poller) ask(ctx context.Context, p *probe) {
	s.mu.Lock()
	about, gaps, why, due, patience := p.about, p.gaps, p.why, p.due, p.patience
	s.mu.Unlock()
	s.counts.reads.Add(1)
	got, err := s.call(ctx, p.device.id, about, patience)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		s.counts.failures.Add(1)
		s.done(p, 0, func() { s.failed(p, err) })
		return
	}
	s.counts.lateBy(got.sent.Sub(due))
	missed := ferrule.GapReason("")
	if gaps != p.told {
		missed = why
	}
	err = s.record(ctx, p, about, got, missed)
	if err == nil {
		p.told = gaps
	}
	s.done(p, got.came.Sub(got.sent), func() {
		p.rings = slices.ContainsFunc(got.measures, isRing)
		s.answered(p, err)
	})
}

// call takes the road, and takes the answer apart.
func (s *Poller) call(ctx context.Context, device string, about *ferrule.Poll, patience time.Duration) (answer, error) {
	result, err := s.parts.Handle(ctx, &ferrule.Call{
		Principal: ourselves, Device: device, Tool: about.Tool, Args: about.Args, Timeout: ferrule.Duration(patience),
	})
	if err != nil {
		return answer{}, err
	}
	if result.Sent.IsZero() { // another node has it by now, and measures
		return answer{}, ferrule.Errorf(ferrule.Offline, "%s is not at this node", device)
	}
	got := answer{sent: result.Sent, came: result.Answered}
	if about.Parse != nil {
		got.measures, err = about.Parse(valueOf(result))
	} else {
		got.measures, err = measuresOf(about, result)
	}
	return got, err
}

// done tells that asking has ended, how, and when to ask again.
func (s *Poller) done(p *probe, took time.Duration, how func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.asking = false; !p.gone { // else it is nobody's any more
		how()
	}
	now, d := time.Now(), p.device
	if !p.gone && d.awake && !p.off {
		s.schedule(p, p.ringsAt(p.again(now, took)))
	}
	switch {
	case len(d.waiting) == 0:
		s.idle(d)
	case d.rests.After(now):
		for _, waiting := range d.waiting {
			s.schedule(waiting, d.rests)
		}
		d.waiting = nil
		s.idle(d)
	default:
		s.ready = append(s.ready, d)
	}
}

// answered tells that a device has said what it was asked for. If that was not recorded
// it is asked again at its pace, and no later: it still has what it keeps.
func (s *Poller) answered(p *probe, err error) {
	p.fails, p.refused, p.device.struggles = 0, 0, 0
	if err == nil {
		return
	}
	p.gaps++
	p.why = ferrule.Dropped
	if now := time.Now(); now.Sub(s.warned) > time.Minute { // it may be so for thousands
		s.warned = now
		s.parts.Log.Warn("what was measured is not recorded, of this device and perhaps of others", "device", p.device.id, "tool", p.about.Tool, "err", err)
	}
}

// failed makes it longer until a probe is asked again, and if it is the device that does
// not answer, until any is.
func (s *Poller) failed(p *probe, err error) {
	p.fails++
	p.gaps++
	p.why = ferrule.Silent
	level := slog.LevelDebug
	code := ferrule.AsError(err).Code
	if code != ferrule.Refused {
		p.refused = 0
	}
	switch code {
	case ferrule.Unanswered, ferrule.Offline, ferrule.Busy:
		p.device.struggles++
		p.device.rests = time.Now().Add(jitter(min(p.pause(p.every, p.device.struggles), longest)))
	case ferrule.Refused:
		if p.refused++; p.about.Parse != nil && p.refused == refusals {
			s.giveUp(p)
			return
		}
	case ferrule.Invalid, ferrule.Denied, ferrule.NotFound:
		if p.fails == 1 { // its owner can do something about it
			level = slog.LevelWarn
		}
	}
	s.parts.Log.Log(context.Background(), level, fmt.Sprintf("%s was not measured, %d times in a row", p.about.Name, p.fails),
		"device", p.device.id, "tool", p.about.Tool, "err", err)
}

// giveUp has a probe ask for something else, or for nothing: the device does not have what
// its manifest says.
func (s *Poller) giveUp(p *probe) {
	log := s.parts.Log.With("device", p.device.id, "tool", p.about.Tool)
	if p.about.Fallback == nil || unfit(p.device.laid, p.about.Fallback.Tool) != "" {
		p.off = true
		log.Warn(p.about.Name + " is not measured any more: the device says that it has no such thing")
		return
	}
	log.Info(fmt.Sprintf("%s is measured with %s from now on: the device says that it has no such thing", p.about.Name, p.about.Fallback.Tool))
	p.signals, p.device.before = make(map[string]signal), nil
	s.settle(p, p.about.Fallback)
}
