package poller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/measure/ring"
)

// signal is how far a signal is recorded. It is a value: what was published moves on,
// what was not does not.
type signal struct {
	ring *ring.Ring // of what the device samples by itself
	// What was measured when the device was asked: the last value, from when to when it
	// may have been taken, and why something may be missing since.
	value    float64
	from, to time.Time
	broken   ferrule.GapReason
	// told is when it was last recorded, of a state.
	told time.Time
}

// errNotTaken is that there was no room for a reading.
var errNotTaken = errors.New("there is no room for what was measured")

// seen is how often a state is recorded that does not change, so that it is known that it
// was seen.
const seen = 10 * time.Minute

// pastWait is how long is waited for what was measured before.
const pastWait = 5 * time.Second

// record has what an answer brought published. If that cannot be done, it is as if the
// device had not been asked.
func (s *Poller) record(ctx context.Context, p *probe, about *ferrule.Poll, got answer, missed ferrule.GapReason) (err error) {
	reading := ferrule.Reading{Device: p.device.id, Node: s.parts.Node, Poll: about.Name, Time: got.came}
	next := make(map[string]signal, len(got.measures))
	samples := 0
	for i := range got.measures {
		m := &got.measures[i]
		now, known := p.signals[m.Signal]
		if !known && (!hasNumber(m) || !s.claim(p, m.Signal)) {
			continue
		}
		if !known {
			if now, err = s.resume(ctx, p, m, got); err != nil {
				return err
			}
		} else if now.broken == "" {
			now.broken = missed
		}
		then, series := now.next(m, got, p.every)
		next[m.Signal] = then
		if len(series.Samples) == 0 && len(series.Gaps) == 0 {
			continue
		}
		series.Signal, series.Unit = m.Signal, m.Unit
		if about.Unit != "" {
			series.Unit = about.Unit
		}
		samples += len(series.Samples)
		reading.Batches = append(reading.Batches, series)
	}
	if len(reading.Batches) > 0 {
		if err := reading.Check(); err != nil {
			return ferrule.Errorf(ferrule.Internal, "a reading of %s cannot be published: %w", about.Name, err)
		}
		if !s.parts.Publish(reading) {
			s.counts.dropped.Add(1)
			return errNotTaken
		}
	}
	s.counts.samples.Add(uint64(samples))
	for name, before := range p.signals {
		if _, said := next[name]; !said { // it was in other answers
			before.broken = ferrule.Silent
			next[name] = before
		}
	}
	p.signals = next
	return nil
}

// claim tells whether a signal is this probe's to bring. Devices make up names, so there
// are only so many.
func (s *Poller) claim(p *probe, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := p.device
	if owner, taken := d.signals[name]; taken {
		return owner == p
	}
	if p.gone || d.claimed >= maxSignals {
		return false
	}
	d.signals[name] = p
	d.claimed++
	return true
}

