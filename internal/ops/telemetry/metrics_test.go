package telemetry_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/histogram"
	"github.com/ferrulehq/ferrule/internal/ops/telemetry"
)

// everything returns a Telemetry with all sources.
func everything(t *testing.T) *telemetry.Telemetry {
	t.Helper()
	cfg := telemetry.DefaultConfig()
	cfg.Readings, cfg.Endpoint = true, "http://127.0.0.1:9"
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	return telemetry.New(telemetry.Parts{
		Config: cfg, Node: "here", Version: "1.2.3", Log: slog.New(slog.DiscardHandler),
		Sources: telemetry.Sources{
			Devices: func(fn func(*ferrule.Device)) {
				fn(robot)
				fn(&ferrule.Device{ID: "lamp", State: ferrule.StateOnline, Transport: "tcp", Protocol: "mcpu", Trust: ferrule.TrustAdopted, Labels: map[string]string{"room": "kitchen"}})
				fn(&ferrule.Device{ID: "found", State: ferrule.StateOffline, Transport: "serial", Trust: ferrule.TrustPending, Labels: map[string]string{"room": "cellar"}})
			},
			Lanes:    func() telemetry.Lanes { return telemetry.Lanes{Busy: 2, Waiting: 3} },
			Cache:    func() telemetry.Cache { return telemetry.Cache{Hits: 4, Misses: 5, Entries: 6, Bytes: 7, Limited: 8} },
			Sessions: func() int { return 9 },
			Tasks: func() map[ferrule.TaskStatus]int {
				return map[ferrule.TaskStatus]int{ferrule.TaskWorking: 35, ferrule.TaskCompleted: 0}
			},
			Stop: func() telemetry.Stop { return telemetry.Stop{Everything: true, Devices: 32} },
			Cluster: func() telemetry.Cluster {
				return telemetry.Cluster{Mode: "join", Tenant: "acme", Working: true, Nodes: 10, Records: 11, Spooled: 12, Lost: 13, Sending: 14, Serving: 15}
			},
			Journal: func() telemetry.Journal {
				return telemetry.Journal{Records: 16, Failures: 17, Bytes: 18, Healthy: true}
			},
			Poller: func() telemetry.Poller {
				return telemetry.Poller{
					Devices: 29, Polls: 19, BackingOff: 20, Waiting: 30, Reads: 121, Failures: 21, Samples: 22, Dropped: 31,
					Late: histogram.Snapshot{Bounds: []time.Duration{5 * time.Millisecond, time.Second}, Counts: []uint64{23, 24, 25}, Sum: 26 * time.Second},
				}
			},
			History: func() telemetry.History {
				return telemetry.History{Signals: 32, Samples: 33, Refused: 34, Behind: 27, Bytes: 28, Recording: true}
			},
		},
	})
}

// fetch returns the text of /metrics, and the type and labels of each metric by name.
func fetch(t *testing.T, o *telemetry.Telemetry) (text string, all map[string]string) {
	t.Helper()
	w := httptest.NewRecorder()
	o.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	text = w.Body.String()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	all = make(map[string]string)
	for name, family := range families {
		labels := make(map[string]bool)
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = true
			}
		}
		all[name] = strings.ToLower(family.GetType().String()) + " " + strings.Join(slices.Sorted(maps.Keys(labels)), ", ")
	}
	return text, all
}

// has checks that a text has lines.
func has(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("missing: %s", line)
		}
	}
}

