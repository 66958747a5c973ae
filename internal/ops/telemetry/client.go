package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// client sends spans as OTLP over HTTP. It is an otlptrace.Client. The official one
// depends on gRPC, which adds 5 MB to the binary.
type client struct {
	endpoint string
	http     http.Client
}

// maxAnswer limits how much of a collector's answer is read.
const maxAnswer = 64 << 10

func newClient(endpoint string) *client {
	if u, err := url.Parse(endpoint); err == nil && (u.Path == "" || u.Path == "/") {
		u.Path = "/v1/traces"
		endpoint = u.String()
	}
	return &client{endpoint: endpoint, http: http.Client{
		Transport:     http.DefaultTransport.(*http.Transport).Clone(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Start implements otlptrace.Client.
func (c *client) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *client) Stop(context.Context) error { return nil }

func (c *client) close() { c.http.CloseIdleConnections() }

// unreachableError means that the collector did not take the spans, and may later.
type unreachableError struct{ error }

func (e *unreachableError) Unwrap() error { return e.error }

// rejectedError means that the collector took the batch, except for some spans.
type rejectedError struct{ spans uint64 }

func (e *rejectedError) Error() string {
	return fmt.Sprintf("collector rejected %d spans", e.spans)
}

// UploadTraces implements otlptrace.Client.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// TracesData encodes to the same bytes as ExportTraceServiceRequest.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	resp, err := c.http.Do(req)
	if err != nil {
		return &unreachableError{err}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests || code == http.StatusBadGateway || code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout:
		return &unreachableError{fmt.Errorf("collector answered %s", resp.Status)}
	case code/100 != 2:
		return fmt.Errorf("collector answered %s", resp.Status)
	case err != nil:
		return nil // the status says that it took them
	}
	if n := rejected(answer); n > 0 {
		return &rejectedError{n}
	}
	return nil
}

// rejected returns how many spans the collector rejected, from its encoded
// ExportTraceServiceResponse: the first field of the first field.
func rejected(answer []byte) uint64 {
	partial, ok := field(answer, protowire.BytesType)
	if !ok {
		return 0
	}
	inner, _ := protowire.ConsumeBytes(partial)
	count, ok := field(inner, protowire.VarintType)
	if !ok {
		return 0
	}
	n, _ := protowire.ConsumeVarint(count)
	return n
}

// field returns the encoded value of field 1 of a message, if it has that type.
func field(message []byte, of protowire.Type) (value []byte, ok bool) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, false
		}
		message = message[n:]
		length := protowire.ConsumeFieldValue(number, kind, message)
		if length < 0 {
			return nil, false
		}
		if number == 1 && kind == of {
			return message[:length], true
		}
		message = message[length:]
	}
	return nil, false
}
