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

// client sends spans as OTLP over HTTP. It is an otlptrace.Client: the one that comes
// with OpenTelemetry brings gRPC with it, which is more than all the rest.
type client struct {
	endpoint string
	http     http.Client
}

// maxAnswer is as much as is read of what a collector answers.
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

// close lets go of connections.
func (c *client) close() { c.http.CloseIdleConnections() }

// awayError is why spans may be sent again: nobody took them.
type awayError struct{ error }

func (e *awayError) Unwrap() error { return e.error }

// refusedError is that some of the spans were not taken, and never will be.
type refusedError struct{ spans uint64 }

func (e *refusedError) Error() string {
	return fmt.Sprintf("the collector has refused %d spans", e.spans)
}

// UploadTraces implements otlptrace.Client.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// What the protocol calls ExportTraceServiceRequest has the same bytes.
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
		return &awayError{err}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests || code == http.StatusBadGateway || code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout:
		return &awayError{fmt.Errorf("the collector answers %s", resp.Status)}
	case code/100 != 2:
		return fmt.Errorf("the collector answers %s", resp.Status)
	case err != nil:
		return nil // it has taken them
	}
	if n := refused(answer); n > 0 {
		return &refusedError{n}
	}
	return nil
}

// refused reads from the answer of a collector how many spans it did not take: the
// first field of the first field, as ExportTraceServiceResponse has it.
func refused(answer []byte) uint64 {
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

// field finds the first field of a message, if it is of a type; what follows it is
// returned as well. It is not ok for what is no message.
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