func TestMetrics(t *testing.T) {
	o := everything(t)
	handle := newPipeline(o.Meters(), func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		if call.Tool == "move" {
			return nil, ferrule.Errorf(ferrule.Unanswered, "silence")
		}
		return done, nil
	})
	for _, call := range []ferrule.Call{
		{Principal: robby, Device: "robot", Tool: "look"},
		{Principal: robby, Device: "robot", Tool: "look"},
		{Principal: robby, Device: "robot", Tool: "move"},
		{Principal: robby, Device: "robot", Operation: ferrule.ReadResource, Tool: "file:///log"},
		{Principal: ferrule.Principal{Role: ferrule.Person}, Device: "nobody", Tool: "look"},
		{Principal: ferrule.Principal{Role: "stranger"}, Device: "robot", Operation: "dance", Tool: "look"},
	} {
		handle(t.Context(), &call)
	}
	o.Synced(3 * time.Millisecond)
	o.Accessed(ferrule.AccessLogin, false)
	for range 3 {
		o.Accessed(ferrule.AccessTokenUsed, true)
		o.Accessed("invented", true)
	}
	now := time.Now()
	o.Record(ferrule.Reading{Device: "robot", Node: "here", Poll: "room", Time: now, Batches: []ferrule.SampleBatch{
		{Signal: "temperature", Unit: "°C", Samples: []ferrule.Sample{{Time: now, Value: 20}, {Time: now, Value: 21.5}}},
		{Signal: "silent"},
	}})
	text, _ := fetch(t, o)
	has(t, text,
		`ferrule_build_info{go="`+runtime.Version()+`",version="1.2.3"} 1`,
		`ferrule_calls_total{operation="tool",outcome="ok",role="agent"} 2`,
		`ferrule_calls_total{operation="tool",outcome="unanswered",role="agent"} 1`,
		`ferrule_calls_total{operation="tool",outcome="internal",role="gateway"} 0`,
		`ferrule_calls_total{operation="read",outcome="ok",role="agent"} 1`,
		`ferrule_calls_total{operation="tool",outcome="not_found",role="person"} 1`,
		`ferrule_calls_total{operation="other",outcome="not_found",role="other"} 1`,
		`ferrule_caller_calls_total{auth="token",caller="agent:robby"} 4`,
		`ferrule_caller_calls_total{auth="other",caller="person"} 1`,
		`ferrule_access_total{event="login",result="ok"} 1`,
		`ferrule_access_total{event="token_used",result="refused"} 3`,
		`ferrule_access_total{event="consent",result="refused"} 0`,
		`ferrule_access_total{event="other",result="refused"} 3`,
		`ferrule_calls_in_flight{role="agent"} 0`,
		`ferrule_call_duration_seconds_count{role="agent"} 4`,
		`ferrule_call_duration_seconds_bucket{role="agent",le="+Inf"} 4`,
		`ferrule_call_duration_seconds_count{role="other"} 1`,
		`ferrule_device_duration_seconds_count{role="agent"} 4`,
		`ferrule_lane_wait_seconds_count{role="person"} 0`,
		`ferrule_devices{protocol="mcpu",state="online",transport="tcp"} 2`,
		`ferrule_devices{protocol="",state="offline",transport="serial"} 1`,
		`ferrule_devices_pending 1`,
		`ferrule_lanes_busy 2`, `ferrule_lanes_waiting_calls 3`,
		`ferrule_cache_lookups_total{result="hit"} 4`, `ferrule_cache_lookups_total{result="miss"} 5`,
		`ferrule_cache_entries 6`, `ferrule_cache_bytes 7`, `ferrule_calls_limited_total 8`, `ferrule_agent_sessions 9`,
		`ferrule_tasks{status="working"} 35`, `ferrule_tasks{status="completed"} 0`,
		`ferrule_cluster_info{mode="join",node="here",tenant="acme"} 1`, `ferrule_cluster_working 1`, `ferrule_cluster_nodes 10`,
		`ferrule_cluster_records_waiting 11`, `ferrule_cluster_events_waiting 12`, `ferrule_cluster_events_lost_total 13`,
		`ferrule_cluster_calls_sending 14`, `ferrule_cluster_calls_serving 15`,
		`ferrule_journal_records_total 16`, `ferrule_journal_failures_total 17`, `ferrule_journal_size_bytes 18`, `ferrule_journal_healthy 1`, `ferrule_stopped 1`, `ferrule_stopped_devices 32`,
		`ferrule_journal_sync_duration_seconds_sum 0.003`, `ferrule_journal_sync_duration_seconds_bucket{le="0.0025"} 0`,
		`ferrule_journal_sync_duration_seconds_bucket{le="0.005"} 1`, `ferrule_journal_sync_duration_seconds_count 1`,
		`ferrule_poller_polls 19`, `ferrule_poller_polls_backing_off 20`, `ferrule_poller_reads_total{result="ok"} 100`,
		`ferrule_poller_reads_total{result="failed"} 21`, `ferrule_poller_samples_total 22`,
		`ferrule_poller_devices 29`, `ferrule_poller_polls_waiting 30`, `ferrule_poller_readings_dropped_total 31`,
		`ferrule_poller_lateness_seconds_bucket{le="0.005"} 23`, `ferrule_poller_lateness_seconds_bucket{le="1"} 47`,
		`ferrule_poller_lateness_seconds_sum 26`, `ferrule_poller_lateness_seconds_count 72`,
		`ferrule_history_signals 32`, `ferrule_history_samples_total 33`, `ferrule_history_samples_refused_total 34`, `ferrule_history_readings_waiting 27`, `ferrule_history_size_bytes 28`, `ferrule_history_recording 1`,
		`ferrule_reading{device="robot",signal="temperature",unit="°C"} 21.5`,
		`ferrule_readings_dropped_total 0`,
		`ferrule_spans_total{result="sent"} 0`,
	)
	if strings.Contains(text, `signal="silent"`) || strings.Contains(text, `tool="look"`) || strings.Contains(text, "invented") {
		t.Error("unexpected metric or label")
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%+v, %v", problems, err)
	}
}

