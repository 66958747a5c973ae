//go:build unix

package mqttserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/agent/mqttserver"
	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/mcpmqtt"
	"github.com/ferrulehq/ferrule/internal/device/transport/mqttclient"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var gateway = mcpmqtt.Server{ID: "gateway-1", Name: "ferrule/home"}

// board is a device, with an agent server for it that is offered on a broker.
type board struct {
	*mqttserver.Offer
	catalog *catalog.Catalog
	stop    func() // ends the offer

	mu    sync.Mutex
	calls []string
	ended int // calls of slow that were cancelled
}

// offer offers a board on a broker until the test ends.
func offer(t *testing.T, b *mosquitto.Broker) *board {
	t.Helper()
	out := &board{catalog: catalog.New(catalog.DefaultConfig())}
	out.catalog.Put(&ferrule.Device{ID: "robot", Kind: "k", Model: "board", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted},
		&ferrule.Manifest{Model: "board", Tools: []ferrule.Tool{{Name: "move", Effect: ferrule.Changes}, {Name: "slow", Effect: ferrule.Changes}, {Name: "big", Effect: ferrule.Reads}}})
	agents := server.New(server.Parts{Config: server.DefaultConfig(), Catalog: out.catalog, Handle: out.handle, Version: "1", Log: slog.New(slog.DiscardHandler)})
	cfg := mqttclient.DefaultConfig()
	cfg.URL, cfg.RetryMin, cfg.RetryMax = b.URL, 10*time.Millisecond, 100*time.Millisecond
	var err error
	out.Offer, err = mqttserver.New(mqttserver.Parts{
		Config: mqttserver.Config{Broker: "home", Server: gateway, Description: "a board", Client: cfg},
		Server: agents, Check: server.CheckMessage, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- agents.Run(ctx) }()
	go func() { ended <- out.Run(ctx) }()
	out.stop = sync.OnceFunc(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Errorf("Run returned %v", err)
			}
		}
	})
	t.Cleanup(out.stop)
	return out
}

func (b *board) handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	b.mu.Lock()
	b.calls = append(b.calls, call.Principal.String()+" "+call.Tool)
	b.mu.Unlock()
	value := `{"moved":true}`
	switch call.Tool {
	case "slow":
		<-ctx.Done()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.ended++
		return nil, ferrule.Errorf(ferrule.Cancelled, "the caller went away").AfterSend()
	case "big":
		value = `"` + strings.Repeat("x", 2<<20) + `"`
	}
	return &ferrule.Result{Value: json.RawMessage(value)}, nil
}

// called returns the calls so far.
func (b *board) called() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.calls, ", ")
}

// cancelled returns how many calls were cancelled.
func (b *board) cancelled() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

// client is a client on the broker that sends what a test wants.
type client struct {
	t    *testing.T
	id   string
	conn *mqttclient.Conn
	stop func()
	// in has the messages on the rpc topic, presence those on the presence topic.
	in, presence chan string
}

func newClient(t *testing.T, b *mosquitto.Broker, id string) *client {
	t.Helper()
	cfg := mqttclient.DefaultConfig()
	cfg.URL, cfg.ClientID = b.URL, id
	cfg.Will = &mqttclient.Publication{Topic: mcpmqtt.ClientPresence(id), Payload: mcpmqtt.Disconnected}
	running := mqttclient.New(cfg, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		running.Run(ctx)
		close(done)
	}()
	c := &client{t: t, id: id, in: make(chan string, 1000), presence: make(chan string, 1000)}
	c.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(c.stop)
	var err error
	if c.conn, err = running.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	for topic, to := range map[string]chan string{gateway.RPC(id): c.in, gateway.Capability(): c.in, gateway.Presence(): c.presence} {
		_, err := c.conn.Subscribe(t.Context(), func(m mqttclient.Message) { to <- string(m.Payload) }, mqttclient.Filter{Topic: topic, QoS: 1, NoLocal: true})
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// online waits until the gateway is announced.
func (c *client) online() {
	c.t.Helper()
	for !strings.Contains(c.next(c.presence), "notifications/server/online") {
	}
}

func (c *client) next(from chan string) string {
	c.t.Helper()
	select {
	case m := <-from:
		return m
	case <-time.After(wait.Ample):
		c.t.Fatal("nothing arrived")
		return ""
	}
}

// publish publishes a message with the properties of this client.
func (c *client) publish(topic, payload string) {
	c.t.Helper()
	c.put(mqttclient.Publication{Topic: topic, Payload: []byte(payload), Properties: mcpmqtt.PublishProperties(mcpmqtt.TypeClient, c.id)})
}

func (c *client) put(p mqttclient.Publication) {
	c.t.Helper()
	p.QoS = 1
	var nobody *transport.Undelivered
	if err := c.conn.Publish(c.t.Context(), p); err != nil && !errors.As(err, &nobody) {
		c.t.Fatal(err)
	}
}

// send publishes on the rpc topic.
func (c *client) send(payload string) {
	c.t.Helper()
	c.publish(gateway.RPC(c.id), payload)
}

const initialize = `{"jsonrpc":"2.0","id":"init_1","method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`

// begin begins a session.
func (c *client) begin() {
	c.t.Helper()
	c.publish(gateway.Control(), initialize)
	c.answer("init_1", `"protocolVersion":"2024-11-05"`)
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// call calls a tool without waiting for the answer.
func (c *client) call(id, tool string) {
	c.t.Helper()
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":{"name":"robot__%s","arguments":{}}}`, id, tool))
}

// answer waits for the answer to a request, and checks that it has a text.
func (c *client) answer(id, want string) {
	c.t.Helper()
	for {
		m := c.next(c.in)
		if strings.Contains(m, fmt.Sprintf(`"id":%q`, id)) {
			if !strings.Contains(m, want) {
				c.t.Errorf("the answer to %s is %.500s, want %s", id, m, want)
			}
			return
		}
	}
}
