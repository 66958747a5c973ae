package config

import (
	"cmp"
	"maps"
	"os"
	"slices"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/policy"
)

// alwaysPermitted are the gateway's tools that no rule can forbid.
var alwaysPermitted = []string{ferrule.StopTool}

// Policy configures who may call what.
type Policy struct {
	Preset string              `yaml:"preset"`
	Agents map[string]string   `yaml:"agents"`
	Groups map[string][]string `yaml:"groups"`
	// Dir is the directory of rules.
	Dir string `yaml:"dir"`
}

// roles are the roles of people, which are groups of the policy.
var roles = []string{"viewer", "operator", "owner"}

// PolicyConfig returns the config of the policy.
func (c Config) PolicyConfig() policy.Config {
	claimed := slices.Clone(roles)
	for _, issuer := range c.Auth.Issuers {
		claimed = slices.AppendSeq(claimed, maps.Values(issuer.Groups))
	}
	slices.Sort(claimed)
	return policy.Config{
		Preset: c.Policy.Preset, Agents: c.Policy.Agents, Groups: c.Policy.Groups, Claimed: slices.Compact(claimed), Dir: c.Policy.Dir, Node: c.ClusterConfig().Node,
		Forwarders: ferrule.Forwarders(), Always: alwaysPermitted,
	}
}

// TestPolicy checks the rules of a configuration file, and runs their tests. Without a file,
// it is the one that FERRULE_CONFIG names, or the last one. The rules are those in dir, if it
// is given. The text says what was found.
func TestPolicy(file, last string, dir ...string) (text string, err error) {
	c, err := LoadDefault(cmp.Or(file, os.Getenv("FERRULE_CONFIG"), last))
	if err != nil {
		return "", err
	}
	rules := c.PolicyConfig()
	for _, rules.Dir = range dir {
		rules.Required = true
	}
	p, err := policy.Load(rules)
	if err != nil {
		return "", err
	}
	return p.String(), nil
}
