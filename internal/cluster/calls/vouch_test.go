package calls

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestForged publishes calls as a client of NATS can that does not know the tenant's
// secret, or that has seen calls of others. None is served, and each is reported. A call
// that a node vouches for is served, with its principal, and with the node in Via.
func TestForged(t *testing.T) {
	e := startEngine(t)
	var refused atomic.Int64
	calls := make(chan *ferrule.Call, 64)
	c := testCalls(func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		calls <- call
		return &ferrule.Result{Value: json.RawMessage("1")}, nil
	})
	c.options.Refused = func(*ferrule.Call) { refused.Add(1) }
	listener := c.Listener(e)
	if err := listener.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer listener.Stop()

	self, reply := run{"a", "boot"}, testReply(1)
	asked := func(role ferrule.Role, device, tool, args string) []byte {
		data, err := json.Marshal(request{
			Call: ferrule.Call{
				Principal: ferrule.Principal{Role: role, Name: "owner", Auth: ferrule.AuthSocket, User: "anna"}, Device: device, Tool: tool, Args: json.RawMessage(args), Timeout: ferrule.Duration(time.Second),
			},
			Kind: "k", Epoch: 1, Effect: ferrule.Endangers,
		})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	look := asked(ferrule.Person, "robot", "look", "{}")
	sealed := func(secret []byte, from, to run, context string, data []byte) []byte {
		out, err := newKeys(secret, from).seal(to, context, data)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	good := sealed(testSecret, testPeer, self, "call "+reply, look)
	flipped := append([]byte(nil), good...)
	flipped[len(flipped)-3] ^= 1
	altered := func(old, new string) []byte { return bytes.Replace(good, []byte(old), []byte(new), 1) }
	short := append([]byte(nil), good...)[:tagSize-1]
	other := []byte("the secret that all nodes of work share")
	for name, forged := range map[string]struct {
		reply string
		data  []byte
	}{
		"plain, as a person":              {reply, look},
		"plain, as an agent":              {reply, asked(ferrule.Agent, "robot", "look", "{}")},
		"plain, as the gateway":           {reply, asked(ferrule.Gateway, "robot", "look", "{}")},
		"plain, invalid arguments":        {reply, asked(ferrule.Person, "robot", "look", `{"pin":999}`)},
		"plain, unknown tool":             {reply, asked(ferrule.Person, "robot", "fly", "{}")},
		"plain, unknown device":           {reply, asked(ferrule.Person, "other", "look", "{}")},
		"plain, adopt":                    {reply, asked(ferrule.Person, "gateway", "adopt_device", `{"device":"robot"}`)},
		"plain, forget":                   {reply, asked(ferrule.Person, "gateway", "forget_device", `{"device":"robot"}`)},
		"plain, release":                  {reply, asked(ferrule.Person, "gateway", "release_device", `{"device":"robot"}`)},
		"zeros as a tag":                  {reply, append(make([]byte, tagSize), look...)},
		"empty":                           {reply, nil},
		"shorter than a tag":              {reply, short},
		"tag without data":                {reply, good[:tagSize]},
		"one bit changed":                 {reply, flipped},
		"another role":                    {reply, altered(`"role":"person"`, `"role":"gateway"`)},
		"another name":                    {reply, altered(`"name":"owner"`, `"name":"other"`)},
		"another authentication":          {reply, altered(`"auth":"socket"`, `"auth":"token"`)},
		"another user":                    {reply, altered(`"user":"anna"`, `"user":"root"`)},
		"another tenant's secret":         {reply, sealed(other, testPeer, self, "call "+reply, look)},
		"from another node":               {reply, sealed(testSecret, run{"c", "peer"}, self, "call "+reply, look)},
		"from another run":                {reply, sealed(testSecret, run{"b", "earlier"}, self, "call "+reply, look)},
		"to another node":                 {reply, sealed(testSecret, testPeer, run{"c", "boot"}, "call "+reply, look)},
		"to an earlier run":               {reply, sealed(testSecret, testPeer, run{"a", "earlier"}, "call "+reply, look)},
		"reflected":                       {reply, sealed(testSecret, self, testPeer, "call "+reply, look)},
		"for another verb":                {reply, sealed(testSecret, testPeer, self, "ask "+reply, look)},
		"for another number":              {testReply(2), good},
		"for another reply subject":       {"ferrule.home.reply.c.peer-1-random", good},
		"reply subject of another tenant": {"ferrule.work.reply.b.peer-1-random", good},
		"reply subject of the attacker":   {"_INBOX.attacker", good},
		"no reply subject":                {"", good},
	} {
		before := refused.Load()
		if err := e.Conn.PublishRequest(c.names.Request("a", "boot", verbCall), forged.reply, forged.data); err != nil && forged.reply != "" {
			t.Fatal(err)
		}
		if forged.reply == "" {
			if err := e.Conn.Publish(c.names.Request("a", "boot", verbCall), forged.data); err != nil {
				t.Fatal(err)
			}
		}
		wait.For(t, name+" is reported", func() bool { return refused.Load() > before })
	}
	if n := len(calls); n != 0 {
		t.Fatalf("%d forged calls were served", n)
	}
	if err := e.Conn.PublishRequest(c.names.Request("a", "boot", verbCall), reply, good); err != nil {
		t.Fatal(err)
	}
	select {
	case call := <-calls:
		if call.Via != "b" || call.Principal != (ferrule.Principal{Role: ferrule.Person, Name: "owner", Auth: ferrule.AuthSocket, User: "anna"}) {
			t.Errorf("served %+v", call)
		}
	case <-time.After(wait.Ample):
		t.Fatal("a call that a node vouches for was not served")
	}
}

// TestReplayed repeats a call that a node vouched for, at once and after its outcome has
// been forgotten: it is served once.
func TestReplayed(t *testing.T) {
	i := newInbox()
	for number := uint64(1); number <= maxKept+10; number++ {
		s, err := i.enter(testPeer, number, testReply(number), nil)
		if err != nil {
			t.Fatal(err)
		}
		i.leave(testReply(number), s, nil)
	}
	for _, number := range []uint64{1, 5, 10, 11, maxKept, maxKept + 10} {
		if _, err := i.enter(testPeer, number, testReply(number), nil); err == nil {
			t.Errorf("call %d was served twice", number)
		}
	}
	if _, err := i.enter(testPeer, maxKept+11, testReply(maxKept+11), nil); err != nil {
		t.Errorf("the next call is not served: %v", err)
	}
	if _, err := i.enter(run{"b", "later"}, 1, "ferrule.home.reply.b.later-1-random", nil); err != nil {
		t.Errorf("the first call of another run is not served: %v", err)
	}
}

// TestForgedReply checks that only the holder can end a call.
func TestForgedReply(t *testing.T) {
	o, ours := newOutbox("boot"), newKeys(testSecret, run{"a", "boot"})
	token, p := o.open(testPeer)
	subject := "ferrule.home.reply.a." + token
	for _, from := range []*keys{newKeys([]byte("the secret that all nodes of work share"), testPeer), newKeys(testSecret, run{"c", "peer"}), ours} {
		data, err := from.seal(run{"a", "boot"}, subject, []byte("R{}"))
		if err != nil {
			t.Fatal(err)
		}
		o.receive(ours, &nats.Msg{Subject: subject, Data: data})
	}
	o.receive(ours, &nats.Msg{Subject: subject, Data: []byte("R{}")})
	if len(p.final) != 0 {
		t.Fatal("a forged answer ended the call")
	}
	data, err := newKeys(testSecret, testPeer).seal(run{"a", "boot"}, subject, []byte("R{}"))
	if err != nil {
		t.Fatal(err)
	}
	o.receive(ours, &nats.Msg{Subject: subject, Data: data})
	if len(p.final) != 1 {
		t.Fatal("the holder's answer did not end the call")
	}
}

// TestForgedAbsence pretends to a node that nobody received its call, as any client of NATS
// can. The holder has it: the call must not end as one that was not sent.
func TestForgedAbsence(t *testing.T) {
	e := startEngine(t)
	var served atomic.Int64
	release := make(chan struct{})
	holder := testCalls(func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		served.Add(1)
		<-release
		return &ferrule.Result{Value: json.RawMessage("1")}, nil
	})
	listener := holder.Listener(e)
	if err := listener.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer listener.Stop()
	sender := testSender(t, e)
	sender.confirm = wait.Ample
	if _, err := e.Conn.Subscribe(holder.names.Request("a", "boot", verbCall), func(msg *nats.Msg) {
		e.Conn.PublishMsg(&nats.Msg{Subject: msg.Reply, Header: nats.Header{"Status": []string{"503"}}})
	}); err != nil {
		t.Fatal(err)
	}
	go func() {
		wait.For(t, "it is served", func() bool { return served.Load() == 1 })
		time.Sleep(2 * askAfter) // a sender that believed the forged message would have given up
		close(release)
	}()
	call := testCall("look")
	if result, err := sender.Call(t.Context(), call); err != nil || string(result.Value) != "1" || served.Load() != 1 {
		t.Errorf("got %v, %v after %d calls", result, err, served.Load())
	}
	start := time.Now()
	listener.Stop() // now nobody is there
	sender.confirm = minConfirm
	if _, err := sender.Call(t.Context(), call); ferrule.AsError(err).Code != ferrule.Offline {
		t.Errorf("without a holder: %v", err)
	}
	figure.AtMost(t, "call without a holder", time.Since(start), 5*time.Second)
}

