package api

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/setup"
)

// Agents knows the agents of the gateway.
type Agents interface {
	// Connected returns the agents that use this node now, in no order.
	Connected() []ferrule.ConnectedAgent
	// Away returns connections of agents that do not work now.
	Away() []AwayAgent
	// Known returns an agent with what its credential permits. If ok is false, nothing is
	// known of it but the name.
	Known(name string) (who ferrule.Principal, ok bool)
	// Preset returns the preset of an agent.
	Preset(name string) string
	// Offers returns the tools in the list of a caller, sorted by name, and how the list
	// shows them. If device is set, it is the list at the address of that device.
	Offers(who ferrule.Principal, device string) (all []ferrule.Offer, shape string)
	// Offer returns a tool of the list, with its first devices.
	Offer(who ferrule.Principal, name string) (ferrule.Offer, bool)
	// Devices returns up to limit devices that a caller sees, in the order of IDs.
	Devices(who ferrule.Principal, limit int) []*ferrule.Device
	// Sees reports whether a caller sees a device.
	Sees(who ferrule.Principal, device string) bool
	// Input returns the schema of the arguments of a tool that a caller sees; nil if it does
	// not.
	Input(who ferrule.Principal, device, tool string) json.RawMessage
	// Verdict is what the policy decides now on a call without arguments.
	Verdict(who ferrule.Principal, device, tool string) ferrule.Verdict
	// URL is where agents find the gateway; empty if it does not serve HTTP.
	URL() string
}

// AwayAgent is a connection to agents that the owner configured and that does not work now.
type AwayAgent struct {
	Name   string
	Since  time.Time
	Reason string
}

// agentOperations returns the operations on agents, their tokens and consents.
func (a *API) agentOperations() []Operation {
	return []Operation{
		operation(http.MethodGet, "/agents", "List the agents that use this node.", ferrule.ScopeRead, a.Agents),
		operation(http.MethodGet, "/agents/view", "Show what an agent sees, and what the policy decides.", ferrule.ScopeRead, a.ViewAs),
		operation(http.MethodGet, "/agents/programs", "List agent programs, and how to connect them.", ferrule.ScopeRead, a.Programs),
		operation(http.MethodGet, "/tokens", "List the tokens and logins of agents.", ferrule.ScopeAdmin, a.Tokens),
		operation(http.MethodPost, "/tokens", "Make a token. The secret is returned once.", ferrule.ScopeAdmin, a.AddToken),
		operation(http.MethodPost, "/tokens/{name}/rotate", "Give a token another secret, which is returned once.", ferrule.ScopeAdmin, a.RotateToken),
		operation(http.MethodPost, "/tokens/{name}/revoke", "End a token or a login.", ferrule.ScopeAdmin, a.RevokeToken),
	}
}

// maxPage limits the entries of a page of a list.
const maxPage = 100

// AgentsInput has the parameters of Agents.
type AgentsInput struct {
	After string `json:"after,omitempty" jsonschema:"next of the last page"`
}

// AgentsOutput is the result of Agents.
type AgentsOutput struct {
	Agents []Agent `json:"agents"`
	// Total counts all, on all pages.
	Total int    `json:"total"`
	Next  string `json:"next,omitempty" jsonschema:"the page after this one; empty for the last"`
}

// The states of an agent.
const (
	AgentConnected = "connected" // it has a session
	AgentHeard     = "heard"     // it has no session, and was heard within a day
	AgentAway      = "away"      // a connection of the owner does not work
)

