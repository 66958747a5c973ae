package mqttserver

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/rpc"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
	"github.com/ferrulehq/ferrule/internal/mqttclient/mcptopics"
)

// host has the sessions on one connection to the broker.
type host struct {
	parts  Parts
	server mcptopics.Server
	conn   *mqttclient.Conn
	starts chan mqttclient.Message // on the control topic
	tasks  sync.WaitGroup

	mu       sync.Mutex
	sessions map[string]*session // by client ID
	// changed has the notifications that were sent to all clients a moment ago, and
	// whether there was another one since.
	changed map[string]bool
}

// hear receives a message on the control topic. A retained one is old.
func (h *host) hear(m mqttclient.Message) {
	if m.Retained || len(m.Payload) > maxMessage {
		return
	}
	select {
	case h.starts <- m:
	default:
		h.parts.Log.Warn("dropped an initialize request: too many at once")
	}
}

// run begins sessions until the connection or ctx ends. All have ended then.
func (h *host) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer h.tasks.Wait()
	defer cancel()
	for {
		select {
		case m := <-h.starts:
			h.start(ctx, m)
		case <-h.conn.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// start begins a session. A client that initializes again has forgotten its last one.
func (h *host) start(ctx context.Context, m mqttclient.Message) {
	first, ok := decode(m.Payload)
	if !ok || first.Method != methodInitialize || first.ID == nil {
		return
	}
	client := mcptopics.Sender(m)
	if client == "" {
		client = clientID(first)
	}
	if mcptopics.CheckID(client) != nil || client == h.server.ID {
		h.parts.Log.Debug("ignored an initialize request without a usable client ID")
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if old := h.sessions[client]; old != nil {
		if !old.heard.Load() && bytes.Equal(old.first.ID, first.ID) {
			return // it came twice
		}
		old.leave("the client began another session")
		delete(h.sessions, client)
	}
	if len(h.sessions) >= maxSessions {
		h.tasks.Go(func() {
			h.publish(h.server.RPC(client), failure(first.ID, rpc.CodeBusy, fmt.Sprintf("%d sessions are open: try again later", maxSessions)))
		})
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &session{
		host: h, client: client, rpc: h.server.RPC(client), first: first, cancel: cancel,
		in: make(chan queued, maxQueue), seen: make(map[string]bool),
	}
	s.lines.Pass = s.pass
	h.sessions[client] = s
	h.tasks.Go(func() {
		s.run(ctx)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.sessions[client] == s {
			delete(h.sessions, client)
		}
	})
}

// publish publishes a message. It must be possible when ctx has ended.
func (h *host) publish(topic string, data []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), brokerTimeout)
	defer cancel()
	return h.conn.Publish(ctx, mqttclient.Publication{
		Topic: topic, Payload: data, QoS: 1, Properties: mcptopics.PublishProperties(mcptopics.TypeServer, h.server.ID),
	})
}

// changePause is the shortest time between two equal notifications to all clients.
const changePause = 250 * time.Millisecond

// announce tells all clients that a list has changed. Each session has this notification,
// and all clients subscribe to one topic: equal ones at about the same time are one.
func (h *host) announce(method string, line []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, recent := h.changed[method]; recent {
		h.changed[method] = true
		return
	}
	if h.changed == nil {
		h.changed = make(map[string]bool)
	}
	h.changed[method] = false
	line = bytes.Clone(line)
	h.tasks.Go(func() {
		for again := true; again; {
			h.publish(h.server.Capability(), line) // without subscribers there is nobody to tell
			select {
			case <-time.After(changePause):
			case <-h.conn.Done():
			}
			h.mu.Lock()
			if again = h.changed[method] && h.conn.Err() == nil; again {
				h.changed[method] = false
			} else {
				delete(h.changed, method)
			}
			h.mu.Unlock()
		}
	})
}

// caller returns the principal of all agents on the broker.
func (h *host) caller() ferrule.Principal {
	return ferrule.Principal{Role: ferrule.Agent, Name: "mqtt:" + h.parts.Config.Broker, Auth: ferrule.AuthEndpoint}
}

// isListChange reports whether a notification is for all clients.
func isListChange(method string) bool { return strings.HasSuffix(method, "/list_changed") }
