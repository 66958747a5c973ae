package config

import "github.com/ferrulehq/ferrule/internal/guard/policy"

// Policy configures who may call what.
type Policy struct {
	Preset string              `yaml:"preset"`
	Agents map[string]string   `yaml:"agents"`
	Groups map[string][]string `yaml:"groups"`
	// Dir is the directory of rules.
	Dir string `yaml:"dir"`
}

// PolicyConfig returns the config of the policy.
func (c Config) PolicyConfig() policy.Config {
	return policy.Config{Preset: c.Policy.Preset, Agents: c.Policy.Agents, Groups: c.Policy.Groups, Dir: c.Policy.Dir, Node: c.ClusterConfig().Node}
}