// Agent is an agent, or several with the same name and program.
type Agent struct {
	Name string       `json:"name" jsonschema:"how the journal names it"`
	Auth ferrule.Auth `json:"auth,omitempty" jsonschema:"how it was let in"`
	User string       `json:"user,omitempty" jsonschema:"who runs it, or let it in"`
	// Client is what the program says about itself.
	Client   ferrule.Client `json:"client,omitzero" jsonschema:"its program, as it describes itself"`
	Device   string         `json:"device,omitempty" jsonschema:"the only device that it uses by its address"`
	State    string         `json:"state" jsonschema:"connected, heard or away"`
	Reason   string         `json:"reason,omitempty" jsonschema:"why it is away"`
	Sessions int            `json:"sessions" jsonschema:"how many are open"`
	Since    time.Time      `json:"since,omitzero" jsonschema:"when the first session began"`
	Heard    time.Time      `json:"heard,omitzero" jsonschema:"last request"`
	Called   time.Time      `json:"called,omitzero" jsonschema:"last call of a tool"`
	Calls    int            `json:"calls" jsonschema:"calls since then"`
	Preset   string         `json:"preset"`
	Tools    int            `json:"tools" jsonschema:"tools in its list"`
	AllTools int            `json:"all_tools" jsonschema:"tools in the list of one from whom nothing is hidden"`

	who ferrule.Principal
}

// key orders agents.
func (g Agent) key() string { return g.Name + "\n" + g.Client.Name + "\n" + g.Device }

// Agents returns the agents that use this node, in the order of their names.
func (a *API) Agents(_ context.Context, who ferrule.Principal, in AgentsInput) (AgentsOutput, error) {
	if err := Allowed(who, ferrule.ScopeRead); err != nil {
		return AgentsOutput{}, err
	}
	all := a.allAgents()
	out := AgentsOutput{Total: len(all)}
	out.Agents, out.Next = pageAfter(all, Agent.key, in.After)
	whole, _ := a.parts.Agents.Offers(ferrule.Principal{Role: ferrule.Gateway}, "")
	for i := range out.Agents {
		g := &out.Agents[i]
		list, _ := a.parts.Agents.Offers(g.who, "")
		g.Tools, g.AllTools, g.Preset = len(list), len(whole), a.parts.Agents.Preset(g.Name)
	}
	return out, nil
}

// allAgents returns all agents, sorted. Sessions of the same agent and program are one.
func (a *API) allAgents() []Agent {
	byKey := make(map[string]*Agent)
	for _, c := range a.parts.Agents.Connected() {
		g := Agent{Name: c.Principal.Name, Client: c.Client, Device: c.Device}
		if byKey[g.key()] == nil {
			g.State = AgentHeard
			byKey[g.key()] = &g
		}
		byKey[g.key()].add(c)
	}
	all := []Agent{}
	for _, g := range byKey {
		all = append(all, *g)
	}
	for _, c := range a.parts.Agents.Away() {
		who, _ := a.parts.Agents.Known(c.Name)
		all = append(all, Agent{Name: c.Name, Auth: who.Auth, State: AgentAway, Since: c.Since, Reason: ferrule.Clean(c.Reason, ferrule.MaxText), who: who})
	}
	slices.SortFunc(all, func(x, y Agent) int { return cmp.Compare(x.key(), y.key()) })
	return all
}

// add adds a session.
func (g *Agent) add(c ferrule.ConnectedAgent) {
	if c.Session {
		g.State = AgentConnected
		g.Sessions++
	}
	if g.Since.IsZero() || c.Since.Before(g.Since) {
		g.Since = c.Since
	}
	if !c.Heard.Before(g.Heard) {
		g.Heard, g.who, g.Client = c.Heard, c.Principal, c.Client
		g.Auth, g.User = c.Principal.Auth, c.Principal.User
	}
	if c.Called.After(g.Called) {
		g.Called = c.Called
	}
	g.Calls += c.Calls
}

// pageAfter returns the page of a sorted list after a key, and the key of the next one.
func pageAfter[T any](all []T, key func(T) string, after string) (page []T, next string) {
	first := 0
	if after != "" {
		first, _ = slices.BinarySearchFunc(all, after, func(t T, k string) int { return cmp.Compare(key(t), k) })
		if first < len(all) && key(all[first]) == after {
			first++
		}
	}
	page = append([]T{}, all[first:min(len(all), first+maxPage)]...)
	if first+len(page) < len(all) {
		next = key(page[len(page)-1])
	}
	return page, next
}

// Tokens returns the tokens that let agents in, and the logins that people gave to agents.
func (a *API) Tokens(ctx context.Context, who ferrule.Principal, in builtin.ListTokensInput) (builtin.ListTokensOutput, error) {
	return Builtin[builtin.ListTokensOutput](ctx, a, who, "list_tokens", in)
}

