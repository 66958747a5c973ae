package ferrule

import "time"

// ConnectedAgent is an agent that uses the gateway now, or did a short time ago.
type ConnectedAgent struct {
	Principal Principal
	// Client is the agent's program, as it describes itself.
	Client Client
	// Device is set if the agent uses the address of one device.
	Device string
	// Session reports whether the agent has a session, so that its end is noticed. Without
	// one, all that is known is when the agent was last heard.
	Session bool
	// Since is when the session began, or when the agent was first heard. Heard is its last
	// request, and Called its last call; zero if there was none.
	Since, Heard, Called time.Time
	Calls                int
}

// Hear notes a request of the agent.
func (a *ConnectedAgent) Hear(who Principal, client Client, isCall bool) {
	now := time.Now()
	if a.Since.IsZero() {
		a.Since = now
	}
	a.Principal, a.Client, a.Heard = who, client.Bounded(), now
	if isCall {
		a.Called = now
		a.Calls++
	}
}
