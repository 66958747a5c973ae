package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/notify"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// subscriber connects an agent that records updated resources.
func subscriber(t *testing.T, f *Server, version string) (*mcp.ClientSession, chan string) {
	t.Helper()
	updates := make(chan string, 1000)
	return connect(t, f, version, &mcp.ClientOptions{
		ResourceUpdatedHandler: func(_ context.Context, req *mcp.ResourceUpdatedNotificationRequest) { updates <- req.Params.URI },
	}), updates
}

// subscribed waits until there are so many subscriptions. From 2026-07-28 on a client is
// not answered when it subscribes.
func (s *Server) subscribed(t *testing.T, want int) {
	t.Helper()
	for end := time.Now().Add(wait.Ample); s.notifier.Subscriptions() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("got %d subscriptions, want %d", s.notifier.Subscriptions(), want)
		}
	}
}

// listen sends a subscriptions/listen request, and returns the resources that are
// acknowledged. The request stays open until the test ends.
func listen(t *testing.T, v *view, uris ...string) []string {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	if _, err := v.sdk.Connect(t.Context(), there, nil); err != nil {
		t.Fatal(err)
	}
	conn, err := here.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	id, err := jsonrpc.MakeID("listen")
	if err != nil {
		t.Fatal(err)
	}
	params, err := json.Marshal(map[string]any{
		"notifications": map[string]any{"resourceSubscriptions": uris},
		"_meta":         map[string]any{"io.modelcontextprotocol/protocolVersion": mcphttp.StatelessVersion, "io.modelcontextprotocol/clientCapabilities": map[string]any{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Write(t.Context(), &jsonrpc.Request{ID: id, Method: "subscriptions/listen", Params: params}); err != nil {
		t.Fatal(err)
	}
	message, err := conn.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ack, ok := message.(*jsonrpc.Request)
	if !ok {
		t.Fatalf("got %+v", message)
	}
	var acknowledged mcp.SubscriptionsAcknowledgedParams
	if err := json.Unmarshal(ack.Params, &acknowledged); err != nil {
		t.Fatal(err)
	}
	return acknowledged.Notifications.ResourceSubscriptions
}

// put adds or replaces a device.
func (s *Server) put(id string, state ferrule.State, trust ferrule.Trust) {
	s.parts.Catalog.Put(&ferrule.Device{ID: id, Kind: "k", State: state, Since: time.Now(), Trust: trust}, nil)
}

// TestSubscribe: subscribers of a device's state are notified when it has an event, connects or
// disconnects, and nobody else is.
func TestSubscribe(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			f := newServer(t, nil)
			f.put("lamp", ferrule.StateOnline, ferrule.TrustAdopted)
			go f.Run(t.Context())
			a, updates := subscriber(t, f, version)
			_, other := subscriber(t, f, version)
			if s := a.InitializeResult().Capabilities.Resources; !s.Subscribe || !s.ListChanged {
				t.Errorf("got capabilities %+v", s)
			}
			robot := &mcp.SubscribeParams{URI: "ferrule://devices/robot/state"}
			if err := a.Subscribe(t.Context(), robot); err != nil {
				t.Fatal(err)
			}
			f.subscribed(t, 1)
			expect := func(why string) {
				t.Helper()
				select {
				case uri := <-updates:
					if uri != robot.URI {
						t.Errorf("got update of %s", uri)
					}
				case <-time.After(wait.Ample):
					t.Fatal("not notified that the device " + why)
				}
			}
			f.HandleEvent(ferrule.Event{Type: ferrule.Notified, Device: "lamp"})
			f.HandleEvent(ferrule.Event{Type: ferrule.Notified, Device: "robot"})
			expect("had an event")
			f.put("robot", ferrule.StateOffline, ferrule.TrustAdopted)
			expect("disconnected")
			f.put("robot", ferrule.StateOnline, ferrule.TrustPending)
			expect("is hidden from agents")
			f.HandleMissed(3)
			expect("may have had an event")
			if err := a.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: robot.URI}); err != nil {
				t.Fatal(err)
			}
			f.subscribed(t, 0)
			f.HandleEvent(ferrule.Event{Type: ferrule.Notified, Device: "robot"})
			time.Sleep(2 * notify.UpdateInterval)
			if len(updates) > 0 || len(other) > 0 {
				t.Errorf("%d and %d unexpected updates", len(updates), len(other))
			}
		})
	}
}

