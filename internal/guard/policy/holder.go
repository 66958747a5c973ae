package policy

import (
	"sync/atomic"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Holder has the policy that applies now. A reload replaces it at once, and a call is
// decided by one policy. An empty Holder forbids everything.
type Holder struct{ current atomic.Pointer[Policy] }

// Get returns the policy; nil if there is none.
func (h *Holder) Get() *Policy { return h.current.Load() }

// Replace makes p the policy.
func (h *Holder) Replace(p *Policy) { h.current.Store(p) }

// Version identifies the rules; "" if there are none.
func (h *Holder) Version() string {
	if p := h.Get(); p != nil {
		return p.Version()
	}
	return ""
}

// Decide is [Policy.Decide].
func (h *Holder) Decide(call *ferrule.Call) ferrule.Verdict { return h.Get().Decide(call) }

// Shows is [Policy.Shows].
func (h *Holder) Shows(who ferrule.Principal, dev *ferrule.Device, op ferrule.Operation, tool *ferrule.Tool) bool {
	return h.Get().Shows(who, dev, op, tool)
}
