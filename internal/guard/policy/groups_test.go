package policy

import (
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestClaimedGroups: a caller is in the groups that its credential names, and in those of the
// configuration. Both with one name are the same group.
func TestClaimedGroups(t *testing.T) {
	cfg := Config{Preset: ReadOnly, Groups: map[string][]string{"family": {"claude", "person:anna"}}, Claimed: []string{"family", "operator", "lab"}}
	p := mustLoad(t, cfg, "a.cedar", `
permit (principal in Group::"operator", action, resource in Device::"lamp");
permit (principal is Agent in Group::"family", action, resource in Device::"door");
permit (principal, action, resource in Device::"pump") when { principal in Group::"lab" };
forbid (principal is Person in Group::"operator", action, resource in Device::"oven");`)
	for _, test := range []struct {
		who, groups, device string
		want                ferrule.Ruling
	}{
		{"company:maria", "", "lamp", ferrule.Forbid},
		{"company:maria", "operator", "lamp", ferrule.Permit},
		{"company:maria", "lab,operator", "lamp", ferrule.Permit},
		{"company:maria", "operators", "lamp", ferrule.Forbid},
		{"company:maria", "Operator", "lamp", ferrule.Forbid},
		{"company:maria", "operator", "door", ferrule.Forbid},
		{"company:maria", "family", "door", ferrule.Permit},
		{"claude", "", "door", ferrule.Permit},
		{"claude", "family", "door", ferrule.Permit},
		{"claude", "lab", "door", ferrule.Permit},
		{"company:maria", "lab", "pump", ferrule.Permit},
		{"company:maria", "operator", "pump", ferrule.Forbid},
		{"person:maria", "", "oven", ferrule.Permit},
		{"person:maria", "operator", "oven", ferrule.Forbid},
		{"company:maria", "careful", "pump", ferrule.Forbid}, // a group is not a preset
	} {
		c := call(test.who, test.device, "on", ferrule.Changes, "")
		c.Principal.Groups = test.groups
		if got := p.Decide(c); got.Ruling != test.want {
			t.Errorf("%s in %q at %s: got %+v", test.who, test.groups, test.device, got)
		}
		if shown := p.Shows(c.Principal, c.Target.Device, c.Operation, c.Target.Tool); shown != (test.want != ferrule.Forbid) {
			t.Errorf("%s in %q at %s: shown: %v", test.who, test.groups, test.device, shown)
		}
		if p.ShowsAll(c.Principal) {
			t.Errorf("%s in %q is shown everything", test.who, test.groups)
		}
	}
	if _, err := load(t, cfg, "a.cedar", `forbid (principal in Group::"robots", action, resource);`); err == nil || !strings.Contains(err.Error(), `group "robots" is not in policy.groups`) {
		t.Errorf("got %v", err)
	}
	// A rule for a group that anybody may turn out to be in has an effect, though all members
	// that are known now may do everything.
	cfg = Config{Preset: ReadOnly, Agents: map[string]string{"claude": Open}, Groups: map[string][]string{"family": {"claude"}}}
	const rule = `permit (principal in Group::"family", action, resource);`
	if _, err := load(t, cfg, "a.cedar", rule); err == nil {
		t.Error("the rule has an effect without other members")
	}
	cfg.Claimed = []string{"family"}
	if _, err := load(t, cfg, "a.cedar", rule, "a.test.yaml", "- {who: 'company:maria', groups: [family, lab], device: lamp, tool: on, expect: permit}\n- {who: 'company:maria', groups: [lab], device: lamp, tool: on, expect: forbid}\n"); err != nil {
		t.Error(err)
	}
}
