package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// meter is a Sampler, and serves the gateway's tool.
type meter struct {
	mu        sync.Mutex
	callbacks map[string]map[*func(ferrule.Reading)]bool // by device
	begun     int
	signals   map[string][]string // by device; nil for an offline device
	calls     []string
}

func newMeter() *meter {
	return &meter{callbacks: make(map[string]map[*func(ferrule.Reading)]bool), signals: map[string][]string{"robot": {"speed", "heat"}, "lamp": {"heat"}}}
}

// Samples implements Sampler. As in the cluster, stop waits for a callback to return.
func (m *meter) Samples(device, signal string, fn func(ferrule.Reading)) (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.callbacks[device] == nil {
		m.callbacks[device] = make(map[*func(ferrule.Reading)]bool)
	}
	m.callbacks[device][&fn] = true
	m.begun++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.callbacks[device], &fn)
	}
}

// measure reports a reading of a device, and returns the number of callbacks.
func (m *meter) measure(device string, signals ...string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := ferrule.Reading{Device: device}
	for _, s := range signals {
		r.Batches = append(r.Batches, ferrule.SampleBatch{Signal: s})
	}
	for fn := range m.callbacks[device] {
		(*fn)(r)
	}
	return len(m.callbacks[device])
}

// handle serves the gateway's tool.
func (m *meter) handle(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, fmt.Sprintf("%s %s %s %s", call.Principal, call.Device, call.Tool, call.Args))
	var in struct{ Device, Signal string }
	if err := json.Unmarshal(call.Args, &in); err != nil || call.Device != ferrule.GatewayID || call.Tool != latestTool {
		return nil, ferrule.Errorf(ferrule.Invalid, "%s of %s with %s: %v", call.Tool, call.Device, call.Args, err)
	}
	all := m.signals[in.Device]
	if all == nil {
		return nil, ferrule.Errorf(ferrule.Offline, "the node of %s cannot be reached", in.Device)
	}
	type sample struct {
		Name  string  `json:"name"`
		Value float64 `json:"value"`
	}
	notified := []sample{}
	for _, name := range all {
		if in.Signal == "" || in.Signal == name {
			notified = append(notified, sample{name, 21.5})
		}
	}
	value, err := json.Marshal(map[string]any{"device": in.Device, "signals": notified})
	return &ferrule.Result{Value: value}, err
}

// called returns how often the tool was called.
func (m *meter) called() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.calls)
}

// withMeter returns a server with two devices that measure.
func withMeter(t *testing.T) (*Server, *meter) {
	t.Helper()
	m := newMeter()
	f := newServerWith(t, m.handle, &ferrule.Manifest{Model: "board"}, m)
	f.put("lamp", ferrule.StateOffline, ferrule.TrustAdopted)
	f.parts.Catalog.Put(&ferrule.Device{ID: ferrule.GatewayID, State: ferrule.StateOnline, Trust: ferrule.TrustAdopted},
		&ferrule.Manifest{Tools: []ferrule.Tool{{Name: latestTool, Effect: ferrule.Reads}}})
	return f, m
}

// TestSignals: signals are listed, completed and read, at the address of a device and
// of the fleet.
func TestSignals(t *testing.T) {
	f, m := withMeter(t)
	for _, version := range versions {
		for device, listed := range map[string]string{
			"":      "[ferrule://devices/lamp/signals/heat ferrule://devices/robot/signals/heat ferrule://devices/robot/signals/speed]",
			"robot": "[ferrule://devices/robot/signals/heat ferrule://devices/robot/signals/speed]",
		} {
			session := connectAt(t, f.viewAt(device), version, nil)
			var uris []string
			for r, err := range session.Resources(t.Context(), nil) {
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(r.URI, signalsPart) {
					uris = append(uris, r.URI)
				}
			}
			if fmt.Sprint(uris) != listed {
				t.Errorf("%s of %q: %s are listed, want %s", version, device, uris, listed)
			}
			templates, err := session.ListResourceTemplates(t.Context(), nil)
			if err != nil || !slices.ContainsFunc(templates.ResourceTemplates, func(r *mcp.ResourceTemplate) bool { return r.URITemplate == signalTemplate.URITemplate }) {
				t.Errorf("%s of %q: no template in %+v, %v", version, device, templates, err)
			}
			words, err := session.Complete(t.Context(), &mcp.CompleteParams{
				Ref: &mcp.CompleteReference{Type: "ref/resource", URI: signalTemplate.URITemplate}, Argument: mcp.CompleteParamsArgument{Name: "signal", Value: "s"},
				Context: &mcp.CompleteContext{Arguments: map[string]string{"device": "robot"}},
			})
			if err != nil || fmt.Sprint(words.Completion.Values) != "[speed]" {
				t.Errorf("%s of %q: %+v, %v", version, device, words, err)
			}
			got, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "ferrule://devices/robot/signals/heat"})
			if err != nil || got.Contents[0].Text != `{"device":"robot","signals":[{"name":"heat","value":21.5}]}` {
				t.Errorf("%s of %q: %+v, %v", version, device, got, err)
			}
			for _, uri := range []string{"robot/signals/taste", "robot/signals/", "robot/signals/a.b", "robot/signals/heat/now", "robot/signals", "nobody/signals/heat"} {
				if got, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: devicesURI + "/" + uri}); err == nil {
					t.Errorf("%s of %q: %s is %+v", version, device, uri, got)
				}
			}
		}
	}
	if at := slices.Index(m.calls, `gateway:lists gateway latest {"device":"lamp"}`); at < 0 || slices.Index(m.calls[at+1:], m.calls[at]) >= 0 {
		t.Errorf("calls for lists: %q", m.calls)
	}
	if !slices.Contains(m.calls, `agent:local/test gateway latest {"device":"robot","signal":"heat"}`) {
		t.Errorf("calls for an agent: %q", m.calls)
	}
	alone := connectAt(t, f.viewAt("robot"), mcphttp.StatelessVersion, nil)
	if _, err := alone.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: signalURI("lamp", "heat")}); err == nil {
		t.Error("an agent at one device reads a signal of another")
	}
}