// TestSubscribeInvalid: an invalid URI is refused with a message that names a valid one. From
// 2026-07-28 on it is left out of the acknowledgment.
func TestSubscribeInvalid(t *testing.T) {
	f := newServer(t, nil)
	f.put("stranger", ferrule.StateOnline, ferrule.TrustPending)
	older, _ := subscriber(t, f, versions[0])
	newer, _ := subscriber(t, f, mcphttp.StatelessVersion)
	for uri, want := range map[string]string{
		"ferrule://devices/stranger/state":  "not found",
		"ferrule://devices/nobody/state":    "not found",
		"ferrule://devices/gateway/state":   "not found",
		"ferrule://devices/%72obot/state":   "not found",
		"ferrule://devices//state":          "not found",
		"ferrule://devices/robot":           "ferrule://devices/robot/state",
		"ferrule://devices/robot/state/":    "ferrule://devices/robot/state",
		"ferrule://devices/state":           "ferrule://devices/robot/state",
		"test://watched-resource":           "ferrule://devices/robot/state",
		"ferrule://devices/robot/pins/2":    "ferrule://devices/robot/state",
		"ferrule://devices":                 "ferrule://devices/robot/state",
		"":                                  "ferrule://devices/robot/state",
		"ferrule://devices/robot/state?a=b": "ferrule://devices/robot/state",
	} {
		if err := older.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err == nil || !strings.Contains(strings.ToLower(err.Error()), want) {
			t.Errorf("%s: %v", uri, err)
		}
		if uri != "" {
			newer.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}) // the SDK's client does not report what was acknowledged
		}
	}
	v := f.viewAt("")
	f.subscribed(t, 0)
	if got := listen(t, v, stateURI("nobody"), stateURI("robot"), stateURI("robot")); len(got) != 1 || got[0] != stateURI("robot") {
		t.Errorf("acknowledged %q", got)
	}
	alone := f.viewAt("robot")
	f.put("lamp", ferrule.StateOnline, ferrule.TrustAdopted)
	if _, err := alone.topicOf(stateURI("lamp")); err == nil {
		t.Error("an agent at one device can subscribe to another")
	}
}

// TestManySubscriptions: a session has a limit of subscriptions, and all end with it.
func TestManySubscriptions(t *testing.T) {
	f := newServer(t, nil)
	for i := range notify.MaxSubscriptions + 1 {
		f.put(fmt.Sprint("lamp", i), ferrule.StateOnline, ferrule.TrustAdopted)
	}
	a, _ := subscriber(t, f, versions[0])
	for i := range notify.MaxSubscriptions + 1 {
		err := a.Subscribe(t.Context(), &mcp.SubscribeParams{URI: stateURI(fmt.Sprint("lamp", i))})
		if (err == nil) != (i < notify.MaxSubscriptions) {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if err := a.Subscribe(t.Context(), &mcp.SubscribeParams{URI: stateURI("lamp0")}); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if err := a.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: stateURI("lamp0")}); err != nil {
		t.Error(err)
	}
	if err := a.Subscribe(t.Context(), &mcp.SubscribeParams{URI: stateURI(fmt.Sprint("lamp", notify.MaxSubscriptions))}); err != nil {
		t.Errorf("after another was ended: %v", err)
	}
	a.Close()
	f.subscribed(t, 0)
}

// TestSubscribersLeave: subscriptions of an agent that disconnects from HTTP end.
func TestSubscribersLeave(t *testing.T) {
	f, url := serve(t, func(*Server) {})
	for _, version := range versions {
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp"}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: stateURI("robot")}); err != nil {
			t.Fatal(err)
		}
		f.subscribed(t, 1)
		session.Close()
		f.subscribed(t, 0)
	}
}

// TestSubscribersLeaveNothing: the SDK keeps nothing of agents that disconnected.
func TestSubscribersLeaveNothing(t *testing.T) {
	f := newServer(t, nil)
	v := f.viewAt("")
	for i := range 3 {
		id := fmt.Sprint("lamp", i)
		f.put(id, ferrule.StateOnline, ferrule.TrustAdopted)
		session, _ := subscriber(t, f, versions[0])
		if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: stateURI(id)}); err != nil {
			t.Fatal(err)
		}
		session.Close()
	}
	f.subscribed(t, 0)
	if n := reflect.ValueOf(v.sdk).Elem().FieldByName("resourceSubscriptions").Len(); n > 0 {
		t.Errorf("the SDK keeps %d resources", n)
	}
}