// testSender returns node b, which can call node a.
func testSender(t *testing.T, e *engine.Engine) *Calls {
	t.Helper()
	c := New(Options{
		Names: engine.Names{Tenant: "home", Node: "b"}, Boot: "peer", Devices: peerAt{"boot"}, Secret: testSecret,
		Serve: func(context.Context, *ferrule.Call) (*ferrule.Result, error) { return nil, nil }, Refused: func(*ferrule.Call) {}, Log: slog.New(slog.DiscardHandler),
	})
	if err := c.Connect(e); err != nil {
		t.Fatal(err)
	}
	return c
}

// testCall returns a call to the robot of node a.
func testCall(tool string) *ferrule.Call {
	device := &ferrule.Device{ID: "robot", Kind: "k", Node: "a", Epoch: 1, State: ferrule.StateOnline}
	return &ferrule.Call{ID: "c", Device: "robot", Tool: tool, Target: ferrule.Target{Device: device, Tool: &ferrule.Tool{Name: tool, Effect: ferrule.Changes}}}
}

// peerAt is a registry in which node a runs.
type peerAt struct{ boot string }

func (p peerAt) Peer(string) (string, time.Time) { return p.boot, time.Now() }

func (peerAt) Held(string, uint64) (ferrule.Target, bool) { return ferrule.Target{}, false }

func (peerAt) Lookup(context.Context, string) *ferrule.Device { return nil }

// TestAsk: the holder learns that the caller's node requires approval, but not for calls of
// the gateway's own tools, which ask before they are forwarded.
func TestAsk(t *testing.T) {
	e := startEngine(t)
	var got ferrule.Verdict
	holder := testCalls(func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		got = call.Verdict
		return &ferrule.Result{}, nil
	})
	listener := holder.Listener(e)
	if err := listener.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer listener.Stop()
	sender := testSender(t, e)
	for _, test := range []struct {
		ruling ferrule.Ruling
		remote bool
		want   ferrule.Ruling
	}{{ferrule.Ask, true, ferrule.Ask}, {ferrule.Permit, true, ""}, {ferrule.Ask, false, ""}} {
		call := testCall("look")
		call.Verdict.Ruling, call.Target.Remote = test.ruling, test.remote
		if _, err := sender.Call(t.Context(), call); err != nil || got.Ruling != test.want {
			t.Errorf("%+v: the holder got %+v, %v", test, got, err)
		}
	}
}
