package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// subscriber connects an agent that hears of resources.
func subscriber(t *testing.T, f *Server, era string) (*mcp.ClientSession, chan string) {
	t.Helper()
	told := make(chan string, 1000)
	return connect(t, f, era, &mcp.ClientOptions{
		ResourceUpdatedHandler: func(_ context.Context, req *mcp.ResourceUpdatedNotificationRequest) { told <- req.Params.URI },
	}), told
}

// becomes waits until so many sessions have subscribed to so many devices, and the SDK
// knows: an agent of the newer era is not answered.
func (s *subscriptions) becomes(t *testing.T, sessions, devices int) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		n, m, known := len(s.sessions), len(s.subjects), true
		for _, has := range s.sessions {
			for _, one := range has {
				known = known && one.asked.IsZero()
			}
		}
		s.mu.Unlock()
		if n == sessions && m == devices && known {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d sessions have subscribed to %d devices", n, m)
		}
	}
}

func (f *Server) put(id string, state ferrule.State, trust ferrule.Trust) {
	f.parts.Catalog.Put(&ferrule.Device{ID: id, Kind: "k", State: state, Since: time.Now(), Trust: trust}, nil)
}

// TestSubscribe: who has subscribed to the state of a device is told when it says
// something, comes or goes, and nobody else is.
func TestSubscribe(t *testing.T) {
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			f := newFront(t, nil)
			f.put("lamp", ferrule.StateOnline, ferrule.TrustAdopted)
			go f.Run(t.Context())
			a, told := subscriber(t, f, era)
			_, other := subscriber(t, f, era)
			if s := a.InitializeResult().Capabilities.Resources; !s.Subscribe || !s.ListChanged {
				t.Errorf("it can do %+v", s)
			}
			robot := &mcp.SubscribeParams{URI: "ferrule://devices/robot/state"}
			if err := a.Subscribe(t.Context(), robot); err != nil {
				t.Fatal(err)
			}
			subs := f.viewAt("").subscriptions
			subs.becomes(t, 1, 1)
			hear := func(why string) {
				t.Helper()
				select {
				case uri := <-told:
					if uri != robot.URI {
						t.Errorf("told of %s", uri)
					}
				case <-time.After(5 * time.Second):
					t.Fatal("not told that it " + why)
				}
			}
			f.Hear(ferrule.Event{Type: ferrule.Notified, Device: "lamp"})
			f.Hear(ferrule.Event{Type: ferrule.Notified, Device: "robot"})
			hear("said something")
			f.put("robot", ferrule.StateOffline, ferrule.TrustAdopted)
			hear("has gone")
			f.put("robot", ferrule.StateOnline, ferrule.TrustPending)
			hear("is not there for agents")
			f.Missed(3)
			hear("may have said something")
			if err := a.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: robot.URI}); err != nil {
				t.Fatal(err)
			}
			subs.becomes(t, 1, 0)
			f.Hear(ferrule.Event{Type: ferrule.Notified, Device: "robot"})
			time.Sleep(2 * updatePause)
			if len(told) > 0 || len(other) > 0 {
				t.Errorf("%d and %d were told for nothing", len(told), len(other))
			}
		})
	}
}

// TestSubscribeToNothing: what cannot be subscribed to is refused in words that tell
// what can be; in the newer era it is left out.
func TestSubscribeToNothing(t *testing.T) {
	f := newFront(t, nil)
	f.put("stranger", ferrule.StateOnline, ferrule.TrustPending)
	legacy, _ := subscriber(t, f, eras[0])
	modern, _ := subscriber(t, f, modernVersion)
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
		if err := legacy.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err == nil || !strings.Contains(strings.ToLower(err.Error()), want) {
			t.Errorf("%s: %v", uri, err)
		}
		if uri != "" {
			modern.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}) // it is told what was agreed on, which the client does not pass on
		}
	}
	v := f.viewAt("")
	if n := len(v.subscriptions.subjects); n > 0 {
		t.Errorf("%d are subscribed to", n)
	}
	var session *mcp.ServerSession
	for session = range v.server.Sessions() {
	}
	if got := v.agreed(t.Context(), session, []string{stateURI("nobody"), stateURI("robot"), stateURI("robot")}); len(got) != 1 || got[0] != stateURI("robot") {
		t.Errorf("agreed on %q", got)
	}
	alone := f.viewAt("robot")
	f.put("lamp", ferrule.StateOnline, ferrule.TrustAdopted)
	if _, err := alone.topicOf(stateURI("lamp")); err == nil {
		t.Error("who looks at one device can subscribe to another")
	}
}

// TestManySubscriptions: a session may have so many, and all are forgotten when it
// ends.
func TestManySubscriptions(t *testing.T) {
	f := newFront(t, nil)
	for i := range maxSubscriptions + 1 {
		f.put(fmt.Sprint("lamp", i), ferrule.StateOnline, ferrule.TrustAdopted)
	}
	a, _ := subscriber(t, f, eras[0])
	for i := range maxSubscriptions + 1 {
		err := a.Subscribe(t.Context(), &mcp.SubscribeParams{URI: stateURI(fmt.Sprint("lamp", i))})
		if (err == nil) != (i < maxSubscriptions) {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if err := a.Subscribe(t.Context(), &mcp.SubscribeParams{URI: stateURI("lamp0")}); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := a.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: stateURI("lamp0")}); err != nil {
		t.Error(err)
	}
	if err := a.Subscribe(t.Context(), &mcp.SubscribeParams{URI: stateURI(fmt.Sprint("lamp", maxSubscriptions))}); err != nil {
		t.Errorf("in the place of another: %v", err)
	}
	a.Close()
	f.viewAt("").subscriptions.becomes(t, 0, 0)
}

