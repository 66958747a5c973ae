package poller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/measure/ring"
)

// signal is the state of a signal: how far it is recorded. It is a value, so a reading
// that is not published leaves it unchanged.
type signal struct {
	ring *ring.Ring // for values that the device samples on its own
	// For a value read by a poll: the last value seen, the earliest and latest time at which
	// it was taken, and why samples are missing since.
	value     float64
	from, to  time.Time
	gapReason ferrule.GapReason
	// state reports whether only changes are recorded, and recorded is the time of the last
	// recorded sample. The value may have been seen since.
	state    bool
	unit     string
	recorded time.Time
}

// errDropped is returned if Publish had no room for a reading.
var errDropped = errors.New("the publish queue is full")

// stateRepeat is how often an unchanged state is recorded, as evidence that it was read. If
// the gateway is killed, a gap may start this much too early.
const stateRepeat = time.Minute

// maxLate is after how many usual intervals a value is so late that samples are missing.
const maxLate = 2

// historyTimeout limits the wait for earlier samples.
const historyTimeout = 5 * time.Second

// record publishes the new samples of an answer. On an error, the signals of the poll stay
// as they were.
func (s *Poller) record(ctx context.Context, p *poll, spec *ferrule.Poll, got answer, missed gapReasons) (err error) {
	reading := ferrule.Reading{Device: p.device.id, Node: s.parts.Node, Poll: spec.Name, Time: got.received}
	next := make(map[string]signal, len(got.measurements))
	seen := reading // states that have not changed
	samples := 0
	for i := range got.measurements {
		m := &got.measurements[i]
		now, known := p.signals[m.Signal]
		ifLate := missed.ifLate
		if !known && (!hasNumber(m) || !s.claim(p, m.Signal)) {
			continue
		}
		if !known {
			if now, err = s.resume(ctx, p, m, got); err != nil {
				return err
			}
			ifLate = ferrule.Silent
		} else if now.gapReason == "" {
			now.gapReason = missed.certain
		}
		then, batch := now.next(m, got, p.usual(), ifLate)
		then.unit = cmp.Or(spec.Unit, m.Unit)
		next[m.Signal] = then
		batch.Signal, batch.Unit, batch.State = m.Signal, then.unit, m.State
		if len(batch.Samples) == 0 && len(batch.Gaps) == 0 {
			if s.parts.Seen != nil && then.state && then.gapReason == "" {
				batch.Samples = []ferrule.Sample{then.seen()}
				seen.Batches = append(seen.Batches, batch)
			}
			continue
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
	if len(seen.Batches) > 0 {
		s.parts.Seen(seen)
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

// gapReasons are why samples may be missing since the last value: certain if a poll failed
// or its reading was dropped, ifLate if the value is only late.
type gapReasons struct{ certain, ifLate ferrule.GapReason }

// recordSeen publishes the states of a poll that were seen after they were recorded, so that
// the gap after them starts there. It is called with mu held, while the poll does not run.
func (s *Poller) recordSeen(p *poll) {
	var batches []ferrule.SampleBatch
	for name, n := range p.signals {
		if seen, ok := n.unrecorded(); ok {
			batches = append(batches, ferrule.SampleBatch{Signal: name, Unit: n.unit, State: true, Samples: []ferrule.Sample{seen}})
			n.recorded = seen.Time
			p.signals[name] = n
		}
	}
	for part := range slices.Chunk(batches, ferrule.MaxBatches) {
		reading := ferrule.Reading{Device: p.device.id, Node: s.parts.Node, Poll: p.spec.Name, Time: time.Now(), Batches: part}
		if s.parts.Publish(reading) {
			s.counts.samples.Add(uint64(len(part)))
		} else {
			s.counts.dropped.Add(1)
		}
	}
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
	return signal{value: last.Value, from: at, to: at, recorded: at}, nil
}

// tail returns the last recorded samples of a ring. If a gap follows them, only the last
// sample is returned.
func (s *Poller) tail(ctx context.Context, device string, m *ferrule.Measurement) ([]ferrule.Sample, error) {
	tail, err := s.parts.History.Tail(ctx, device, m.Signal, len(m.Values))
	if err != nil || len(tail) > 0 {
		return tail, err
	}
	all, err := s.parts.History.Recorded(ctx, device)
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
	all, err := s.parts.History.Recorded(ctx, p.device.id)
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

// next returns the state after an answer, and the samples and gaps that are new in it. Usual
// is the usual time between two answers.
func (n signal) next(m *ferrule.Measurement, got answer, usual time.Duration, ifLate ferrule.GapReason) (signal, ferrule.SampleBatch) {
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
	then := signal{value: m.Values[0], from: got.sent.Add(-ring.MaxAge(m.Interval)), to: got.received, state: m.State, recorded: n.recorded}
	batch := ferrule.SampleBatch{Gaps: n.gap(then, usual, ifLate)}
	if m.State {
		batch.Samples = n.edge(then, len(batch.Gaps) > 0)
	} else {
		batch.Samples = []ferrule.Sample{then.seen()}
	}
	if count := len(batch.Samples); count > 0 {
		then.recorded = batch.Samples[count-1].Time
	}
	return then, batch
}

// seen returns the last value as a sample.
func (n signal) seen() ferrule.Sample { return between(n.from, n.to, n.value) }

// unrecorded returns the last value, if it is a state that was seen after it was recorded.
func (n signal) unrecorded() (ferrule.Sample, bool) {
	seen := n.seen()
	return seen, n.state && seen.Time.After(n.recorded)
}

// between returns a sample that was taken between two times.
func between(from, to time.Time, value float64) ferrule.Sample {
	half := to.Sub(from) / 2
	return ferrule.Sample{Time: from.Add(half), Value: value, Within: ferrule.Duration(to.Sub(from) - half)}
}

// gap returns the gap between the last value seen and the next, if samples are missing: if
// a poll failed, or if the next value is late, whatever the cause. A poll that waits for
// another call of the device does not fail, and a short restart misses nothing.
func (n signal) gap(then signal, usual time.Duration, ifLate ferrule.GapReason) []ferrule.Gap {
	if n.from.IsZero() {
		return nil
	}
	last, now := n.seen().Time, then.seen().Time
	passed := now.Sub(last)
	if passed <= 0 || n.gapReason == "" && passed <= maxLate*usual {
		return nil
	}
	gap := ferrule.Gap{From: last, To: now, Reason: cmp.Or(n.gapReason, ifLate)}
	if !then.state {
		gap.MaxMissing = max(1, int((passed+usual/2)/usual)-1)
	}
	return []ferrule.Gap{gap}
}

// edge returns what to record of a state. A changed state changed between the last read
// that saw the old value and this one. An unchanged state is recorded when it is first
// seen and every stateRepeat. In a gap it may have changed several times: both of its ends
// are recorded.
func (n signal) edge(then signal, gap bool) (samples []ferrule.Sample) {
	now := then.seen()
	switch {
	case n.from.IsZero():
		return []ferrule.Sample{now}
	case gap:
		if last, ok := n.unrecorded(); ok {
			samples = append(samples, last)
		}
		return append(samples, now)
	case n.value != then.value && then.to.After(n.from):
		return []ferrule.Sample{between(n.from, then.to, then.value)}
	case now.Time.Sub(n.recorded) >= stateRepeat:
		return []ferrule.Sample{now}
	}
	return nil
}

// ringDue returns the best time to read the poll's rings, not before from.
func (p *poll) ringDue(from time.Time) time.Time {
	for _, n := range p.signals {
		from = n.ring.Due(from)
	}
	return from
}
