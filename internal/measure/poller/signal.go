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

// signal is the state of a signal: how far it is recorded. It is a value, so a reading
// that is not published leaves it unchanged.
type signal struct {
	ring *ring.Ring // for values that the device samples on its own
	// For a value read by a poll: the last value, the earliest and latest time at which it
	// was taken, and why samples may be missing since.
	value     float64
	from, to  time.Time
	gapReason ferrule.GapReason
	// recorded is when a state was last recorded.
	recorded time.Time
}

// errDropped is returned if Publish had no room for a reading.
var errDropped = errors.New("the publish queue is full")

// stateRepeat is how often an unchanged state is recorded, as evidence that it was read.
const stateRepeat = 10 * time.Minute

// historyTimeout limits the wait for earlier samples.
const historyTimeout = 5 * time.Second

// record publishes the new samples of an answer. On an error, the signals of the poll stay
// as they were.
func (s *Poller) record(ctx context.Context, p *poll, spec *ferrule.Poll, got answer, missed ferrule.GapReason) (err error) {
	reading := ferrule.Reading{Device: p.device.id, Node: s.parts.Node, Poll: spec.Name, Time: got.received}
	next := make(map[string]signal, len(got.measurements))
	samples := 0
	for i := range got.measurements {
		m := &got.measurements[i]
		now, known := p.signals[m.Signal]
		if !known && (!hasNumber(m) || !s.claim(p, m.Signal)) {
			continue
		}
		if !known {
			if now, err = s.resume(ctx, p, m, got); err != nil {
				return err
			}
		} else if now.gapReason == "" {
			now.gapReason = missed
		}
		then, batch := now.next(m, got, p.every)
		next[m.Signal] = then
		if len(batch.Samples) == 0 && len(batch.Gaps) == 0 {
			continue
		}
		batch.Signal, batch.Unit = m.Signal, m.Unit
		if spec.Unit != "" {
			batch.Unit = spec.Unit
		}
		samples += len(batch.Samples)
		reading.Batches = append(reading.Batches, batch)
	}
	if len(reading.Batches) > 0 {
		if err := reading.Check(); err != nil {
			return ferrule.Errorf(ferrule.Internal, "invalid reading of %s: %w", spec.Name, err)
		}
		if !s.parts.Publish(reading) {
			s.counts.dropped.Add(1)
			return errDropped
		}
	}
	s.counts.samples.Add(uint64(samples))
	for name, before := range p.signals {
		if _, found := next[name]; !found { // missing in this answer
			before.gapReason = ferrule.Silent
			next[name] = before
		}
	}
	p.signals = next
	return nil
}

// claim reports whether a signal belongs to this poll. The first poll that brings a signal
// owns it. Devices choose the names, so their number is limited.
func (s *Poller) claim(p *poll, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := p.device
	if owner, taken := d.signals[name]; taken {
		return owner == p
	}
	if p.removed || d.claimed >= maxSignals {
		return false
	}
	d.signals[name] = p
	d.claimed++
	return true
}

