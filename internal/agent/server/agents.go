package server

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Limits of what is remembered of agents without sessions. If there are more, the one that
// was silent for longest is forgotten.
const (
	maxStateless = 256
	statelessAge = 24 * time.Hour
)

// streamPrefix begins the names of sessions on a pair of streams. IDs of sessions over HTTP
// begin otherwise.
const streamPrefix = "stream-"

// agents remembers who was heard. A stream is dropped when it ends. A session over HTTP that
// has ended is dropped when the agents are listed, or when there are more than can be open.
type agents struct {
	mu        sync.Mutex
	sessions  map[string]*ferrule.ConnectedAgent // by the ID of the session over HTTP, or the name of the stream
	stateless map[statelessAgent]*ferrule.ConnectedAgent
}

// statelessAgent identifies an agent whose protocol has no sessions.
type statelessAgent struct{ name, device string }

// heard remembers a request.
func (v *view) heard(ctx context.Context, req mcp.Request) {
	all, who := &v.server.agents, caller(ctx)
	key, ok := ctx.Value(sessionKey{}).(string)
	if session := req.GetSession(); !ok && session != nil {
		key = session.ID()
	}
	_, isCall := req.(*mcp.CallToolRequest)
	all.mu.Lock()
	defer all.mu.Unlock()
	all.find(v, key, who.Name).Hear(who, client(ctx), isCall)
}

// find returns what is remembered of an agent. It is called with mu held.
func (a *agents) find(v *view, session, name string) *ferrule.ConnectedAgent {
	if session == "" {
		id := statelessAgent{name, v.device}
		if a.stateless[id] == nil {
			if a.stateless == nil {
				a.stateless = make(map[statelessAgent]*ferrule.ConnectedAgent)
			}
			if len(a.stateless) >= maxStateless {
				a.dropSilent()
			}
			a.stateless[id] = &ferrule.ConnectedAgent{Device: v.device}
		}
		return a.stateless[id]
	}
	if a.sessions[session] == nil {
		if a.sessions == nil {
			a.sessions = make(map[string]*ferrule.ConnectedAgent)
		}
		if len(a.sessions) > 2*v.server.parts.Config.Sessions {
			a.sessions = make(map[string]*ferrule.ConnectedAgent) // those that go on are heard again
		}
		a.sessions[session] = &ferrule.ConnectedAgent{Device: v.device, Session: true}
	}
	return a.sessions[session]
}

// gone forgets a stream that has ended.
func (a *agents) gone(stream string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.sessions, stream)
}

// dropSilent forgets the agent without a session that was silent for longest.
func (a *agents) dropSilent() {
	var oldest statelessAgent
	last := time.Now()
	for id, agent := range a.stateless {
		if !agent.Heard.After(last) {
			oldest, last = id, agent.Heard
		}
	}
	delete(a.stateless, oldest)
}

// Connected returns the agents that are connected, and those without sessions that were heard
// within a day, in no order.
func (s *Server) Connected() []ferrule.ConnectedAgent {
	listed, open := time.Now(), make(map[string]bool)
	for server := range s.servers() {
		for session := range server.Sessions() {
			open[session.ID()] = true
		}
	}
	a := &s.agents
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]ferrule.ConnectedAgent, 0, len(a.sessions)+len(a.stateless))
	for id, agent := range a.sessions {
		if !open[id] && !strings.HasPrefix(id, streamPrefix) && agent.Heard.Before(listed) {
			delete(a.sessions, id)
			continue
		}
		all = append(all, *agent)
	}
	for id, agent := range a.stateless {
		if agent.Heard.Before(listed.Add(-statelessAge)) {
			delete(a.stateless, id)
			continue
		}
		all = append(all, *agent)
	}
	return all
}
