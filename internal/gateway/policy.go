package gateway

import (
	"github.com/ferrulehq/ferrule/internal/guard/policy"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// forwarders are the gateway's tools that only make other calls. Each of those passes the
// pipeline, and the policy decides on it.
var forwarders = []string{"call_many", "call_tool"}

// alwaysPermitted are the gateway's tools that no rule can forbid.
var alwaysPermitted = []string{}

// loadPolicy reads the rules that the gateway starts with.
func (g *Gateway) loadPolicy() error {
	p, err := g.readPolicy(g.parts.Config)
	if err != nil {
		return err
	}
	g.Policy.Replace(p)
	return datadir.SetPolicies(g.parts.Data, p.Dir())
}

// readPolicy reads the rules of a configuration. If there were rules before, a directory
// that is gone is an error: what they forbid must not be permitted because somebody moved
// them.
func (g *Gateway) readPolicy(cfg config.Config) (*policy.Policy, error) {
	c := cfg.PolicyConfig()
	c.Required = datadir.Policies(g.parts.Data) != ""
	c.Forwarders, c.Always = forwarders, alwaysPermitted
	return policy.Load(c)
}

// rememberRules stores for the next start that there are rules.
func (g *Gateway) rememberRules(p *policy.Policy) error {
	if p.Dir() == "" {
		return nil
	}
	return datadir.SetPolicies(g.parts.Data, p.Dir())
}

// replacePolicy applies other rules to all calls that are not decided yet.
func (g *Gateway) replacePolicy(p *policy.Policy, done *control.Reloaded) {
	if p.Version() == g.Policy.Version() {
		return
	}
	g.Policy.Replace(p)
	if p.Dir() == "" {
		if err := datadir.SetPolicies(g.parts.Data, ""); err != nil {
			g.parts.Log.Warn("the next start will expect rules, though there are none", "err", err)
		}
	}
	done.Applied = append(done.Applied, "policy: "+p.String())
}
