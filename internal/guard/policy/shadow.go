package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
)

// shadowKey identifies rules that one rule may be compared with: the same effect, scope and
// conditions. Unlike key it tells an entity from what is in it.
type shadowKey struct {
	permit              bool
	principal, resource scope
	conditions          string
}

// checkShadowed returns an error for the first rule that has no effect, because another
// always decides first: one that forbids more, one of the same effect that applies to more,
// or a preset that permits everything to all whom the rule permits something.
func (p *Policy) checkShadowed(rules []*rule) error {
	byKey := make(map[shadowKey][]*rule, len(rules))
	for _, r := range rules {
		k := shadowKey{r.permit, r.principal, r.resource, r.conditions}
		byKey[k] = append(byKey[k], r)
	}
	for _, r := range rules {
		if other := p.shadow(r, byKey); other != nil {
			does := "permits"
			if !other.permit {
				does = "forbids"
			}
			return fmt.Errorf("%s: this rule has no effect: %s already %s all that it applies to. Remove it, or make the other apply to less", r.place(), other.place(), does)
		}
		if preset := p.permittedBefore(r); preset != "" {
			return fmt.Errorf("%s: this rule has no effect: the preset %s already permits everything to the agents that it applies to. To permit only what rules say, set preset: read-only for them; to require approval, write forbid ... unless { context.approved }", r.place(), preset)
		}
	}
	return nil
}

// shadow returns another rule that leaves nothing for r to decide; nil if there is none.
func (p *Policy) shadow(r *rule, byKey map[shadowKey][]*rule) *rule {
	for _, permit := range []bool{false, true} {
		if permit && !r.permit {
			continue // forbid wins
		}
		for _, principal := range p.wider(r.principal) {
			for _, resource := range p.wider(r.resource) {
				for _, conditions := range slices.Compact([]string{"", r.conditions}) {
					for _, other := range byKey[shadowKey{permit, principal, resource, conditions}] {
						if other != r && coversActions(other, r) && (!covers(r, other) || before(other, r)) {
							return other
						}
					}
				}
			}
		}
	}
	return nil
}

// covers reports whether two rules are the same in all that shadowing looks at.
func covers(r, other *rule) bool {
	return r.permit == other.permit && r.principal == other.principal && r.resource == other.resource && r.conditions == other.conditions && coversActions(r, other)
}

// before reports whether a rule stands before another, which is then the one too many.
func before(r, other *rule) bool {
	return r.file < other.file || r.file == other.file && r.line <= other.line
}

// coversActions reports whether a rule applies to all actions of another.
func coversActions(wide, narrow *rule) bool {
	if len(wide.actions) == 0 {
		return true
	}
	return len(narrow.actions) > 0 && !slices.ContainsFunc(narrow.actions, func(a string) bool { return !slices.Contains(wide.actions, a) })
}

// wider returns all scopes that include a scope, itself first.
func (p *Policy) wider(s scope) []scope {
	all := []scope{s, {}}
	if s.is != "" {
		all = append(all, scope{is: s.is})
		if s.entity != (types.EntityUID{}) {
			all = append(all, scope{entity: s.entity})
		}
	}
	if s.exact {
		all = append(all, scope{entity: s.entity}, scope{is: s.entity.Type})
		for _, group := range p.memberOf[s.entity] {
			all = append(all, scope{entity: types.NewEntityUID(typeGroup, types.String(group))})
		}
		if s.entity.Type == typeAgent {
			all = append(all, scope{entity: types.NewEntityUID(typePreset, types.String(p.preset(string(s.entity.ID))))})
		}
		if device, _, ok := strings.Cut(string(s.entity.ID), "/"); ok && s.entity.Type == typeTool {
			uid := types.NewEntityUID(typeDevice, types.String(device))
			all = append(all, scope{entity: uid}, scope{entity: uid, is: typeTool})
		}
	}
	var unique []scope
	for _, w := range all {
		if !slices.Contains(unique, w) {
			unique = append(unique, w)
		}
	}
	return unique
}

// permittedBefore returns the preset that permits everything to all callers that a rule
// permits something; "" if there is none.
func (p *Policy) permittedBefore(r *rule) string {
	if !r.permit {
		return ""
	}
	var presets []string
	for _, agent := range p.agentsIn(r.principal) {
		presets = append(presets, p.preset(agent))
	}
	switch {
	case p.principalsUnknown(r.principal):
		presets = append(presets, p.cfg.Preset)
		for _, preset := range p.cfg.Agents {
			presets = append(presets, preset)
		}
	case r.principal.entity.Type == typePreset:
		presets = append(presets, string(r.principal.entity.ID))
	case r.principal.entity.Type == typePerson, r.principal.is == typePerson:
		return people
	case len(presets) == 0:
		return "" // a group without agents
	}
	if slices.Contains(presets, ReadOnly) {
		return ""
	}
	return presets[0]
}

// agentsIn returns the agents of a scope that names one or a group.
func (p *Policy) agentsIn(s scope) (agents []string) {
	switch s.entity.Type {
	case typeAgent:
		return []string{string(s.entity.ID)}
	case typeGroup:
		for uid, groups := range p.memberOf {
			if uid.Type == typeAgent && slices.Contains(groups, string(s.entity.ID)) {
				agents = append(agents, string(uid.ID))
			}
		}
		slices.Sort(agents)
	}
	return agents
}

// principalsUnknown reports whether a scope may include any agent.
func (p *Policy) principalsUnknown(s scope) bool {
	claimed := s.entity.Type == typeGroup && slices.Contains(p.cfg.Claimed, string(s.entity.ID))
	return s.is != typePerson && (s.entity == (types.EntityUID{}) || s.entity.Type == typeNode || claimed)
}
