package telemetry

import (
	"context"
	"encoding/hex"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// traces creates the spans of traced calls, and exports them.
type traces struct {
	*exporter
	tracer trace.Tracer
}

func newTraces(p Parts) *traces {
	t := &traces{exporter: newExporter(p.Config.Endpoint, p.Log)}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(t.exporter),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(p.Config.Ratio))),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "ferrule"),
			attribute.String("service.version", p.Version),
			attribute.String("service.instance.id", p.Node),
		)),
	)
	t.tracer = provider.Tracer("github.com/ferrulehq/ferrule")
	return t
}

// begin starts the span of a part, below the span in ctx.
func (t *traces) begin(ctx context.Context, name string) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, name, trace.WithSpanKind(kindOf(name)))
}

// kindOf returns server for parts where a call enters, and client where it leaves.
func kindOf(name string) trace.SpanKind {
	switch name {
	case EntryAgent, EntryStdio, EntryControl, EntryConsole, ferrule.PartServe:
		return trace.SpanKindServer
	case ferrule.PartNode, ferrule.PartDevice:
		return trace.SpanKindClient
	}
	return trace.SpanKindInternal
}

// end ends a span with attributes of its call. Arguments, results and error messages
// are never exported.
func (t *traces) end(s trace.Span, name string, call *ferrule.Call, err error) {
	if err != nil {
		code := outcome(err)
		s.SetStatus(codes.Error, "")
		s.SetAttributes(attribute.String("error.type", code))
	}
	switch name {
	case EntryAgent, EntryStdio, EntryControl, EntryConsole, ferrule.PartPipeline, ferrule.PartServe:
		s.SetAttributes(attributes(call)...)
	case ferrule.PartDevice:
		if dev := call.Target.Device; dev != nil {
			s.SetAttributes(attribute.String("ferrule.device.id", dev.ID), attribute.String("ferrule.device.transport", dev.Transport), attribute.String("ferrule.device.protocol", dev.Protocol))
		}
	case ferrule.PartNode:
		if dev := call.Target.Device; dev != nil && dev.Node != "" {
			s.SetAttributes(attribute.String("ferrule.node", dev.Node))
		}
	}
	s.End()
}

// attributes describes a call.
func attributes(call *ferrule.Call) []attribute.KeyValue {
	word := func(text string) string { return ferrule.Clean(text, ferrule.MaxWord) }
	all := []attribute.KeyValue{
		attribute.String("ferrule.call.id", word(call.ID)),
		attribute.String("ferrule.call.role", roles[roleIndex(call.Principal.Role)]),
		attribute.String("ferrule.call.principal", word(call.Principal.String())),
		attribute.String("ferrule.call.operation", operations[operationIndex(call.Operation)]),
		attribute.String("ferrule.device.id", word(call.Device)),
	}
	if auth := call.Principal.Auth; auth != "" {
		all = append(all, attribute.String("ferrule.call.auth", authName(auth)))
	}
	if call.Operation == ferrule.CallTool {
		all = append(all, attribute.String("gen_ai.tool.name", ferrule.Clean(call.Tool, ferrule.MaxToolName)))
	}
	return all
}

// remote parses a traceparent. The result is invalid if the text is.
func remote(text string) trace.SpanContext {
	if text = ferrule.Traceparent(text); text == "" {
		return trace.SpanContext{}
	}
	var id trace.TraceID
	var span trace.SpanID
	var flags [1]byte
	hex.Decode(id[:], []byte(text[3:35]))
	hex.Decode(span[:], []byte(text[36:52]))
	hex.Decode(flags[:], []byte(text[53:55]))
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: trace.TraceFlags(flags[0]) & trace.FlagsSampled, Remote: true})
}

// traceparent returns the header value for the span in ctx.
func traceparent(ctx context.Context) string {
	s := trace.SpanContextFromContext(ctx)
	return "00-" + s.TraceID().String() + "-" + s.SpanID().String() + "-" + s.TraceFlags().String()
}
