package telemetry

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// metered is kept with a call that is looked at closely: one whose stages are timed, or
// that is followed. There is none with most calls, and their stages cost nothing.
type metered struct {
	// spent is what the parts took that have ended, in the one that has not.
	spent  time.Duration
	timed  bool
	traced bool
}

func meteredOf(call *ferrule.Call) *metered {
	kept, _ := call.MeterState.(*metered)
	return kept
}

// meter makes the Meter of a part.
func (o *Telemetry) meter(name string) ferrule.Meter {
	p := o.part(name)
	switch name {
	case ferrule.PartPipeline:
		return &road{p}
	case ferrule.PartLane:
		return &leaf{p, &o.waits}
	case ferrule.PartDevice:
		return &leaf{p, &o.takes}
	case ferrule.PartNode:
		return &node{p}
	case ferrule.PartServe:
		return &serve{p}
	}
	if i := slices.IndexFunc(o.stages, func(s *stage) bool { return s.name == name }); i >= 0 {
		return o.stages[i]
	}
	s := &stage{part: p}
	o.stages = append(o.stages, s)
	return s
}

// part is what the Meters have in common.
type part struct {
	o    *Telemetry
	name string
}

func (o *Telemetry) part(name string) part { return part{o, name} }

// begin begins a span.
func (p part) begin(ctx context.Context, kept *metered) (context.Context, ferrule.Span) {
	return p.beginAt(ctx, p.o.now(), kept)
}

func (p part) beginAt(ctx context.Context, now time.Duration, kept *metered) (context.Context, ferrule.Span) {
	span := ferrule.Span{Began: now}
	if kept != nil {
		span.Before, kept.spent = kept.spent, 0
		if kept.traced {
			ctx, span.Tracked = p.o.traces.begin(ctx, p.name)
		}
	}
	return ctx, span
}

// end ends it, and tells how long it took: with the parts in it, and alone.
func (p part) end(span ferrule.Span, kept *metered, call *ferrule.Call, err error) (took, alone time.Duration) {
	took = p.o.now() - span.Began
	alone = took
	if kept != nil {
		alone = took - kept.spent
		kept.spent = span.Before + took
	}
	if s, ok := span.Tracked.(trace.Span); ok {
		p.o.traces.end(s, p.name, call, err)
	}
	return took, alone
}

// road measures the road as a whole. It counts what becomes of calls, and chooses which
// are looked at closely.
type road struct{ part }

func (m *road) Begin(ctx context.Context, call *ferrule.Call) (context.Context, ferrule.Span) {
	m.o.inFlight[roleOf(call.Principal.Role)].Add(1)
	now := m.o.now()
	timed := m.o.parts.Config.Metrics && m.o.pace.passes(now)
	kept := meteredOf(call)
	switch {
	case kept != nil:
		kept.timed = timed
	case m.o.traces != nil && trace.SpanContextFromContext(ctx).IsSampled(): // a tool of the gateway calls others
		kept = &metered{timed: timed, traced: true}
	case timed:
		kept = &metered{timed: true}
	}
	if kept != nil {
		call.MeterState = kept
	}
	return m.beginAt(ctx, now, kept)
}

func (m *road) End(span ferrule.Span, call *ferrule.Call, err error) {
	took, _ := m.end(span, meteredOf(call), call, err)
	call.MeterState = nil
	m.o.whole.add(call, took)
	m.o.calls.add(call, err)
	m.o.inFlight[roleOf(call.Principal.Role)].Add(-1)
}

// stage measures a stage of the road without what follows it, of the calls that are
// looked at closely.
type stage struct {
	part
	times times
}

func (m *stage) Begin(ctx context.Context, call *ferrule.Call) (context.Context, ferrule.Span) {
	if kept := meteredOf(call); kept != nil {
		return m.begin(ctx, kept)
	}
	return ctx, ferrule.Span{}
}

func (m *stage) End(span ferrule.Span, call *ferrule.Call, err error) {
	kept := meteredOf(call)
	if kept == nil {
		return
	}
	if _, alone := m.end(span, kept, call, err); kept.timed {
		m.times.add(alone)
	}
}

// leaf measures a part that has no other in it, of every call.
type leaf struct {
	part
	times *byRole
}

func (m *leaf) Begin(ctx context.Context, call *ferrule.Call) (context.Context, ferrule.Span) {
	return m.begin(ctx, meteredOf(call))
}

func (m *leaf) End(span ferrule.Span, call *ferrule.Call, err error) {
	took, _ := m.end(span, meteredOf(call), call, err)
	m.times.add(call, took)
}

// node measures calls to other nodes, and has them go on with the span of here.
type node struct{ part }

func (m *node) Begin(ctx context.Context, call *ferrule.Call) (context.Context, ferrule.Span) {
	kept := meteredOf(call)
	ctx, span := m.begin(ctx, kept)
	if kept != nil && kept.traced {
		call.Parent = traceparent(ctx)
	}
	return ctx, span
}

func (m *node) End(span ferrule.Span, call *ferrule.Call, err error) {
	took, _ := m.end(span, meteredOf(call), call, err)
	m.o.away.add(took)
}

// serve measures calls of other nodes. One is followed if it was there.
type serve struct{ part }

func (m *serve) Begin(ctx context.Context, call *ferrule.Call) (context.Context, ferrule.Span) {
	kept := meteredOf(call)
	if kept == nil && m.o.traces != nil {
		if from := remote(call.Parent); from.IsSampled() {
			ctx = trace.ContextWithRemoteSpanContext(ctx, from)
			kept = &metered{traced: true}
			call.MeterState = kept
		}
	}
	return m.begin(ctx, kept)
}

func (m *serve) End(span ferrule.Span, call *ferrule.Call, err error) {
	took, _ := m.end(span, meteredOf(call), call, err)
	m.o.served.add(took)
}

// entrance is where calls come in. There it is decided whether one is followed: as
// whoever made it says, else by the ratio.
type entrance struct{ part }

func (m *entrance) Begin(ctx context.Context, call *ferrule.Call) (context.Context, ferrule.Span) {
	inside := ctx
	if from := remote(call.Parent); from.IsValid() {
		inside = trace.ContextWithRemoteSpanContext(ctx, from)
	}
	inside, s := m.o.traces.begin(inside, m.name)
	if !s.SpanContext().IsSampled() {
		return ctx, ferrule.Span{}
	}
	call.MeterState = &metered{traced: true}
	return inside, ferrule.Span{Tracked: s}
}

func (m *entrance) End(span ferrule.Span, call *ferrule.Call, err error) {
	call.MeterState = nil
	if s, ok := span.Tracked.(trace.Span); ok {
		m.o.traces.end(s, m.name, call, err)
	}
}