// TestSubscribersLeave: who goes away over HTTP is forgotten with all that it has
// subscribed to.
func TestSubscribersLeave(t *testing.T) {
	f, url := serve(t, func(*Server) {})
	for _, era := range eras {
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp"}, &mcp.ClientSessionOptions{ProtocolVersion: era})
		if err != nil {
			t.Fatal(err)
		}
		if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: stateURI("robot")}); err != nil {
			t.Fatal(err)
		}
		f.viewAt("").subscriptions.becomes(t, 1, 1)
		session.Close()
		f.viewAt("").subscriptions.becomes(t, 0, 0)
	}
}

// TestSubscribersLeaveNothing: nor does the SDK remember what nobody is subscribed to any
// more, of agents that have gone without a word.
func TestSubscribersLeaveNothing(t *testing.T) {
	f := newFront(t, nil)
	v := f.viewAt("")
	for i := range 3 {
		id := fmt.Sprint("lamp", i)
		f.put(id, ferrule.StateOnline, ferrule.TrustAdopted)
		session, _ := subscriber(t, f, eras[0])
		if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: stateURI(id)}); err != nil {
			t.Fatal(err)
		}
		session.Close()
	}
	v.subscriptions.becomes(t, 0, 0)
	if n := reflect.ValueOf(v.server).Elem().FieldByName("resourceSubscriptions").Len(); n > 0 {
		t.Errorf("it remembers %d resources", n)
	}
}

// TestUpdatesBetween: what an agent is to be told after it has asked, and before the SDK
// knows, is told again when it does; nothing else is.
func TestUpdatesBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		s := newSubscriptions(func(string) { told++ }, func(string) glance { return glance{} }, func(topic) {})
		early, late := &mcp.ServerSession{}, &mcp.ServerSession{}
		tell := func() {
			s.touch("robot")
			synctest.Wait()
			time.Sleep(time.Second)
		}
		expect := func(want int, when string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if told != want {
				t.Errorf("told %d times %s", told, when)
			}
		}
		s.add(early, "robot", topic{device: "robot"})
		s.begun(early, []string{"robot", "lamp"})
		expect(0, "of nothing")
		tell()
		s.add(late, "robot", topic{device: "robot"})
		s.begun(late, []string{"robot"})
		expect(1, "of what was before")
		s.remove(late, "robot")
		s.add(late, "robot", topic{device: "robot"})
		tell()
		s.begun(late, []string{"robot"})
		expect(3, "of what was in between")
		s.leave(early)
		s.leave(late)
		s.begun(late, []string{"robot"})
		expect(3, "after all have left")
	})
}

// TestUpdatesAreMerged: the first is told at once, and however often a device speaks,
// agents are told a few times a second, and of the last.
func TestUpdatesAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []time.Duration
		start := time.Now()
		s := newSubscriptions(func(string) { told = append(told, time.Since(start)) }, func(string) glance { return glance{} }, func(topic) {})
		session := &mcp.ServerSession{}
		s.add(session, "robot", topic{device: "robot"})
		for range 1000 { // for a second
			s.touch("robot")
			s.touch("lamp")
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := time.Second / updatePause; len(told) != int(n)+1 || told[0] != 0 || told[n] != time.Second {
			t.Errorf("told after %v", told)
		}
		s.touch("robot")
		s.remove(session, "robot")
		s.leave(session)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(told) != int(time.Second/updatePause)+1 {
			t.Errorf("told after %v, though nobody wants to hear of it", told[len(told)-1])
		}
	})
}

// TestListensTogether: an agent of the newer era that has several listens in one session hears
// on each what it wants there, and goes on hearing it when another ends.
func TestListensTogether(t *testing.T) {
	f := newFront(t, nil)
	toUs, requests := io.Pipe()
	answers, fromUs := io.Pipe()
	go f.Stdio(t.Context(), toUs, fromUs)
	t.Cleanup(func() { requests.Close() })
	lines := bufio.NewScanner(answers)
	hear := func(want ...string) {
		t.Helper()
		var got []string
		for range want {
			lines.Scan()
			got = append(got, lines.Text())
		}
		for _, want := range want {
			if !slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, want) }) {
				t.Fatalf("heard %q, want %q", got, want)
			}
		}
	}
	const request = `{"jsonrpc":"2.0","id":%d,"method":"subscriptions/listen","params":{"notifications":{%s},"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}` + "\n"
	for i, wanted := range []string{`"toolsListChanged":true`, `"toolsListChanged":true,"promptsListChanged":true`, `"resourceSubscriptions":["ferrule://devices/robot/state"]`} {
		fmt.Fprintf(requests, request, i+1, wanted)
		hear("acknowledged")
	}
	v := f.viewAt("")
	on := func(method string, listen int) string {
		return fmt.Sprintf(`"method":%q,"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%d}`, method, listen)
	}
	v.registerTool()
	hear(on(toolsChanged, 1), on(toolsChanged, 2))
	for id := 3; id > 1; id-- {
		fmt.Fprintf(requests, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`+"\n", id)
		hear(fmt.Sprintf(`"id":%d,"result"`, id))
		if id == 3 {
			v.registerPrompt()
			hear(on(promptsChanged, 2))
		}
	}
	v.registerTool()
	hear(on(toolsChanged, 1))
	for i := range maxListens - 1 {
		fmt.Fprintf(requests, request, i+10, `"toolsListChanged":true`)
		hear("acknowledged")
	}
	fmt.Fprintf(requests, request, 9, `"toolsListChanged":true`)
	hear(`"id":9,"error"`)
}