// resume is how far a signal was recorded before.
func (s *Poller) resume(ctx context.Context, p *probe, m *ferrule.Measurement, got answer) (signal, error) {
	if s.parts.Past == nil {
		return signal{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, pastWait)
	defer cancel()
	if isRing(*m) {
		tail, err := s.tail(ctx, p.device.id, m)
		if err != nil {
			return signal{}, fmt.Errorf("what was measured before cannot be read: %w", err)
		}
		return signal{ring: ring.Resume(tail, got.came, m.Interval, m.Size)}, nil
	}
	before, err := s.before(ctx, p)
	if err != nil {
		return signal{}, fmt.Errorf("what was measured before cannot be read: %w", err)
	}
	last, known := before[m.Signal]
	if !known {
		return signal{}, nil
	}
	at := last.Time
	if at.After(got.sent) { // the clock was set back
		at = got.sent
	}
	return signal{value: last.Value, from: at, to: at, told: at, broken: ferrule.Silent}, nil
}

// tail is the last that was recorded of a ring. If a hole came after it, that is when it was
// last recorded, and little more.
func (s *Poller) tail(ctx context.Context, device string, m *ferrule.Measurement) ([]ferrule.Sample, error) {
	tail, err := s.parts.Past.Tail(ctx, device, m.Signal, len(m.Values))
	if err != nil || len(tail) > 0 {
		return tail, err
	}
	all, err := s.parts.Past.Latest(ctx, device)
	for _, latest := range all {
		if latest.Signal == m.Signal {
			tail = append(tail, latest.Sample)
		}
	}
	return tail, err
}

// before is the last that was recorded of each signal of a device when it was first asked
// for. A device is asked for one thing at a time, so nobody else asks meanwhile.
func (s *Poller) before(ctx context.Context, p *probe) (map[string]ferrule.Sample, error) {
	s.mu.Lock()
	before := p.device.before
	s.mu.Unlock()
	if before != nil {
		return before, nil
	}
	all, err := s.parts.Past.Latest(ctx, p.device.id)
	if err != nil {
		return nil, err
	}
	before = make(map[string]ferrule.Sample, len(all))
	for _, latest := range all {
		before[latest.Signal] = latest.Sample
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !p.gone {
		p.device.before = before
	}
	return before, nil
}

// isRing tells whether the device has taken several values by itself.
func isRing(m ferrule.Measurement) bool { return m.Interval > 0 && m.Size > 1 }

func hasNumber(m *ferrule.Measurement) bool {
	for _, v := range m.Values {
		if !math.IsNaN(v) {
			return true
		}
	}
	return false
}

// next is what follows from an answer, and what is new in it.
func (n signal) next(m *ferrule.Measurement, got answer, every time.Duration) (signal, ferrule.SampleBatch) {
	if isRing(*m) {
		ring, series := n.ring.Next(ring.Read{Sent: got.sent, Came: got.came, Values: m.Values, Interval: m.Interval, Size: m.Size})
		for i := range series.Gaps {
			if n.broken == ferrule.Dropped && series.Gaps[i].Reason == ferrule.Lost {
				series.Gaps[i].Reason = n.broken // it was asked in time
			}
		}
		return signal{ring: ring}, series
	}
	if len(m.Values) != 1 || math.IsNaN(m.Values[0]) || math.IsInf(m.Values[0], 0) {
		n.broken = ferrule.Silent
		return n, ferrule.SampleBatch{}
	}
	then := signal{value: m.Values[0], from: got.sent.Add(-ring.Oldest(m.Interval)), to: got.came, told: got.came}
	if !m.State {
		return then, ferrule.SampleBatch{Samples: []ferrule.Sample{between(then.from, then.to, then.value)}, Gaps: n.hole(then, every)}
	}
	series := n.edge(then)
	if len(series.Samples) == 0 {
		then.told = n.told
	}
	return then, series
}

// between is a sample that was taken from one time to another.
func between(from, to time.Time, value float64) ferrule.Sample {
	half := to.Sub(from) / 2
	return ferrule.Sample{Time: from.Add(half), Value: value, Within: ferrule.Duration(to.Sub(from) - half)}
}

// hole is what may be missing between two values.
func (n signal) hole(then signal, every time.Duration) []ferrule.Gap {
	last, now := between(n.from, n.to, 0).Time, between(then.from, then.to, 0).Time
	if n.broken == "" || n.from.IsZero() || !now.After(last) {
		return nil
	}
	missing := int((now.Sub(last)+every/2)/every) - 1
	return []ferrule.Gap{{From: last, To: now, Reason: n.broken, MaxMissing: max(missing, 1)}}
}

// edge is what a state is recorded as. One that changes has done so between the last
// question that saw the other and this one. One that is seen for the first time, or still,
// is told as it is; if it was not seen for a while, it may have changed there and back.
func (n signal) edge(then signal) ferrule.SampleBatch {
	now := between(then.from, then.to, then.value)
	switch {
	case n.from.IsZero():
		return ferrule.SampleBatch{Samples: []ferrule.Sample{now}}
	case n.value != then.value && then.to.After(n.from):
		return ferrule.SampleBatch{Samples: []ferrule.Sample{between(n.from, then.to, then.value)}}
	case !now.Time.After(n.to) || n.broken == "" && then.to.Sub(n.told) < seen:
		return ferrule.SampleBatch{}
	case n.broken == "":
		return ferrule.SampleBatch{Samples: []ferrule.Sample{now}}
	}
	return ferrule.SampleBatch{
		Samples: []ferrule.Sample{now},
		Gaps:    []ferrule.Gap{{From: n.to, To: now.Time, Reason: n.broken}},
	}
}

// ringsAt is a moment not before another at which what a probe brings is best read.
func (p *probe) ringsAt(from time.Time) time.Time {
	for _, n := range p.signals {
		from = n.ring.Due(from)
	}
	return from
}
