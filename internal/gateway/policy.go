package gateway

import (
	"encoding/json"
	"strings"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/policy"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/schema"
)

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
	g.visibility.replaced()
	if p.Dir() == "" {
		if err := datadir.SetPolicies(g.parts.Data, ""); err != nil {
			g.parts.Log.Warn("the next start will expect rules, though there are none", "err", err)
		}
	}
	done.Applied = append(done.Applied, "policy: "+p.String())
}

// ExplainPolicy implements builtin.PolicyExplainer.
func (g *Gateway) ExplainPolicy(in builtin.ExplainPolicyInput) (v ferrule.Verdict, text string, err error) {
	tool := in.Tool
	target, ok := g.Fleet.Target(in.Device)
	if !ok {
		return v, "", ferrule.UnknownDevice(in.Device)
	}
	if target.Manifest == nil || target.Manifest.Tool(tool) == nil {
		return v, "", ferrule.Errorf(ferrule.NotFound, "%s has no tool %q", target.Device.ID, ferrule.Clean(tool, ferrule.MaxToolName)).
			WithHint("to see its tools, run `ferrule tools %s`", target.Device.ID)
	}
	target.Tool = target.Manifest.Tool(tool)
	who := policy.ParsePrincipal(in.Who)
	who.Groups = strings.Join(in.Groups, ",")
	call := &ferrule.Call{Principal: who, Device: target.Device.ID, Tool: tool, Target: target}
	if call.DecodedArgs, _, err = schema.DecodeArgs(json.RawMessage(in.Arguments)); err != nil {
		return v, "", ferrule.Errorf(ferrule.Invalid, "invalid arguments for %s on %s: %w", tool, target.Device.ID, err)
	}
	if !call.Principal.CanCall(target.Tool) {
		return ferrule.Verdict{Ruling: ferrule.Forbid, Reason: "the tool is for people only, whatever the rules say"}, "", nil
	}
	p := g.Policy.Get()
	v = p.Decide(call)
	if stopped := g.Stop.Stopped().For(target.Device); stopped != "" && target.Tool.Effect != ferrule.Reads {
		v.Reason += "; but the device is " + stopped
	}
	return v, p.Text(v.Rule), nil
}