// AddToken makes a token. The output has its secret, which is not stored anywhere.
func (a *API) AddToken(ctx context.Context, who ferrule.Principal, in builtin.AddTokenInput) (builtin.TokenOutput, error) {
	return Builtin[builtin.TokenOutput](ctx, a, who, "add_token", in)
}

// RotateToken gives a token another secret.
func (a *API) RotateToken(ctx context.Context, who ferrule.Principal, in builtin.RotateTokenInput) (builtin.TokenOutput, error) {
	return Builtin[builtin.TokenOutput](ctx, a, who, "rotate_token", in)
}

// RevokeToken ends a token or a login.
func (a *API) RevokeToken(ctx context.Context, who ferrule.Principal, in builtin.RevokeTokenInput) (builtin.TokenOutput, error) {
	return Builtin[builtin.TokenOutput](ctx, a, who, "revoke_token", in)
}

// ProgramsInput has the parameters of Programs.
type ProgramsInput struct{}

// ProgramsOutput is the result of Programs.
type ProgramsOutput struct {
	Programs []Program `json:"programs"`
	URL      string    `json:"url,omitempty" jsonschema:"where agents find the gateway; empty if it does not serve HTTP"`
}

// Program is an agent program, and how to connect it.
type Program struct {
	Name  string        `json:"name" jsonschema:"its name for ferrule setup"`
	Title string        `json:"title"`
	Next  string        `json:"next" jsonschema:"what to do afterward"`
	Stdio ProgramConfig `json:"stdio" jsonschema:"it starts ferrule mcp, on the machine of the gateway"`
	HTTP  ProgramConfig `json:"http" jsonschema:"it connects to the gateway; empty if it cannot"`
}

// ProgramConfig is one way to connect a program.
type ProgramConfig struct {
	Command string `json:"command" jsonschema:"command that sets it up"`
	Text    string `json:"text" jsonschema:"the entry in its configuration file"`
	Why     string `json:"why,omitempty" jsonschema:"why this way is not possible"`
}

// tokenHere stands for a secret in a configuration.
const tokenHere = "TOKEN"

// Programs returns the agent programs that `ferrule setup` knows.
func (a *API) Programs(_ context.Context, who ferrule.Principal, _ ProgramsInput) (ProgramsOutput, error) {
	return a.ProgramsWith(who, tokenHere)
}

// ProgramsWith is Programs with a secret in the configurations. It is for a page that has just
// made the secret.
func (a *API) ProgramsWith(who ferrule.Principal, secret string) (ProgramsOutput, error) {
	if err := Allowed(who, ferrule.ScopeRead); err != nil {
		return ProgramsOutput{}, err
	}
	out := ProgramsOutput{URL: a.parts.Agents.URL()}
	for _, c := range setup.Clients() {
		out.Programs = append(out.Programs, programFor(c, out.URL, secret))
	}
	return out, nil
}

// programFor returns how to connect a program to a URL with a token.
func programFor(c setup.Client, url, token string) Program {
	p := Program{Name: c.Name, Title: c.Title, Next: c.Next}
	entry := func(s setup.Server, command string) ProgramConfig {
		s.Name = setup.ServerName
		if err := c.Accepts(s); err != nil {
			return ProgramConfig{Why: strings.Replace(err.Error(), "--http", "HTTP", 1)}
		}
		text, err := c.Add(nil, s)
		if err != nil { // cannot be: the document is empty
			return ProgramConfig{Why: err.Error()}
		}
		return ProgramConfig{Command: command, Text: string(text)}
	}
	p.Stdio = entry(setup.Server{Command: "ferrule", Args: []string{"mcp"}}, "ferrule setup "+c.Name)
	if url == "" {
		p.HTTP.Why = "this gateway does not serve HTTP; set listen in ferrule.yaml"
		return p
	}
	p.HTTP = entry(setup.Server{URL: url, Token: token}, "ferrule setup "+c.Name+" --http "+url)
	return p
}
