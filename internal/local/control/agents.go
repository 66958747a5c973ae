package control

import (
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// agents are the `ferrule mcp` processes that are connected and have said whom they serve.
type agents struct {
	mu  sync.Mutex
	all map[*ferrule.ConnectedAgent]string // session
}

// begin adds a process until the returned function is called.
func (a *agents) begin(session string, who ferrule.Principal, client ferrule.Client) (end func()) {
	agent := &ferrule.ConnectedAgent{Session: true}
	agent.Hear(who, client, false)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = make(map[*ferrule.ConnectedAgent]string)
	}
	a.all[agent] = session
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.all, agent)
	}
}

// called counts a call of a process.
func (a *agents) called(call *ferrule.Call) {
	if call.Session == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for agent, session := range a.all {
		if session == call.Session {
			agent.Hear(call.Principal, call.Client, true)
		}
	}
}

// Connected returns the agents whose `ferrule mcp` processes are connected.
func (s *Server) Connected() (all []ferrule.ConnectedAgent) {
	s.agents.mu.Lock()
	defer s.agents.mu.Unlock()
	for agent := range s.agents.all {
		all = append(all, *agent)
	}
	return all
}