// TestListenStreams: each subscriptions/listen stream of a session gets what it asked for, also
// after another stream has ended.
func TestListenStreams(t *testing.T) {
	f := newServer(t, nil)
	toUs, requests := io.Pipe()
	answers, fromUs := io.Pipe()
	go f.Stdio(t.Context(), toUs, fromUs)
	t.Cleanup(func() { requests.Close() })
	lines := bufio.NewScanner(answers)
	expect := func(want ...string) {
		t.Helper()
		var got []string
		for range want {
			lines.Scan()
			got = append(got, lines.Text())
		}
		for _, want := range want {
			if !slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, want) }) {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
	}
	const request = `{"jsonrpc":"2.0","id":%d,"method":"subscriptions/listen","params":{"notifications":{%s},"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}` + "\n"
	for i, wanted := range []string{`"toolsListChanged":true`, `"toolsListChanged":true,"promptsListChanged":true`, `"resourceSubscriptions":["ferrule://devices/robot/state"]`} {
		fmt.Fprintf(requests, request, i+1, wanted)
		expect("acknowledged")
	}
	v := f.viewAt("")
	on := func(method string, listen int) string {
		return fmt.Sprintf(`"method":%q,"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%d}`, method, listen)
	}
	v.group.ListChanged(notify.ToolsChanged)
	expect(on(notify.ToolsChanged, 1), on(notify.ToolsChanged, 2))
	for id := 3; id > 1; id-- {
		fmt.Fprintf(requests, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`+"\n", id)
		expect(fmt.Sprintf(`"id":%d,"result"`, id))
		if id == 3 {
			v.group.ListChanged(notify.PromptsChanged)
			expect(on(notify.PromptsChanged, 2))
		}
	}
	v.group.ListChanged(notify.ToolsChanged)
	expect(on(notify.ToolsChanged, 1))
	for i := range notify.MaxStreams - 1 {
		fmt.Fprintf(requests, request, i+10, `"toolsListChanged":true`)
		expect("acknowledged")
	}
	fmt.Fprintf(requests, request, 9, `"toolsListChanged":true`)
	expect(`"id":9,"error"`)
}

// fakeDevice records its calls. Its secret resources cannot be subscribed to.
type fakeDevice struct {
	mu    sync.Mutex
	calls []string
}

func (d *fakeDevice) handle(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, fmt.Sprintf("%s %s", call.Operation, call.Tool))
	if strings.HasPrefix(call.Tool, "file:///secret") {
		return nil, ferrule.Errorf(ferrule.Refused, "it is secret")
	}
	return &ferrule.Result{}, nil
}

// called waits until the device has had these calls.
func (d *fakeDevice) called(t *testing.T, want ...string) {
	t.Helper()
	var got string
	for end := time.Now().Add(wait.Ample); time.Now().Before(end); time.Sleep(time.Millisecond) {
		d.mu.Lock()
		got = fmt.Sprint(d.calls)
		d.mu.Unlock()
		if got == fmt.Sprint(want) {
			return
		}
	}
	t.Fatalf("got calls %s, want %s", got, want)
}

// update has a device report that a resource has changed.
func update(f *Server, uri string) {
	params, _ := json.Marshal(map[string]string{"uri": uri})
	f.HandleEvent(ferrule.Event{Type: ferrule.Notified, Device: "robot", Method: notify.ResourceUpdated, Params: params})
}

// TestSubscribeToResource: a device is subscribed to once per resource, however many agents are
// subscribed. They are notified, and nobody else is. The gateway subscribes again when
// the device reconnects, and unsubscribes with the last agent.
func TestSubscribeToResource(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			var device fakeDevice
			f := newServerOf(t, device.handle, aServer())
			go f.Run(t.Context())
			const own, scopedLog = "file:///log", "ferrule://devices/robot/resources/file:///log"
			updates := make(chan string, 100)
			options := &mcp.ClientOptions{
				ResourceUpdatedHandler: func(_ context.Context, req *mcp.ResourceUpdatedNotificationRequest) { updates <- req.Params.URI },
			}
			expect := func(want ...string) {
				t.Helper()
				got := make(map[string]int)
				for range want {
					select {
					case uri := <-updates:
						got[uri]++
					case <-time.After(wait.Ample):
						t.Fatalf("got %v, want %v", got, want)
					}
				}
				for _, uri := range want {
					got[uri]--
				}
				for uri, n := range got {
					if n != 0 {
						t.Errorf("%s: %d updates too many", uri, n)
					}
				}
			}
			alone, all, other := connectAt(t, f.viewAt("robot"), version, options), connect(t, f, version, options), connect(t, f, version, options)
			for session, uri := range map[*mcp.ClientSession]string{alone: own, all: scopedLog, other: stateURI("robot")} {
				if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
					t.Fatal(err)
				}
			}
			f.subscribed(t, 3)
			device.called(t, "subscribe file:///log")
			update(f, own)
			expect(own, scopedLog, stateURI("robot"))
			update(f, "file:///other")
			expect(stateURI("robot"))
			back := &ferrule.Device{ID: "robot", Kind: "k", State: ferrule.StateOnline, Since: time.Now(), Trust: ferrule.TrustAdopted}
			f.parts.Catalog.Put(back, aServer())
			device.called(t, "subscribe file:///log", "subscribe file:///log")
			expect(own, scopedLog, stateURI("robot"))
			if err := alone.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: own}); err != nil {
				t.Fatal(err)
			}
			f.subscribed(t, 2)
			device.called(t, "subscribe file:///log", "subscribe file:///log")
			all.Close()
			device.called(t, "subscribe file:///log", "subscribe file:///log", "unsubscribe file:///log")
		})
	}
}

// TestUpdatesOfOthers: an update is one of the device that reports it, even if another
// device has a resource with the same URI.
func TestUpdatesOfOthers(t *testing.T) { synctest.Test(t, testUpdatesOfOthers) }

func testUpdatesOfOthers(t *testing.T) {
	var device fakeDevice
	s := newServerOf(t, device.handle, aServer())
	s.put("lamp", ferrule.StateOnline, ferrule.TrustAdopted)
	const own = "file:///log"
	updated := make(chan string, 100)
	session := connectAt(t, s.viewAt("robot"), versions[0], &mcp.ClientOptions{
		ResourceUpdatedHandler: func(_ context.Context, req *mcp.ResourceUpdatedNotificationRequest) { updated <- req.Params.URI },
	})
	if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: own}); err != nil {
		t.Fatal(err)
	}
	params := json.RawMessage(`{"uri":"` + own + `"}`)
	for _, test := range []struct {
		device string
		want   int
	}{{"lamp", 0}, {"robot", 1}} {
		s.HandleEvent(ferrule.Event{Type: ferrule.Notified, Device: test.device, Method: notify.ResourceUpdated, Params: params})
		time.Sleep(2 * notify.UpdateInterval)
		if len(updated) != test.want {
			t.Errorf("%s: got %d updates, want %d", test.device, len(updated), test.want)
		}
	}
}

// TestSubscribeRefused: a resource that the device refuses is an error, or is left out of the
// acknowledgment.
func TestSubscribeRefused(t *testing.T) {
	var device fakeDevice
	f := newServerOf(t, device.handle, aServer())
	older, _ := subscriber(t, f, versions[0])
	for _, uri := range []string{"file:///secret", "a b", "", "%zz \u0007"} {
		if err := older.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "ferrule://devices/robot/resources/" + uri}); err == nil {
			t.Errorf("%q was subscribed to", uri)
		}
	}
	v := f.viewAt("robot")
	if got := listen(t, v, "file:///secret", "file:///log"); fmt.Sprint(got) != "[file:///log]" {
		t.Errorf("acknowledged %q", got)
	}
	device.called(t, "subscribe file:///secret", "subscribe file:///secret", "subscribe file:///log")
	many := make([]string, 1000)
	for i := range many {
		many[i] = fmt.Sprint("file:///secret", i)
	}
	if got := listen(t, v, many...); got != nil {
		t.Errorf("acknowledged %q", got)
	}
	device.mu.Lock()
	defer device.mu.Unlock()
	if len(device.calls) != 3+notify.MaxSubscriptions {
		t.Errorf("the device was called %d times", len(device.calls))
	}
	f.subscribed(t, 1)
}

// TestSubscribeToSignals: subscribers of a signal are notified once a second at most, and of no
// other signal. A device is sampled once, and only while it has subscribers.
func TestSubscribeToSignals(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, version string) {
		f, m := withMeter(t)
		heat, speed := signalURI("robot", "heat"), signalURI("robot", "speed")
		here, updates := subscriber(t, f, version)
		other, otherUpdates := subscriber(t, f, version)
		deviceUpdates := make(chan string, 1000)
		alone := connectAt(t, f.viewAt("robot"), version, &mcp.ClientOptions{
			ResourceUpdatedHandler: func(_ context.Context, req *mcp.ResourceUpdatedNotificationRequest) { deviceUpdates <- req.Params.URI },
		})
		if m.measure("robot", "heat") != 0 {
			t.Error("a device is sampled without subscribers")
		}
		for session, uri := range map[*mcp.ClientSession]string{here: heat, alone: heat, other: speed} {
			if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
				t.Fatal(err)
			}
		}
		f.subscribed(t, 3)
		began := time.Now()
		for time.Since(began) < 2500*time.Millisecond {
			if n := m.measure("robot", "heat", "taste"); n != 1 {
				t.Fatalf("the device is sampled %d times", n)
			}
			m.measure("lamp", "heat")
			time.Sleep(5 * time.Millisecond)
		}
		took := time.Since(began)
		limit := int(took/notify.SignalInterval) + 1
		if n, m := len(updates), len(deviceUpdates); n < 2 || n > limit || m < 2 || m > limit || len(otherUpdates) > 0 {
			t.Errorf("%d and %d updates within %v, and %d of another signal", n, m, took, len(otherUpdates))
		}
		for len(updates) > 0 {
			if uri := <-updates; uri != heat {
				t.Errorf("got update of %s", uri)
			}
		}
		for session, uri := range map[*mcp.ClientSession]string{here: heat, alone: heat} {
			if err := session.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: uri}); err != nil {
				t.Fatal(err)
			}
		}
		f.subscribed(t, 1)
		for len(updates) > 0 {
			<-updates
		}
		for range 10 {
			if n := m.measure("robot", "heat"); n != 1 {
				t.Errorf("the device is sampled %d times", n)
			}
			time.Sleep(5 * time.Millisecond)
		}
		m.measure("robot", "speed")
		select {
		case uri := <-otherUpdates:
			if uri != speed {
				t.Errorf("got update of %s", uri)
			}
		case <-time.After(wait.Ample):
			t.Error("a subscriber is not notified")
		}
		time.Sleep(notify.SignalInterval + 200*time.Millisecond)
		if len(updates) > 0 {
			t.Errorf("%d updates after unsubscribing", len(updates))
		}
		other.Close()
		f.subscribed(t, 0)
		if n := m.measure("robot", "speed"); n > 0 || m.begun != 1 {
			t.Errorf("the device is sampled %d times, and was %d times", n, m.begun)
		}
	})
}

// TestSubscribeToUnknownSignal: an unknown signal cannot be subscribed to, and samples of a device
// that agents may no longer know are not reported.
func TestSubscribeToUnknownSignal(t *testing.T) {
	f, m := withMeter(t)
	f.put("stranger", ferrule.StateOnline, ferrule.TrustPending)
	f.put("away", ferrule.StateOnline, ferrule.TrustAdopted)
	m.signals["stranger"] = []string{"heat"}
	session, updates := subscriber(t, f, versions[0])
	for uri, want := range map[string]string{
		"robot/signals/taste":   "not found",
		"stranger/signals/heat": "not found",
		"nobody/signals/heat":   "not found",
		"gateway/signals/heat":  "not found",
		"away/signals/heat":     "cannot be reached",
		"robot/signals/a.b":     signalURI("robot", "temperature"),
		"robot/signals/":        signalURI("robot", "temperature"),
		"%72obot/signals/heat":  "not found",
	} {
		if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: devicesURI + "/" + uri}); err == nil || !strings.Contains(strings.ToLower(err.Error()), want) {
			t.Errorf("%s: %v", uri, err)
		}
	}
	if got := listen(t, f.viewAt(""), signalURI("robot", "taste"), signalURI("robot", "heat")); fmt.Sprint(got) != "["+signalURI("robot", "heat")+"]" {
		t.Errorf("acknowledged %q", got)
	}
	if n := m.measure("robot", "heat"); n != 1 || m.begun != 1 {
		t.Errorf("robot is sampled %d times, %d in total", n, m.begun)
	}
	if _, err := f.viewAt("robot").topicOf(signalURI("lamp", "heat")); err == nil {
		t.Error("an agent at one device can subscribe to another")
	}
	if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: signalURI("lamp", "heat")}); err != nil {
		t.Fatal(err)
	}
	f.put("lamp", ferrule.StateOnline, ferrule.TrustPending)
	m.measure("lamp", "heat")
	time.Sleep(50 * time.Millisecond)
	if len(updates) > 0 {
		t.Errorf("got update of %s, which is hidden from agents", <-updates)
	}
}