// TestStages checks that the duration of a stage does not include the stages behind it.
func TestStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := telemetry.New(telemetry.Parts{Config: telemetry.DefaultConfig()})
		m := o.Meters()
		wait := func(d time.Duration, next ...ferrule.Handler) ferrule.Handler {
			return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
				for _, handle := range next {
					handle(ctx, call)
				}
				time.Sleep(d)
				return nil, nil
			}
		}
		device := ferrule.Measured(m.For(ferrule.PartDevice), wait(4*time.Second))
		lane := ferrule.Measured(m.For(ferrule.PartLane), wait(3*time.Second))
		inner := ferrule.Measured(m.For("inner"), wait(2*time.Second, lane, device, lane))
		outer := ferrule.Measured(m.For("outer"), wait(time.Second, inner))
		handle := ferrule.Measured(m.For(ferrule.PartPipeline), outer)
		for range 2 {
			if call := (&ferrule.Call{Principal: robby}); call.MeterState != nil {
				t.Error("meter state is left on the call")
			} else {
				handle(t.Context(), call)
			}
		}
		text, _ := fetch(t, o)
		has(t, text,
			`ferrule_stage_duration_seconds_sum{stage="outer"} 2`, `ferrule_stage_duration_seconds_sum{stage="inner"} 4`,
			`ferrule_stage_duration_seconds_count{stage="outer"} 2`, `ferrule_stage_duration_seconds_bucket{stage="inner",le="2.5"} 2`,
			`ferrule_lane_wait_seconds_sum{role="agent"} 12`, `ferrule_lane_wait_seconds_count{role="agent"} 4`,
			`ferrule_device_duration_seconds_sum{role="agent"} 8`, `ferrule_call_duration_seconds_sum{role="agent"} 26`,
		)
	})
}

// TestStageSampling checks that stages are timed for at most one call per millisecond,
// while all calls are counted.
func TestStageSampling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := telemetry.New(telemetry.Parts{Config: telemetry.DefaultConfig()})
		call := look(newPipeline(o.Meters(), answer))
		for range 10 {
			for range 50 {
				call()
			}
			time.Sleep(time.Millisecond)
		}
		text, _ := fetch(t, o)
		has(t, text, `ferrule_calls_total{operation="tool",outcome="ok",role="agent"} 500`, `ferrule_stage_duration_seconds_count{stage="audit"} 10`)
	})
}

// TestLabels checks that the labels of adopted devices are exported with the readings, up to
// a limit.
func TestLabels(t *testing.T) {
	text, _ := fetch(t, everything(t))
	if has(t, text, `ferrule_device_label{device="lamp",key="room",value="kitchen"} 1`); strings.Contains(text, "cellar") {
		t.Error("the labels of a pending device are exported")
	}
	cfg := telemetry.DefaultConfig()
	count := func() int {
		text, _ := fetch(t, telemetry.New(telemetry.Parts{Config: cfg, Sources: telemetry.Sources{Devices: func(fn func(*ferrule.Device)) {
			for i := range 20_000 {
				fn(&ferrule.Device{ID: fmt.Sprint("d", i), Trust: ferrule.TrustAdopted, Labels: map[string]string{"room": "x"}})
			}
		}}}))
		return strings.Count(text, "\nferrule_device_label{")
	}
	if n := count(); n != 0 {
		t.Errorf("%d labels are exported by default", n)
	}
	cfg.Readings = true
	if n := count(); n != 10_000 {
		t.Errorf("%d labels are exported", n)
	}
}

