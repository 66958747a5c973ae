package telemetry

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/histogram"
)

// watched is attached to a call whose stages are timed or that is traced. Most calls
// have none, and their stages cost nothing.
type watched struct {
	// spent is the time taken by parts that ended inside the current one.
	spent  time.Duration
	timed  bool
	traced bool
}

func watchedOf(call *ferrule.Call) *watched {
	w, _ := call.MeterState.(*watched)
	return w
}

// meter returns the Meter of a part.
func (o *Telemetry) meter(name string) ferrule.Meter {
	p := o.part(name)
	switch name {
	case ferrule.PartPipeline:
		return &pipelineMeter{p}
	case ferrule.PartLane:
		return &leafMeter{p, &o.laneWaits}
	case ferrule.PartDevice:
		return &leafMeter{p, &o.deviceTimes}
	case ferrule.PartNode:
		return &nodeMeter{p}
	case ferrule.PartServe:
		return &serveMeter{p}
	}
	if i := slices.IndexFunc(o.stages, func(s *stageMeter) bool { return s.name == name }); i >= 0 {
		return o.stages[i]
	}
	s := &stageMeter{partMeter: p, times: newDurations()}
	o.stages = append(o.stages, s)
	return s
}

// partMeter is what all Meters have in common.
type partMeter struct {
	o    *Telemetry
	name string
}

func (o *Telemetry) part(name string) partMeter { return partMeter{o, name} }

func (p partMeter) begin(ctx context.Context, w *watched) (context.Context, ferrule.Span) {
	return p.beginAt(ctx, p.o.now(), w)
}

func (p partMeter) beginAt(ctx context.Context, now time.Duration, w *watched) (context.Context, ferrule.Span) {
	span := ferrule.Span{Began: now}
	if w != nil {
		span.Before, w.spent = w.spent, 0
		if w.traced {
			ctx, span.Tracked = p.o.traces.begin(ctx, p.name)
		}
	}
	return ctx, span
}

// end returns how long the part took, with the parts inside it and without them.
func (p partMeter) end(span ferrule.Span, w *watched, call *ferrule.Call, err error) (took, alone time.Duration) {
	took = p.o.now() - span.Began
	alone = took
	if w != nil {
		alone = took - w.spent
		w.spent = span.Before + took
	}
	if s, ok := span.Tracked.(trace.Span); ok {
		p.o.traces.end(s, p.name, call, err)
	}
	return took, alone
}

// pipelineMeter measures whole calls. It counts outcomes, and selects the calls whose
// stages are timed.
type pipelineMeter struct{ partMeter }

func (m *pipelineMeter) Begin(ctx context.Context, call *ferrule.Call) (context.Context, ferrule.Span) {
	m.o.inFlight[roleIndex(call.Principal.Role)].Add(1)
	now := m.o.now()
	timed := m.o.parts.Config.Metrics && m.o.sampler.take(now)
	w := watchedOf(call)
	switch {
	case w != nil:
		w.timed = timed
	case m.o.traces != nil && trace.SpanContextFromContext(ctx).IsSampled(): // a built-in tool calls devices
		w = &watched{timed: timed, traced: true}
	case timed:
		w = &watched{timed: true}
	}
	if w != nil {
		call.MeterState = w
	}
	return m.beginAt(ctx, now, w)
}

func (m *pipelineMeter) End(span ferrule.Span, call *ferrule.Call, err error) {
	took, _ := m.end(span, watchedOf(call), call, err)
	call.MeterState = nil
	m.o.callTimes.add(call, took)
	m.o.calls.add(call, err)
	m.o.callers.add(call.Principal)
	m.o.inFlight[roleIndex(call.Principal.Role)].Add(-1)
}

// stageMeter measures one stage without those behind it, for watched calls only.
type stageMeter struct {
	partMeter
	times *histogram.Histogram
}

func (m *stageMeter) Begin(ctx context.Context, call *ferrule.Call) (context.Context, ferrule.Span) {
	if w := watchedOf(call); w != nil {
		return m.begin(ctx, w)
	}
	return ctx, ferrule.Span{}
}

func (m *stageMeter) End(span ferrule.Span, call *ferrule.Call, err error) {
	w := watchedOf(call)
	if w == nil {
		return
	}
	if _, alone := m.end(span, w, call, err); w.timed {
		m.times.Observe(alone)
	}
}

// leafMeter measures a part that contains no other, for every call.
type leafMeter struct {
	partMeter
	times *byRole
}

func (m *leafMeter) Begin(ctx context.Context, call *ferrule.Call) (context.Context, ferrule.Span) {
	return m.begin(ctx, watchedOf(call))
}

func (m *leafMeter) End(span ferrule.Span, call *ferrule.Call, err error) {
	took, _ := m.end(span, watchedOf(call), call, err)
	m.times.add(call, took)
}

// nodeMeter measures calls to other nodes, which continue the trace.
type nodeMeter struct{ partMeter }

func (m *nodeMeter) Begin(ctx context.Context, call *ferrule.Call) (context.Context, ferrule.Span) {
	w := watchedOf(call)
	ctx, span := m.begin(ctx, w)
	if w != nil && w.traced {
		call.Parent = traceparent(ctx)
	}
	return ctx, span
}

func (m *nodeMeter) End(span ferrule.Span, call *ferrule.Call, err error) {
	took, _ := m.end(span, watchedOf(call), call, err)
	m.o.toNodes.Observe(took)
}

// serveMeter measures calls from other nodes. A call is traced here if it was there.
type serveMeter struct{ partMeter }

func (m *serveMeter) Begin(ctx context.Context, call *ferrule.Call) (context.Context, ferrule.Span) {
	w := watchedOf(call)
	if w == nil && m.o.traces != nil {
		if from := remote(call.Parent); from.IsSampled() {
			ctx = trace.ContextWithRemoteSpanContext(ctx, from)
			w = &watched{traced: true}
			call.MeterState = w
		}
	}
	return m.begin(ctx, w)
}

func (m *serveMeter) End(span ferrule.Span, call *ferrule.Call, err error) {
	took, _ := m.end(span, watchedOf(call), call, err)
	m.o.fromNodes.Observe(took)
}

// entryMeter decides whether a call is traced: as its caller says in the traceparent,
// else by the configured ratio.
type entryMeter struct{ partMeter }

func (m *entryMeter) Begin(ctx context.Context, call *ferrule.Call) (context.Context, ferrule.Span) {
	inside := ctx
	if from := remote(call.Parent); from.IsValid() {
		inside = trace.ContextWithRemoteSpanContext(ctx, from)
	}
	inside, s := m.o.traces.begin(inside, m.name)
	if !s.SpanContext().IsSampled() {
		return ctx, ferrule.Span{}
	}
	call.MeterState = &watched{traced: true}
	return inside, ferrule.Span{Tracked: s}
}

func (m *entryMeter) End(span ferrule.Span, call *ferrule.Call, err error) {
	call.MeterState = nil
	if s, ok := span.Tracked.(trace.Span); ok {
		m.o.traces.end(s, m.name, call, err)
	}
}