// resume returns the recorded state of a signal.
func (s *Poller) resume(ctx context.Context, p *poll, m *ferrule.Measurement, got answer) (signal, error) {
	if s.parts.History == nil {
		return signal{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	if isRing(*m) {
		tail, err := s.tail(ctx, p.device.id, m)
		if err != nil {
			return signal{}, fmt.Errorf("reading earlier samples: %w", err)
		}
		return signal{ring: ring.Resume(tail, got.received, m.Interval, m.Size)}, nil
	}
	before, err := s.latest(ctx, p)
	if err != nil {
		return signal{}, fmt.Errorf("reading earlier samples: %w", err)
	}
	last, known := before[m.Signal]
	if !known {
		return signal{}, nil
	}
	at := last.Time
	if at.After(got.sent) { // the clock was set back
		at = got.sent
	}
	return signal{value: last.Value, from: at, to: at, recorded: at, gapReason: ferrule.Silent}, nil
}

// tail returns the last recorded samples of a ring. If a gap follows them, only the last
// sample is returned.
func (s *Poller) tail(ctx context.Context, device string, m *ferrule.Measurement) ([]ferrule.Sample, error) {
	tail, err := s.parts.History.Tail(ctx, device, m.Signal, len(m.Values))
	if err != nil || len(tail) > 0 {
		return tail, err
	}
	all, err := s.parts.History.Latest(ctx, device)
	for _, latest := range all {
		if latest.Signal == m.Signal {
			tail = append(tail, latest.Sample)
		}
	}
	return tail, err
}

// latest returns the last recorded sample of each signal of a device. It is read once; a
// device runs one poll at a time, so no other goroutine reads it meanwhile.
func (s *Poller) latest(ctx context.Context, p *poll) (map[string]ferrule.Sample, error) {
	s.mu.Lock()
	before := p.device.recorded
	s.mu.Unlock()
	if before != nil {
		return before, nil
	}
	all, err := s.parts.History.Latest(ctx, p.device.id)
	if err != nil {
		return nil, err
	}
	before = make(map[string]ferrule.Sample, len(all))
	for _, latest := range all {
		before[latest.Signal] = latest.Sample
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !p.removed {
		p.device.recorded = before
	}
	return before, nil
}

// isRing reports whether the device takes several values on its own.
func isRing(m ferrule.Measurement) bool { return m.Interval > 0 && m.Size > 1 }

func hasNumber(m *ferrule.Measurement) bool {
	for _, v := range m.Values {
		if !math.IsNaN(v) {
			return true
		}
	}
	return false
}

// next returns the state after an answer, and the samples and gaps that are new in it.
func (n signal) next(m *ferrule.Measurement, got answer, every time.Duration) (signal, ferrule.SampleBatch) {
	if isRing(*m) {
		ring, batch := n.ring.Next(ring.Read{Sent: got.sent, Received: got.received, Values: m.Values, Interval: m.Interval, Size: m.Size})
		for i := range batch.Gaps {
			if n.gapReason == ferrule.Dropped && batch.Gaps[i].Reason == ferrule.Lost {
				batch.Gaps[i].Reason = n.gapReason // it was read in time, then dropped here
			}
		}
		return signal{ring: ring}, batch
	}
	if len(m.Values) != 1 || math.IsNaN(m.Values[0]) || math.IsInf(m.Values[0], 0) {
		n.gapReason = ferrule.Silent
		return n, ferrule.SampleBatch{}
	}
	then := signal{value: m.Values[0], from: got.sent.Add(-ring.MaxAge(m.Interval)), to: got.received, recorded: got.received}
	if !m.State {
		return then, ferrule.SampleBatch{Samples: []ferrule.Sample{between(then.from, then.to, then.value)}, Gaps: n.gap(then, every)}
	}
	batch := n.edge(then)
	if len(batch.Samples) == 0 {
		then.recorded = n.recorded
	}
	return then, batch
}

// between returns a sample that was taken between two times.
func between(from, to time.Time, value float64) ferrule.Sample {
	half := to.Sub(from) / 2
	return ferrule.Sample{Time: from.Add(half), Value: value, Within: ferrule.Duration(to.Sub(from) - half)}
}

// gap returns the gap between two values, if samples may be missing.
func (n signal) gap(then signal, every time.Duration) []ferrule.Gap {
	last, now := between(n.from, n.to, 0).Time, between(then.from, then.to, 0).Time
	if n.gapReason == "" || n.from.IsZero() || !now.After(last) {
		return nil
	}
	missing := int((now.Sub(last)+every/2)/every) - 1
	return []ferrule.Gap{{From: last, To: now, Reason: n.gapReason, MaxMissing: max(missing, 1)}}
}

// edge returns what to record of a state. A changed state changed between the last read
// that saw the old value and this one. An unchanged state is recorded when it is first
// seen, every stateRepeat, and after a gap, in which it may have changed twice.
func (n signal) edge(then signal) ferrule.SampleBatch {
	now := between(then.from, then.to, then.value)
	switch {
	case n.from.IsZero():
		return ferrule.SampleBatch{Samples: []ferrule.Sample{now}}
	case n.value != then.value && then.to.After(n.from):
		return ferrule.SampleBatch{Samples: []ferrule.Sample{between(n.from, then.to, then.value)}}
	case !now.Time.After(n.to) || n.gapReason == "" && then.to.Sub(n.recorded) < stateRepeat:
		return ferrule.SampleBatch{}
	case n.gapReason == "":
		return ferrule.SampleBatch{Samples: []ferrule.Sample{now}}
	}
	return ferrule.SampleBatch{
		Samples: []ferrule.Sample{now},
		Gaps:    []ferrule.Gap{{From: n.to, To: now.Time, Reason: n.gapReason}},
	}
}

// ringDue returns the best time to read the poll's rings, not before from.
func (p *poll) ringDue(from time.Time) time.Time {
	for _, n := range p.signals {
		from = n.ring.Due(from)
	}
	return from
}
