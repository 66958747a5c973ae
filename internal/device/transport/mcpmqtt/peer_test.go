//go:build unix

package mcpmqtt_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
	"github.com/ferrulehq/ferrule/internal/mqttclient/mcptopics"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// peer is a server on the broker. It serves one client.
type peer struct {
	server  mcptopics.Server
	bare    bool // its messages have no user properties
	results map[string]string
	conn    *mqttclient.Conn
	stop    func()
	control chan mqttclient.Message
	in      chan mqttclient.Message
	client  string
	closed  chan struct{}
	close   sync.Once
}

func newPeer(t *testing.T, b *mosquitto.Broker, s mcptopics.Server) *peer {
	t.Helper()
	p := &peer{server: s, results: lampResults, control: make(chan mqttclient.Message, 8), in: make(chan mqttclient.Message, 4096), closed: make(chan struct{})}
	p.conn, p.stop = connect(t, b, s.ID, &mqttclient.Publication{Topic: s.Presence(), Retain: true})
	p.subscribe(t, func(m mqttclient.Message) { p.control <- m }, s.Control())
	retain(t, b)(s.Presence(), online)
	return p
}

func (p *peer) subscribe(t *testing.T, fn func(mqttclient.Message), topic string) {
	t.Helper()
	if _, err := p.conn.Subscribe(t.Context(), fn, mqttclient.Filter{Topic: topic, QoS: 1, NoLocal: true}); err != nil {
		t.Fatal(err)
	}
}

// accept waits for initialize, and begins the session.
func (p *peer) accept(t *testing.T) mqttclient.Message {
	t.Helper()
	select {
	case m := <-p.control:
		p.client = mcptopics.Sender(m)
		p.subscribe(t, func(m mqttclient.Message) { p.in <- m }, p.server.RPC(p.client))
		return m
	case <-time.After(wait.Ample):
		t.Fatal("no initialize")
		return mqttclient.Message{}
	}
}

// Send implements transporttest.Peer.
func (p *peer) Send(m transport.Message) error {
	out := mqttclient.Publication{Topic: p.server.RPC(p.client), Payload: m.Data, QoS: 1}
	if !p.bare {
		out.Properties = mcptopics.PublishProperties(mcptopics.TypeServer, p.server.ID)
	}
	return p.conn.Publish(context.Background(), out)
}

// Recv implements transporttest.Peer.
func (p *peer) Recv() (transport.Message, error) {
	select {
	case m := <-p.in:
		return transport.Message{Data: m.Payload}, nil
	case <-p.closed:
		return transport.Message{}, errors.New("closed")
	}
}

// Close implements transporttest.Peer: it ends the session and disconnects.
func (p *peer) Close() error {
	p.close.Do(func() {
		p.Send(transport.Message{Data: mcptopics.Disconnected})
		p.stop()
		close(p.closed)
	})
	return nil
}

// lampResults are the results of a lamp.
var lampResults = map[string]string{
	"initialize": `{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"lamp","version":"1"}}`,
	"tools/list": `{"tools":[{"name":"on","inputSchema":{"type":"object"}}]}`,
	"tools/call": `{"content":[{"type":"text","text":"it is on"}]}`,
}

// quirkyResults are those of a server with the C SDK of EMQX.
var quirkyResults = map[string]string{
	"initialize":               `{"protocolVersion":"2024-11-05","capabilities":{"tools":{"listChanged":false},"resources":{"listChanged":false,"subscribe":false}},"serverInfo":{"name":"mcp","version":"0.0.1"}}`,
	"tools/list":               `{"tools":[{"name":"volume","description":"v","inputSchema":{"type":"object","properties":{"level":{"type":"integer","description":"l"}}}},{"name":"light","description":"x","inputSchema":{"type":"object","properties":{"on":{"type":true,"description":"o"}}}}]}`,
	"resources/list":           `{"contents":[{"uri":"a://b","name":"b"}]}`,
	"resources/templates/list": `{"resourceTemplates":[]}`,
}

// serve answers as a server of the version 2024-11-05 with one tool, until Close.
func (p *peer) serve(t *testing.T) {
	p.answer(t, p.accept(t).Payload)
	for {
		m, err := p.Recv()
		if err != nil {
			return
		}
		p.answer(t, m.Data)
	}
}

func (p *peer) answer(t *testing.T, data []byte) {
	var m struct {
		ID     json.RawMessage
		Method string
	}
	if err := json.Unmarshal(data, &m); err != nil {
		t.Errorf("got %s: %v", data, err)
		return
	}
	if m.ID == nil {
		return
	}
	result := p.results[m.Method]
	if result == "" {
		t.Errorf("unexpected request %s", data)
	}
	// Each answer comes twice, as QoS 1 allows.
	for range 2 {
		p.Send(transport.Message{Data: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)})
	}
}
