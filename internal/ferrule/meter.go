package ferrule

import (
	"context"
	"strings"
	"time"
)

// Meter measures one part of the path of calls. It must be cheap and safe for
// concurrent use. Begin and End are called by the goroutine that serves the call.
// Parts may be nested but do not overlap otherwise.
type Meter interface {
	// Begin is called when a call enters the part. The returned context is for the
	// work in the part; the Span is for End. If the call goes to another node, the
	// Meter may replace its Parent.
	Begin(ctx context.Context, call *Call) (context.Context, Span)
	// End is called when the call leaves the part. The error may be nil.
	End(span Span, call *Call, err error)
}

// Span is the passage of one call through one part. It belongs to the Meter.
type Span struct {
	// Began is the start by the Meter's clock.
	Began time.Duration
	// Before is the time spent in other parts that ended before Began.
	Before time.Duration
	// Tracked is the Meter's own state for the span, such as a trace; it may be nil.
	Tracked any
}

// The parts, in addition to the stages of the pipeline, which have their own names.
const (
	PartPipeline = "pipeline" // the whole pipeline
	PartFleet    = "fleet"    // everything behind the pipeline
	PartLane     = "lane"     // the wait for the device's lane
	PartDevice   = "device"   // the device itself
	PartNode     = "node"     // another node, including the network
	PartServe    = "serve"    // a call from another node
)

// Meters returns the Meter of a part. A nil Meters measures nothing.
type Meters func(part string) Meter

// For returns the Meter of a part. It is never nil.
func (m Meters) For(part string) Meter {
	if m == nil {
		return unmeasured{}
	}
	return m(part)
}

// Measured returns a Handler that measures next.
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

type unmeasured struct{}

func (unmeasured) Begin(ctx context.Context, _ *Call) (context.Context, Span) { return ctx, Span{} }

func (unmeasured) End(Span, *Call, error) {}

// Traceparent returns a W3C Trace Context traceparent in the form of version 00.
// Fields that later versions append are dropped. It returns "" if the text is
// invalid.
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
