package telemetry_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/telemetry"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// collector receives OTLP over HTTP. TestTrace uses the real OpenTelemetry Collector.
type collector struct {
	*httptest.Server
	mu     sync.Mutex
	answer func() (status int, body []byte) // nil: accept
	spans  []*tracepb.Span
	tries  int
	about  string // attributes of the resource
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var data tracepb.TracesData
		if err == nil {
			err = proto.Unmarshal(body, &data)
		}
		if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tries++
		if c.answer != nil {
			status, body := c.answer()
			if w.WriteHeader(status); status != http.StatusOK {
				return
			}
			w.Write(body)
		}
		for _, of := range data.ResourceSpans {
			c.about = fmt.Sprint(of.Resource.Attributes)
			for _, scope := range of.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// startTelemetry runs a Telemetry that traces calls, until end is called.
func startTelemetry(t *testing.T, endpoint string, ratio float64, log io.Writer) (o *telemetry.Telemetry, end func()) {
	t.Helper()
	cfg := telemetry.DefaultConfig()
	cfg.Endpoint, cfg.Ratio = endpoint, ratio
	o = telemetry.New(telemetry.Parts{Config: cfg, Node: "here", Version: "1.2.3", Log: slog.New(slog.NewTextHandler(log, nil))})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- o.Run(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return o, end
}

// tree draws spans, each below its parent, with their attributes.
func tree(spans []*tracepb.Span, parent []byte, depth int) (out string) {
	for _, s := range spans {
		if !bytes.Equal(s.ParentSpanId, parent) {
			continue
		}
		out += strings.Repeat(" ", depth) + s.Name
		if s.Kind != tracepb.Span_SPAN_KIND_INTERNAL {
			out += " " + strings.ToLower(strings.TrimPrefix(s.Kind.String(), "SPAN_KIND_"))
		}
		for _, a := range s.Attributes {
			out += " " + a.Key + "=" + a.Value.GetStringValue()
		}
		if s.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR {
			out += " error" + s.Status.Message
		}
		out += "\n" + tree(spans, s.SpanId, depth+1)
	}
	return out
}

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestTraces checks the tree of spans of a call, below the span that its caller names.
// Arguments and error messages are not exported.
func TestTraces(t *testing.T) {
	c := startCollector(t)
	o, end := startTelemetry(t, c.URL, 0, t.Output())
	handle := o.Entry(telemetry.EntryAgent, newPipeline(o.Meters(), func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		return nil, ferrule.Errorf(ferrule.Failed, "secret: it is stuck at 7")
	}))
	handle(t.Context(), &ferrule.Call{ID: "c-1", Parent: parent, Principal: robby, Device: "robot", Tool: "move", Args: []byte(`{"to":"secret"}`)})
	end()
	root, err := hex.DecodeString(parent[36:52])
	if err != nil {
		t.Fatal(err)
	}
	const about = " ferrule.call.id=c-1 ferrule.call.role=agent ferrule.call.principal=agent:robby ferrule.call.operation=tool ferrule.device.id=robot ferrule.call.auth=token gen_ai.tool.name=move error"
	want := "agent server error.type=failed" + about + "\n pipeline error.type=failed" + about + "\n"
	indent := "  "
	for _, stage := range []string{"audit", "limit", "resolve", "validate", "authorize", "approve", "hooks", "cache", "deadline", "stop", "bounds", "intent", "questions", "jobs", "fleet"} {
		want += indent + stage + " error.type=failed error\n"
		indent += " "
	}
	want += indent + "lane\n" + indent + "device client error.type=failed ferrule.device.id=robot ferrule.device.transport=tcp ferrule.device.protocol=mcpu error\n"
	if got := tree(c.spans, root, 0); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, s := range c.spans {
		if hex.EncodeToString(s.TraceId) != parent[3:35] {
			t.Errorf("%s belongs to trace %x", s.Name, s.TraceId)
		}
		if strings.Contains(s.String(), "secret") || s.EndTimeUnixNano < s.StartTimeUnixNano {
			t.Errorf("got %v", s)
		}
	}
	for _, word := range []string{"service.name", "ferrule", "service.version", "1.2.3", "service.instance.id", "here"} {
		if !strings.Contains(c.about, word) {
			t.Errorf("%s is missing in %s", word, c.about)
		}
	}
	text, _ := fetch(t, o)
	has(t, text, fmt.Sprintf(`ferrule_spans_total{result="sent"} %d`, len(c.spans)), `ferrule_spans_total{result="failed"} 0`)
}

// TestSampling checks that the caller decides whether a call is traced, else the ratio.
// An invalid traceparent is ignored.
func TestSampling(t *testing.T) {
	const calls = 400
	for name, test := range map[string]struct {
		ratio    float64
		parent   string
		min, max int
	}{
		"all":          {1, "", calls, calls},
		"none":         {0, "", 0, 0},
		"a quarter":    {0.25, "", calls / 8, calls / 2},
		"the caller's": {0, parent, calls, calls},
		"not of those": {1, parent[:53] + "00", 0, 0},
		"hostile":      {0, strings.Repeat("00-", 1000), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := startCollector(t)
			o, end := startTelemetry(t, c.URL, test.ratio, t.Output())
			handle := o.Entry(telemetry.EntryControl, newPipeline(o.Meters(), answer))
			for range calls {
				call := &ferrule.Call{Parent: test.parent, Principal: robby, Device: "robot", Tool: "look"}
				if handle(t.Context(), call); call.MeterState != nil {
					t.Fatal("meter state is left on the call")
				}
			}
			end()
			each := make(map[string]int)
			for _, s := range c.spans {
				each[s.Name]++
			}
			if n := each["control"]; n < test.min || n > test.max || each["device"] != n || each["intent"] != n {
				t.Errorf("of %d calls, %d were traced; spans: %v", calls, n, each)
			}
		})
	}
}

// TestNodes checks that a trace continues on the node that serves the call, and that a
// call made by a built-in tool belongs to the trace of its caller.
func TestNodes(t *testing.T) {
	c := startCollector(t)
	here, endHere := startTelemetry(t, c.URL, 1, t.Output())
	there, endThere := startTelemetry(t, c.URL, 1, t.Output())
	serve := ferrule.Measured(there.Meters().For(ferrule.PartServe), newPipeline(there.Meters(), answer))
	var sent []string
	way := ferrule.Measured(here.Meters().For(ferrule.PartNode), func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		sent = append(sent, call.Parent)
		return serve(t.Context(), &ferrule.Call{Parent: call.Parent, Device: "robot", Tool: "look"}) // as the cluster decodes it
	})
	inner := newPipeline(here.Meters(), way)
	outer := newPipeline(here.Meters(), func(ctx context.Context, _ *ferrule.Call) (*ferrule.Result, error) {
		return inner(ctx, &ferrule.Call{Principal: robby, Device: "robot", Tool: "look"})
	})
	handle := here.Entry(telemetry.EntryStdio, outer)
	handle(t.Context(), &ferrule.Call{Principal: robby, Device: "robot", Tool: "look"})
	inner(t.Context(), &ferrule.Call{Principal: robby, Device: "robot", Tool: "look"}) // it did not pass an entry, so it is not traced
	endHere()
	endThere()
	path := func(s *tracepb.Span) (out string) {
		for s != nil {
			out = s.Name + " " + out
			var above *tracepb.Span
			for _, other := range c.spans {
				if bytes.Equal(other.SpanId, s.ParentSpanId) && bytes.Equal(other.TraceId, s.TraceId) {
					above = other
				}
			}
			s = above
		}
		return out
	}
	const stages = "audit limit resolve validate authorize approve hooks cache deadline stop bounds intent questions jobs fleet "
	want := "stdio pipeline " + stages + "device pipeline " + stages + "device node serve pipeline " + stages + "device "
	found := 0
	for _, s := range c.spans {
		if s.Name == "device" && path(s) == want {
			found++
		}
		if !strings.HasPrefix(path(s), "stdio ") {
			t.Errorf("%s is not below the entry", path(s))
		}
	}
	if found != 1 || len(sent) != 2 || ferrule.Traceparent(sent[0]) == "" || sent[1] != "" {
		t.Errorf("%d spans with the expected path; sent traceparents: %q", found, sent)
	}
}

