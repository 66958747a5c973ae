//go:build unix

package mqttserver_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
	"github.com/ferrulehq/ferrule/internal/mqttclient/mcptopics"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestSession: an agent on the broker begins a session, calls a tool as the principal of
// the broker, and leaves in the middle of a call, which is cancelled.
func TestSession(t *testing.T) {
	b := mosquitto.Start(t, mosquitto.Options{})
	board := offer(t, b)
	c := newClient(t, b, "agent-1")
	c.online()
	c.begin()
	c.call("1", "move")
	c.answer("1", `moved`)
	if got := board.called(); got != "agent:mqtt:home move" {
		t.Errorf("called: %s", got)
	}
	c.call("2", "slow")
	wait.For(t, "the call", func() bool { return strings.Count(board.called(), "slow") == 1 })
	c.send(string(mcptopics.Disconnected))
	wait.For(t, "its end", func() bool { return board.cancelled() == 1 })
	c.begin()
	c.call("3", "slow")
	wait.For(t, "the call", func() bool { return strings.Count(board.called(), "slow") == 2 })
	c.stop() // its will says so
	wait.For(t, "its end", func() bool { return board.cancelled() == 2 })
}

// TestRepeated: a message that the broker delivers twice runs once, and initialize does not
// begin two sessions. A client that initializes again has a new session.
func TestRepeated(t *testing.T) {
	b := mosquitto.Start(t, mosquitto.Options{})
	board := offer(t, b)
	c := newClient(t, b, "emqx_mcp_bridge")
	c.online()
	c.publish(gateway.Control(), initialize)
	c.begin()
	for range 3 {
		c.call("1", "move")
	}
	c.call("2", "move")
	c.answer("2", "moved")
	if n := strings.Count(board.called(), "move"); n != 2 {
		t.Errorf("%d calls ran, want 2", n)
	}
	c.call("3", "slow")
	wait.For(t, "the call", func() bool { return strings.Contains(board.called(), "slow") })
	c.begin()
	wait.For(t, "the end of the call of the first session", func() bool { return board.cancelled() == 1 })
	c.call("1", "move") // an ID of the first session
	c.answer("1", "moved")
}

// TestHostile: what is not a request of the client itself starts nothing, ends no session
// of another client, and breaks nothing.
func TestHostile(t *testing.T) {
	b := mosquitto.Start(t, mosquitto.Options{})
	board := offer(t, b)
	good, bad := newClient(t, b, "good"), newClient(t, b, "bad")
	good.online()
	good.begin()
	as := func(id string) []mqttclient.Property { return mcptopics.PublishProperties(mcptopics.TypeClient, id) }
	for _, p := range []mqttclient.Publication{
		{Payload: []byte(initialize)}, // without a sender
		{Payload: []byte(initialize), Properties: as("+")},
		{Payload: []byte(initialize), Properties: as("a/b")},
		{Payload: []byte(initialize), Properties: as("#")},
		{Payload: []byte(initialize), Properties: as(strings.Repeat("x", 1000))},
		{Payload: []byte(initialize), Properties: as(gateway.ID)},
		{Payload: []byte(initialize), Properties: as("nobody")}, // who does not subscribe
		{Payload: []byte(initialize), Properties: as("bad"), Retain: true},
		{Properties: as("bad"), Retain: true},
		{Payload: []byte("["), Properties: as("bad")},
		{Payload: []byte("[" + initialize + "]"), Properties: as("bad")},
		{Payload: []byte(`{"method":"initialize","id":{}}`), Properties: as("bad")},
		{Payload: []byte(`{"method":"initialize","id":1,"id":2}`), Properties: as("bad")},
		{Payload: []byte(`{"method":"tools/list","id":1}`), Properties: as("bad")},
		{Payload: []byte(strings.Repeat(" ", 300<<10) + initialize), Properties: as("bad")},
	} {
		p.Topic = gateway.Control()
		bad.put(p)
	}
	for _, text := range []string{"", "x", "null", "[]", "{}", `{"id":1}`, `{"id":null,"method":"ping"}`, "\xff", strings.Repeat("[", 10000), initialize, `{"id":1e999,"result":{}}`, `{"id":1,"error":2}`} {
		bad.publish(gateway.RPC("good"), text)                                             // as another client
		bad.put(mqttclient.Publication{Topic: gateway.RPC("good"), Payload: []byte(text)}) // without a name
	}
	bad.publish(gateway.RPC("good"), string(mcptopics.Disconnected))
	bad.publish(mcptopics.ClientPresence("good"), string(mcptopics.Disconnected))
	bad.publish(gateway.RPC("good"), `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"robot__move"}}`)
	good.call("8", "move")
	good.answer("8", "moved")
	if got := board.called(); got != "agent:mqtt:home move" {
		t.Errorf("called: %s", got)
	}
	bad.begin()
	for i := range 300 {
		bad.call(fmt.Sprint("s", i), "slow")
	}
	good.call("9", "move")
	good.answer("9", "moved")
}

