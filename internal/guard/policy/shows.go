package policy

import "github.com/ferrulehq/ferrule/internal/ferrule"

// ShowsAll reports whether Shows is true for everything: there are no rules but the
// presets, and that of the caller forbids nothing without asking. Lists need not be made
// for such a caller.
func (p *Policy) ShowsAll(who ferrule.Principal) bool {
	if p == nil || len(p.own.rules) > 0 {
		return false
	}
	return who.Role == ferrule.Person || who.Role == ferrule.Agent && p.preset(who.Name) != ReadOnly
}

// ShowsAll is [Policy.ShowsAll].
func (h *Holder) ShowsAll(who ferrule.Principal) bool { return h.Get().ShowsAll(who) }