// TestNoSignals: without recorded measurements there are no signals.
func TestNoSignals(t *testing.T) {
	f, m := withMeter(t)
	f.parts.Catalog.Put(&ferrule.Device{ID: ferrule.GatewayID, State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, &ferrule.Manifest{})
	session := connect(t, f, versions[0], nil)
	for r, err := range session.Resources(t.Context(), nil) {
		if err != nil || strings.Contains(r.URI, signalsPart) {
			t.Errorf("%+v, %v", r, err)
		}
	}
	for r, err := range session.ResourceTemplates(t.Context(), nil) {
		if err != nil || r.URITemplate == signalTemplate.URITemplate {
			t.Errorf("%+v, %v", r, err)
		}
	}
	words, err := session.Complete(t.Context(), &mcp.CompleteParams{
		Ref: &mcp.CompleteReference{Type: "ref/resource", URI: signalTemplate.URITemplate}, Argument: mcp.CompleteParamsArgument{Name: "signal"},
		Context: &mcp.CompleteContext{Arguments: map[string]string{"device": "robot"}},
	})
	if err != nil || len(words.Completion.Values) > 0 {
		t.Errorf("%+v, %v", words, err)
	}
	uri := signalURI("robot", "heat")
	if _, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err == nil {
		t.Error("a signal was read")
	}
	if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err == nil || !strings.Contains(err.Error(), "only device states") {
		t.Errorf("subscribing: %v", err)
	}
	if m.called() > 0 || m.begun > 0 {
		t.Errorf("calls %q, sampled %d times", m.calls, m.begun)
	}
}

// TestSignalsChange: agents are notified when the signals of a device have changed, and
// only then. If a device does not answer, its signals stay.
func TestSignalsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := map[string][]string{"robot": {"heat"}}
		var asked atomic.Int64
		s := &signalNames{known: make(map[string]knownSignals), ask: func(ctx context.Context, device string) ([]string, error) {
			asked.Add(1)
			if device == "slow" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			if all[device] == nil {
				return nil, errors.New("it is away")
			}
			return all[device], nil
		}}
		began := time.Now()
		if !s.update(t.Context(), []string{"slow", "robot"}) || fmt.Sprint(s.of("robot")) != "[heat]" {
			t.Errorf("got signals %q", s.of("robot"))
		}
		if took := time.Since(began); took != signalsTimeout {
			t.Errorf("update took %v", took)
		}
		if s.update(t.Context(), []string{"robot", "slow"}) || asked.Load() != 2 {
			t.Errorf("%d calls", asked.Load())
		}
		all["robot"] = []string{"heat", "speed"}
		time.Sleep(signalsMaxAge)
		if !s.update(t.Context(), []string{"robot"}) || fmt.Sprint(s.of("robot")) != "[heat speed]" {
			t.Errorf("got signals %q", s.of("robot"))
		}
		all["robot"] = nil
		time.Sleep(signalsMaxAge)
		if s.update(t.Context(), []string{"robot"}) || fmt.Sprint(s.of("robot")) != "[heat speed]" || asked.Load() != 4 {
			t.Errorf("got signals %q after %d calls", s.of("robot"), asked.Load())
		}
	})
	find := map[string]func(*mcp.ClientSession) error{
		"the list": func(session *mcp.ClientSession) error {
			_, err := session.ListResources(t.Context(), nil)
			return err
		},
		"a completion": func(session *mcp.ClientSession) error {
			_, err := session.Complete(t.Context(), &mcp.CompleteParams{
				Ref:      &mcp.CompleteReference{Type: "ref/resource", URI: signalTemplate.URITemplate},
				Argument: mcp.CompleteParamsArgument{Name: "signal"},
				Context:  &mcp.CompleteContext{Arguments: map[string]string{"device": "robot"}},
			})
			return err
		},
	}
	for by, most := range map[string]int{"the list": 2, "a completion": 1} {
		f, m := withMeter(t)
		notified := make(chan string, 100)
		session := connect(t, f, versions[0], &mcp.ClientOptions{
			ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { notified <- "resources" },
		})
		for range 3 {
			if err := find[by](session); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-notified:
		case <-time.After(wait.Ample):
			t.Errorf("%s: no notification", by)
		}
		time.Sleep(50 * time.Millisecond)
		if len(notified) > 0 || m.called() != most {
			t.Errorf("%s: %d more notifications, %d calls", by, len(notified), m.called())
		}
	}
}