// TestCollectorUnreachable checks that spans are kept and sent when the collector is back,
// that rejected spans are not sent again, and that shutdown does not wait for it.
func TestCollectorUnreachable(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	c := startCollector(t)
	c.answer = func() (int, []byte) { return http.StatusServiceUnavailable, nil }
	var log bytes.Buffer
	o, end := startTelemetry(t, c.URL+"/", 1, &log)
	look := func() {
		handle := o.Entry(telemetry.EntryControl, newPipeline(o.Meters(), answer))
		handle(t.Context(), &ferrule.Call{Principal: robby, Device: "robot", Tool: "look"})
	}
	tried := func(times int) {
		t.Helper()
		wait.For(t, "a retry", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.tries >= times
		})
	}
	const each = 19 // spans of a call
	look()
	tried(2)
	c.mu.Lock()
	c.answer = nil
	c.mu.Unlock()
	tried(3)
	c.mu.Lock()
	c.answer = func() (int, []byte) {
		partial := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 3)
		return http.StatusOK, protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partial)
	}
	c.mu.Unlock()
	look()
	tried(4)
	c.mu.Lock()
	c.answer = func() (int, []byte) { return http.StatusBadRequest, nil }
	c.mu.Unlock()
	look()
	tried(5)
	c.mu.Lock()
	c.answer = func() (int, []byte) { return http.StatusServiceUnavailable, nil }
	c.mu.Unlock()
	look()
	end()
	if len(c.spans) != 2*each {
		t.Errorf("collector received %d spans", len(c.spans))
	}
	text, _ := fetch(t, o)
	has(t, text, fmt.Sprintf(`ferrule_spans_total{result="sent"} %d`, 2*each-3), fmt.Sprintf(`ferrule_spans_total{result="failed"} %d`, 2*each+3))
	if said := log.String(); strings.Count(said, "traces: cannot send") != 2 || strings.Count(said, "traces: sending again") != 1 {
		t.Errorf("log:\n%s", said)
	}
}

// TestTooManySpans checks that calls do not wait for a collector that hangs.
func TestTooManySpans(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	stuck := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stuck }))
	defer server.Close()
	defer close(stuck)
	o, end := startTelemetry(t, server.URL, 1, io.Discard)
	handle := o.Entry(telemetry.EntryControl, newPipeline(o.Meters(), answer))
	start := time.Now()
	for range 2000 {
		handle(t.Context(), &ferrule.Call{Principal: robby, Device: "robot", Tool: "look"})
	}
	figure.AtMost(t, "2,000 calls while the collector hangs", time.Since(start), 5*time.Second)
	text, all := fetch(t, o)
	if all["ferrule_spans_total"] == "" || strings.Contains(text, `ferrule_spans_total{result="dropped"} 0`) {
		t.Error("no span was dropped")
	}
	start = time.Now()
	end()
	figure.AtMost(t, "shutdown while the collector hangs", time.Since(start), 5*time.Second)
}
