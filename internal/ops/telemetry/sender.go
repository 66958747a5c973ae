package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// The bounds and the pace of what is sent.
const (
	maxQueue = 8192 // spans that wait
	maxBatch = 512  // spans of one message
	gather   = time.Second
	sendTime = 10 * time.Second
	pauseMin = time.Second // before a collector that is away is tried again
	pauseMax = 30 * time.Second
	farewell = 2 * time.Second // for what is left in the end
)

// sender brings spans to a collector. What comes while that is away waits, and is
// dropped if there is too much of it. It is a sdktrace.SpanProcessor.
type sender struct {
	exporter *otlptrace.Exporter
	client   *client
	spans    chan sdktrace.ReadOnlySpan
	log      *slog.Logger
	why      string // the last could not be sent

	sent, failed, dropped atomic.Uint64
}

func newSender(endpoint string, log *slog.Logger) *sender {
	c := newClient(endpoint)
	return &sender{exporter: otlptrace.NewUnstarted(c), client: c, spans: make(chan sdktrace.ReadOnlySpan, maxQueue), log: log}
}

// OnStart implements sdktrace.SpanProcessor.
func (s *sender) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd implements sdktrace.SpanProcessor. It does not block.
func (s *sender) OnEnd(span sdktrace.ReadOnlySpan) {
	select {
	case s.spans <- span:
	default:
		s.dropped.Add(1)
	}
}

// ForceFlush implements sdktrace.SpanProcessor. Nobody asks for it.
func (s *sender) ForceFlush(context.Context) error { return nil }

// Shutdown implements sdktrace.SpanProcessor. It is run that ends.
func (s *sender) Shutdown(context.Context) error { return nil }

// run sends spans until ctx ends, and then what is left, if that is quick.
func (s *sender) run(ctx context.Context) {
	var batch []sdktrace.ReadOnlySpan
	for pause := pauseMin; ctx.Err() == nil; {
		if len(batch) == 0 {
			batch, pause = s.batch(ctx), pauseMin
			continue
		}
		if s.send(ctx, batch) {
			batch = nil
			continue
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, pauseMax)
		case <-ctx.Done():
		}
	}
	s.sendLast(ctx, batch)
	s.client.close()
}

// sendLast sends what is left.
func (s *sender) sendLast(ctx context.Context, batch []sdktrace.ReadOnlySpan) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	for batch = s.rest(batch); len(batch) > 0; batch = s.rest(nil) {
		if !s.put(last, batch) {
			s.failed.Add(uint64(len(batch) + len(s.spans)))
			return
		}
	}
}

// batch waits for spans, and gathers them for a moment.
func (s *sender) batch(ctx context.Context) (all []sdktrace.ReadOnlySpan) {
	var soon <-chan time.Time
	for len(all) < maxBatch {
		select {
		case span := <-s.spans:
			if all == nil {
				soon = time.After(gather)
			}
			all = append(all, span)
		case <-soon:
			return all
		case <-ctx.Done():
			return all
		}
	}
	return all
}

// rest adds spans that wait, as far as there is room for them.
func (s *sender) rest(all []sdktrace.ReadOnlySpan) []sdktrace.ReadOnlySpan {
	for len(all) < maxBatch {
		select {
		case span := <-s.spans:
			all = append(all, span)
		default:
			return all
		}
	}
	return all
}

// send sends a batch. Once begun it goes on for a moment when ctx ends: what is taken
// would come twice else.
func (s *sender) send(ctx context.Context, batch []sdktrace.ReadOnlySpan) bool {
	sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTime)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		select {
		case <-time.After(farewell):
			cancel()
		case <-sending.Done():
		}
	})()
	return s.put(sending, batch)
}

// put sends a batch until ctx ends. It is false if nobody was there to take it, and it
// may be sent again.
func (s *sender) put(ctx context.Context, batch []sdktrace.ReadOnlySpan) bool {
	err := s.exporter.ExportSpans(ctx, batch)
	s.tell(err)
	var away *awayError
	var refused *refusedError
	switch count := uint64(len(batch)); {
	case errors.As(err, &away):
		return false
	case errors.As(err, &refused):
		spans := min(refused.spans, count)
		s.failed.Add(spans)
		s.sent.Add(count - spans)
	case err != nil:
		s.failed.Add(count)
	default:
		s.sent.Add(count)
	}
	return true
}

// tell logs that spans begin or cease to be taken.
func (s *sender) tell(err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	switch was := s.why; {
	case why == "" && was != "":
		s.log.Info("traces are sent again")
	case why != "" && was == "":
		s.log.Warn("traces are not taken", "err", why)
	}
	s.why = why
}