// TestLimits: there is no session for a client beyond the limit, and a result that the
// broker does not take is an error that says so.
func TestLimits(t *testing.T) {
	b := mosquitto.Start(t, mosquitto.Options{})
	offer(t, b)
	c := newClient(t, b, "agent-1")
	c.online()
	c.begin()
	c.call("1", "big")
	c.answer("1", "cannot be delivered")
	// A client without user properties says who it is in the params.
	other := newClient(t, b, "cpp")
	other.put(mqttclient.Publication{Topic: gateway.Control(), Payload: []byte(strings.Replace(initialize, `"capabilities"`, `"mcpClientId":"cpp","capabilities"`, 1))})
	other.answer("init_1", "protocolVersion")
	for i := range 62 {
		id := fmt.Sprint("many-", i)
		if _, err := c.conn.Subscribe(t.Context(), func(mqttclient.Message) {}, mqttclient.Filter{Topic: gateway.RPC(id)}); err != nil {
			t.Fatal(err)
		}
		c.put(mqttclient.Publication{Topic: gateway.Control(), Payload: []byte(initialize), Properties: mcptopics.PublishProperties(mcptopics.TypeClient, id)})
	}
	late := newClient(t, b, "late")
	late.publish(gateway.Control(), initialize)
	late.answer("init_1", "64 sessions are open")
}

// TestBrokerKilled: calls end with the connection, and the gateway is offered again after
// it, without sessions.
func TestBrokerKilled(t *testing.T) {
	b := mosquitto.Start(t, mosquitto.Options{})
	board := offer(t, b)
	c := newClient(t, b, "agent-1")
	c.online()
	c.begin()
	c.call("1", "slow")
	wait.For(t, "the call", func() bool { return board.called() != "" })
	b.Kill()
	wait.For(t, "its end", func() bool { return board.cancelled() == 1 })
	b.Restart(t)
	c = newClient(t, b, "agent-2")
	c.online()
	c.begin()
	c.call("1", "move")
	c.answer("1", "moved")
}

// TestEnd: when the offer ends, clients are told and the announcement is removed.
func TestEnd(t *testing.T) {
	b := mosquitto.Start(t, mosquitto.Options{})
	board := offer(t, b)
	c := newClient(t, b, "agent-1")
	c.online()
	c.begin()
	c.call("1", "slow")
	wait.For(t, "the call", func() bool { return board.called() != "" })
	board.stop()
	for !strings.Contains(c.next(c.in), mcptopics.MethodDisconnected) {
	}
	if m := c.next(c.presence); m != "" {
		t.Errorf("the announcement is %s", m)
	}
	if board.cancelled() != 1 {
		t.Error("the call goes on")
	}
}

// TestListChanged: all clients are told once on the topic for it.
func TestListChanged(t *testing.T) {
	b := mosquitto.Start(t, mosquitto.Options{})
	board := offer(t, b)
	first, second := newClient(t, b, "agent-1"), newClient(t, b, "agent-2")
	for _, c := range []*client{first, second} {
		c.online()
		c.begin()
		c.send(`{"jsonrpc":"2.0","id":"l","method":"tools/list"}`)
		c.answer("l", "robot__move")
	}
	board.catalog.Put(&ferrule.Device{ID: "lamp", Kind: "l", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted},
		&ferrule.Manifest{Tools: []ferrule.Tool{{Name: "on"}}})
	for _, c := range []*client{first, second} {
		for !strings.Contains(c.next(c.in), "notifications/tools/list_changed") {
		}
	}
}
