package ferrule

import (
	"context"
	"strings"
	"time"
)

// Meter measures one part of the way that calls take. It is told of every call, by many
// goroutines, and is to cost next to nothing. Begin and End are called by the goroutine
// that serves the call; parts may lie in each other, and do not overlap otherwise.
type Meter interface {
	// Begin tells that a call comes to the part. The context is for what is done there,
	// and the Span for End. Where the call goes on to another node, the Meter may put
	// another Parent into it.
	Begin(ctx context.Context, call *Call) (context.Context, Span)
	// End tells that the call leaves the part, with an error or without.
	End(span Span, call *Call, err error)
}

// Span is one call in one part of its way. It is the Meter's own.
type Span struct {
	// Began is when, by the Meter's clock.
	Began time.Duration
	// Before is what the parts took that have ended by then, beside this one.
	Before time.Duration
	// Of is what follows the call elsewhere; nil if nothing does.
	Tracked any
}

// The parts of the way, beside the stages of the road, which are known by their names.
const (
	PartPipeline = "pipeline" // all of the road
	PartFleet    = "fleet"    // what lies behind the road
	PartLane     = "lane"     // the wait for a device's lane
	PartDevice   = "device"   // what the device takes
	PartNode     = "node"     // at another node, with the way there
	PartServe    = "serve"    // a call of another node
)

// Meters finds the Meter of a part. A nil one measures nothing.
type Meters func(part string) Meter

// Of is the Meter of a part. It is never nil.
func (m Meters) For(part string) Meter {
	if m == nil {
		return unmeasured{}
	}
	return m(part)
}

// Measured is a Handler that is a part of the way.
func Measured(m Meter, next Handler) Handler {
	if _, nothing := m.(unmeasured); nothing {
		return next
	}
	return func(ctx context.Context, call *Call) (*Result, error) {
		ctx, span := m.Begin(ctx, call)
		result, err := next(ctx, call)
		m.End(span, call, err)
		return result, err
	}
}

// unmeasured is a Meter that measures nothing.
type unmeasured struct{}

func (unmeasured) Begin(ctx context.Context, _ *Call) (context.Context, Span) { return ctx, Span{} }

func (unmeasured) End(Span, *Call, error) {}

// Traceparent is a text as W3C's Trace Context has it, in its first version: what
// follows in a later one is left out. It is empty if the text is none.
func Traceparent(text string) string {
	const length, zeros = 55, "00000000000000000000000000000000"
	if len(text) < length || len(text) > length && (text[length] != '-' || text[:2] == "00") || text[:2] == "ff" {
		return ""
	}
	text = text[:length]
	for i, c := range []byte(text) {
		dash := i == 2 || i == 35 || i == 52
		if dash != (c == '-') || !dash && strings.IndexByte("0123456789abcdef", c) < 0 {
			return ""
		}
	}
	if text[3:35] == zeros || text[36:52] == zeros[:16] {
		return ""
	}
	return "00" + text[2:]
}
