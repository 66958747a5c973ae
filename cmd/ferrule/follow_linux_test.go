package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// followedLamp is a lamp that records its subscriptions. It can be restarted.
type followedLamp struct {
	t          *testing.T
	mcpVersion string
	address    string
	server     *http.Server

	mu    sync.Mutex
	asked []string // subscribe, unsubscribe, or the resources of a stream
}

func startFollowedLamp(t *testing.T, mcpVersion string) *followedLamp {
	t.Helper()
	l := &followedLamp{t: t, mcpVersion: mcpVersion, address: "127.0.0.1:0"}
	l.start()
	t.Cleanup(func() { l.server.Close() })
	return l
}

func (l *followedLamp) start() {
	l.t.Helper()
	var ln net.Listener
	wait.For(l.t, "the address is free", func() (free bool) {
		var err error
		ln, err = net.Listen("tcp", l.address)
		return err == nil
	})
	l.address = ln.Addr().String()
	device := lampThing("lamp").Handler()
	l.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.mcpVersion == legacy && r.Header.Get("Mcp-Protocol-Version") >= modern {
			http.Error(w, "what is that?", http.StatusBadRequest)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		l.note(body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		device.ServeHTTP(w, r)
	})}
	go l.server.Serve(ln)
}

// note records what a request says about resources.
func (l *followedLamp) note(body []byte) {
	var m struct {
		Method string
		Params struct {
			Notifications struct{ ResourceSubscriptions []string }
		}
	}
	json.Unmarshal(body, &m) // a stream is opened without a body
	l.mu.Lock()
	defer l.mu.Unlock()
	switch m.Method {
	case "resources/subscribe", "resources/unsubscribe":
		l.asked = append(l.asked, m.Method)
	case "subscriptions/listen":
		l.asked = append(l.asked, fmt.Sprint(m.Params.Notifications.ResourceSubscriptions))
	}
}

// last returns the last recorded request.
func (l *followedLamp) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.asked) == 0 {
		return ""
	}
	return l.asked[len(l.asked)-1]
}

// hears waits until an agent is notified that the lamp was switched.
func (l *followedLamp) hears(g *testGateway, a *testAgent) {
	l.t.Helper()
	for len(a.updates) > 0 {
		<-a.updates
	}
	for end := time.Now().Add(wait.Ample); ; {
		if _, err := g.call("lamp", "switch", `{"on":true}`, ample); err != nil {
			l.t.Fatal(err)
		}
		select {
		case <-a.updates:
			return
		case <-time.After(300 * time.Millisecond):
		}
		if time.Now().After(end) {
			l.t.Fatalf("%s does not hear of the lamp, which was asked %q", a.name, l.asked)
		}
	}
}

// lampURI is the URI of the lamp's resource for agents.
const lampURI = "ferrule://devices/lamp/resources/" + lampState

func (a *testAgent) follows(uri string) {
	a.t.Helper()
	if err := a.Subscribe(a.t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
		a.t.Fatalf("%s: %v", a.name, err)
	}
}

func (a *testAgent) leaves(uri string) {
	a.t.Helper()
	if err := a.Unsubscribe(a.t.Context(), &mcp.UnsubscribeParams{URI: uri}); err != nil {
		a.t.Fatalf("%s: %v", a.name, err)
	}
}

// checkFollows lets agents follow a lamp and leave one after the other. The others are
// still notified, also after a restart, and the lamp is told when the last one leaves.
func (l *followedLamp) checkFollows(g *testGateway, agents []*testAgent) {
	l.t.Helper()
	for _, a := range agents {
		a.follows(lampURI)
	}
	for _, a := range agents {
		l.hears(g, a)
	}
	for i, a := range agents[:len(agents)-1] {
		a.leaves(lampURI)
		time.Sleep(200 * time.Millisecond) // let wrong requests arrive
		for _, other := range agents[i+1:] {
			l.hears(g, other)
		}
	}
	l.server.Close()
	wait.For(l.t, "it is away", func() bool { return g.device("lamp").State == ferrule.StateOffline })
	l.start()
	g.online("lamp")
	last := agents[len(agents)-1]
	l.hears(g, last)
	last.leaves(lampURI)
	want := map[string]string{legacy: "resources/unsubscribe", modern: "[]"}[l.mcpVersion]
	wait.For(l.t, "the lamp is told that nobody listens", func() bool { return l.last() == want })
}

// TestFollowers checks that agents on one gateway, and in a process that has joined it,
// follow a resource of a device, for both versions of MCP.
func TestFollowers(t *testing.T) {
	t.Parallel()
	for _, mcpVersion := range mcpVersions {
		t.Run(mcpVersion, func(t *testing.T) {
			t.Parallel()
			lamp := startFollowedLamp(t, mcpVersion)
			g := startGateway(t, nil, func(c *config.Config) {
				c.Devices.HTTP = []config.HTTPDevice{{URL: "http://" + lamp.address + "/mcp", Name: "lamp"}}
			})
			g.online("lamp")
			lamp.checkFollows(g, []*testAgent{
				dialAgent(t, g, legacy, "/mcp"), joinedAgent(t, g, legacy, "lamp"), dialAgent(t, g, legacy, "/mcp"), joinedAgent(t, g, legacy, "lamp"), dialAgent(t, g, legacy, "/mcp"),
			})
		})
	}
}

// TestFollowersOfNodes checks that agents on two nodes follow a resource of a device of
// one of them.
func TestFollowersOfNodes(t *testing.T) {
	t.Parallel()
	servers := natscluster.Start(t, natscluster.Options{Size: 1})
	lamp := startFollowedLamp(t, modern)
	node := func(name string, devices ...config.HTTPDevice) *testGateway {
		return startGateway(t, nil, func(c *config.Config) {
			joins(c, name, servers)
			c.Listen, c.Devices.HTTP = "127.0.0.1:0", devices
		})
	}
	a, b := node("a"), node("b", config.HTTPDevice{URL: "http://" + lamp.address + "/mcp", Name: "lamp"})
	b.online("lamp")
	a.online("lamp")
	lamp.checkFollows(b, []*testAgent{
		dialAgent(t, a, legacy, "/mcp"), dialAgent(t, b, legacy, "/mcp"), dialAgent(t, a, legacy, "/mcp"), dialAgent(t, b, legacy, "/mcp"), dialAgent(t, a, legacy, "/mcp"),
	})
}
