package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Limits of the span queue, and the pace of export.
const (
	maxQueue      = 8192 // spans that wait or are being sent; more are dropped
	maxBatch      = 512  // spans per request
	batchTimeout  = time.Second
	exportTimeout = 10 * time.Second
	retryMin      = time.Second // before an unreachable collector is tried again
	retryMax      = 30 * time.Second
	flushTimeout  = 2 * time.Second // for what is left at shutdown
)

// exporter sends spans to a collector. The SDK's batch span processor queues and
// batches them. exporter adds what it lacks: a limit that is counted, and retries while
// the collector is unreachable.
type exporter struct {
	otlp   *otlptrace.Exporter
	client *client
	log    *slog.Logger
	reason string // why the last export failed; empty if it did not

	queue    func() sdktrace.SpanProcessor // started by the first span, or by run
	queued   atomic.Int64
	flushing chan struct{} // closed at shutdown: no more retries
	ctx      context.Context
	cancel   context.CancelFunc // ends an export at shutdown

	sent, failed, dropped atomic.Uint64
}

func newExporter(endpoint string, log *slog.Logger) *exporter {
	c := newClient(endpoint)
	e := &exporter{otlp: otlptrace.NewUnstarted(c), client: c, log: log, flushing: make(chan struct{})}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.queue = sync.OnceValue(func() sdktrace.SpanProcessor {
		return sdktrace.NewBatchSpanProcessor(e, sdktrace.WithMaxQueueSize(maxQueue), sdktrace.WithMaxExportBatchSize(maxBatch),
			sdktrace.WithBatchTimeout(batchTimeout), sdktrace.WithExportTimeout(0))
	})
	return e
}

// run exports spans until ctx ends, then flushes what is left, within flushTimeout.
func (e *exporter) run(ctx context.Context) {
	queue := e.queue()
	<-ctx.Done()
	close(e.flushing)
	defer time.AfterFunc(flushTimeout, e.cancel).Stop()
	queue.Shutdown(context.Background())
	e.cancel()
	e.client.close()
}

// OnStart implements sdktrace.SpanProcessor.
func (e *exporter) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd implements sdktrace.SpanProcessor. It does not block.
func (e *exporter) OnEnd(span sdktrace.ReadOnlySpan) {
	if e.queued.Add(1) > maxQueue {
		e.queued.Add(-1)
		e.dropped.Add(1)
		return
	}
	e.queue().OnEnd(span)
}

// ForceFlush implements sdktrace.SpanProcessor. It is never called.
func (e *exporter) ForceFlush(context.Context) error { return nil }

// Shutdown implements sdktrace.SpanProcessor and sdktrace.SpanExporter; run flushes.
func (e *exporter) Shutdown(context.Context) error { return nil }

// ExportSpans implements sdktrace.SpanExporter. It is called for one batch at a time.
func (e *exporter) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	defer e.queued.Add(-int64(len(spans)))
	for pause := retryMin; ; pause = min(2*pause, retryMax) {
		ctx, cancel := context.WithTimeout(e.ctx, exportTimeout)
		err := e.otlp.ExportSpans(ctx, spans)
		cancel()
		e.report(err)
		var unreachable *unreachableError
		if !errors.As(err, &unreachable) || !e.wait(pause) {
			e.count(uint64(len(spans)), err)
			return nil // it is counted and logged here
		}
	}
}

// wait pauses before a retry. It reports false at shutdown.
func (e *exporter) wait(pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-e.flushing:
		return false
	}
}

func (e *exporter) count(spans uint64, err error) {
	var rejected *rejectedError
	switch {
	case errors.As(err, &rejected):
		n := min(rejected.spans, spans)
		e.failed.Add(n)
		e.sent.Add(spans - n)
	case err != nil:
		e.failed.Add(spans)
	default:
		e.sent.Add(spans)
	}
}

// report logs when exports start to fail, and when they succeed again.
func (e *exporter) report(err error) {
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	switch last := e.reason; {
	case reason == "" && last != "":
		e.log.Info("traces: sending again")
	case reason != "" && last == "":
		e.log.Warn("traces: cannot send", "err", reason)
	}
	e.reason = reason
}