// TestReadings checks that stale values and signals beyond the limit are left out.
func TestReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := telemetry.DefaultConfig()
		cfg.Readings = true
		o := telemetry.New(telemetry.Parts{Config: cfg})
		measure := func(device, signal string, value float64) {
			o.Record(ferrule.Reading{Device: device, Batches: []ferrule.SampleBatch{{Signal: signal, Unit: "\xff\x00", Samples: []ferrule.Sample{{Value: value}}}}})
		}
		for i := range 10_000 {
			measure("many", fmt.Sprint("s", i), 1)
		}
		measure("late", "s", 1)
		measure("many", "s0", 2)
		count := func() (n int, text string) {
			text, _ = fetch(t, o)
			return strings.Count(text, "\nferrule_reading{"), text
		}
		n, text := count()
		if has(t, text, `ferrule_readings_dropped_total 1`); n != 10_000 || !regexp.MustCompile(`device="many",signal="s0",unit="[^"]*"} 2\n`).MatchString(text) {
			t.Errorf("%d readings", n)
		}
		time.Sleep(5*time.Minute - time.Second)
		measure("many", "s1", 3)
		time.Sleep(2 * time.Second)
		measure("late", "s", 4)
		if n, text := count(); n != 2 || !strings.Contains(text, `device="late"`) {
			t.Errorf("%d readings", n)
		}
	})
	o := telemetry.New(telemetry.Parts{Config: telemetry.DefaultConfig()})
	o.Record(ferrule.Reading{Device: "robot", Batches: []ferrule.SampleBatch{{Signal: "s", Samples: []ferrule.Sample{{Value: 1}}}}})
	if text, _ := fetch(t, o); strings.Contains(text, "ferrule_reading") {
		t.Error("readings are exposed by default")
	}
}

// TestOff checks that nothing is measured if nothing is exposed.
func TestOff(t *testing.T) {
	cfg := telemetry.DefaultConfig()
	cfg.Metrics = false
	o := telemetry.New(telemetry.Parts{Config: cfg})
	if o.Meters() != nil || o.Handler() != nil {
		t.Error("calls are measured")
	}
	if o.Traces() {
		t.Error("traces are exported")
	}
}

func TestConfig(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*telemetry.Config)
		want   string
	}{
		"default":            {func(*telemetry.Config) {}, ""},
		"a collector":        {func(c *telemetry.Config) { c.Endpoint = "https://collector.example.com/v1/traces" }, ""},
		"readings alone":     {func(c *telemetry.Config) { c.Metrics, c.Readings = false, true }, "readings: "},
		"ratio above 1":      {func(c *telemetry.Config) { c.Ratio = 1.1 }, "traces.ratio: "},
		"negative ratio":     {func(c *telemetry.Config) { c.Ratio = -1 }, "traces.ratio: "},
		"not a URL":          {func(c *telemetry.Config) { c.Endpoint = "127.0.0.1:4318" }, "traces.endpoint: "},
		"unsupported scheme": {func(c *telemetry.Config) { c.Endpoint = "grpc://127.0.0.1:4317" }, "traces.endpoint: "},
	} {
		cfg := telemetry.DefaultConfig()
		test.change(&cfg)
		if err := cfg.Check(); (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// exposedMetrics returns the type and labels of every metric by name.
func exposedMetrics(t *testing.T) map[string]string {
	t.Helper()
	o := everything(t)
	look(newPipeline(o.Meters(), answer))()
	o.Record(ferrule.Reading{Device: "robot", Batches: []ferrule.SampleBatch{{Signal: "s", Unit: "V", Samples: []ferrule.Sample{{Value: 1}}}}})
	_, all := fetch(t, o)
	return all
}
