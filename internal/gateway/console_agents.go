package gateway

import (
	"cmp"
	"encoding/json"
	"strings"
	"sync"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// consoleAgents implements api.Agents.
type consoleAgents struct{ *Gateway }

// Connected implements api.Agents.
func (c consoleAgents) Connected() []ferrule.ConnectedAgent {
	all := append(c.Agents.Connected(), c.Control.Connected()...)
	return append(all, c.ownAgent.list()...)
}

// Away implements api.Agents.
func (c consoleAgents) Away() (all []api.AwayAgent) {
	for _, e := range c.Endpoints {
		if s := e.State(); !s.Connected {
			all = append(all, api.AwayAgent{Name: endpointPrefix + s.Name, Since: s.Since, Reason: s.Reason})
		}
	}
	return all
}

// endpointPrefix begins the names of agents at endpoints.
const endpointPrefix = "endpoint:"

// Known implements api.Agents.
func (c consoleAgents) Known(name string) (who ferrule.Principal, ok bool) {
	var last ferrule.ConnectedAgent
	for _, agent := range c.Connected() {
		if agent.Principal.Name == name && !agent.Heard.Before(last.Heard) {
			last, ok = agent, true
		}
	}
	if ok {
		return last.Principal, true
	}
	for _, who := range c.tokens.Principals() {
		if who.Name == name {
			return who, true
		}
	}
	for _, t := range managed(c).List() {
		who = ferrule.Principal{Role: ferrule.Agent, Name: t.Name, Auth: ferrule.AuthToken, Devices: strings.Join(t.Devices, ",")}
		if t.Login != nil {
			who.Name, who.Auth, who.User = strings.TrimPrefix(t.Login.Agent, string(ferrule.Agent)+":"), ferrule.AuthOAuth, t.Login.Person
		}
		var err error
		if who.Scopes, err = ferrule.ParseScopes(t.Scopes); err == nil && who.Name == name {
			return who, true
		}
	}
	who = ferrule.Principal{Role: ferrule.Agent, Name: name}
	for _, e := range c.Endpoints {
		if endpointPrefix+e.State().Name == name {
			who.Auth = ferrule.AuthEndpoint
			return who, true
		}
	}
	return who, false
}

// Preset implements api.Agents.
func (c consoleAgents) Preset(name string) string { return c.Policy.Get().PresetOf(name) }

// Offers implements api.Agents.
func (c consoleAgents) Offers(who ferrule.Principal, device string) ([]ferrule.Offer, string) {
	see := c.Catalog.As(who)
	all, shape := see.List()
	if device != "" {
		all = see.Of(device)
	}
	return all, string(shape)
}

// Offer implements api.Agents.
func (c consoleAgents) Offer(who ferrule.Principal, name string) (ferrule.Offer, bool) {
	o, err := c.Catalog.As(who).Offer(name)
	return o, err == nil
}

// Devices implements api.Agents.
func (c consoleAgents) Devices(who ferrule.Principal, limit int) []*ferrule.Device {
	return c.Catalog.As(who).Devices(limit)
}

// Sees implements api.Agents.
func (c consoleAgents) Sees(who ferrule.Principal, device string) bool {
	_, _, ok := c.Catalog.As(who).Lookup(device)
	return ok
}

// Input implements api.Agents.
func (c consoleAgents) Input(who ferrule.Principal, device, tool string) json.RawMessage {
	if _, t := c.Catalog.As(who).Tool(device, tool); t != nil {
		return t.Input
	}
	return nil
}

// Verdict implements api.Agents.
func (c consoleAgents) Verdict(who ferrule.Principal, device, tool string) ferrule.Verdict {
	if device == ferrule.GatewayID && catalog.Name(tool) == catalog.CallTool {
		return ferrule.Verdict{Ruling: ferrule.Permit, Reason: "the called tool is decided by itself"}
	}
	dev, manifest, ok := c.Catalog.As(who).Lookup(device)
	if !ok || manifest == nil || manifest.Tool(tool) == nil {
		return ferrule.Verdict{Ruling: ferrule.Forbid, Reason: "the agent does not see it"}
	}
	call := &ferrule.Call{Principal: who, Device: dev.ID, Tool: tool, DecodedArgs: map[string]any{}}
	call.Target = ferrule.Target{Device: dev, Manifest: manifest, Tool: manifest.Tool(tool)}
	v := c.Policy.Decide(call)
	if stopped := c.Stop.Stopped().For(dev); stopped != "" && call.Target.Tool.Effect != ferrule.Reads {
		v.Reason += "; but the device is " + stopped
	}
	return v
}

// URL implements api.Agents.
func (c consoleAgents) URL() string {
	if c.web == nil {
		return ""
	}
	return cmp.Or(strings.TrimSuffix(c.parts.Config.Auth.URL, "/"), c.Gateway.URL()) + "/mcp"
}

// ownAgent is the agent that a gateway in a `ferrule mcp` process serves itself.
type ownAgent struct {
	mu    sync.Mutex
	agent ferrule.ConnectedAgent
}

// called notes a call of the agent.
func (o *ownAgent) called(call *ferrule.Call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.agent.Session = true
	o.agent.Hear(call.Principal, call.Client, true)
}

func (o *ownAgent) list() []ferrule.ConnectedAgent {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.agent.Calls == 0 {
		return nil
	}
	return []ferrule.ConnectedAgent{o.agent}
}
