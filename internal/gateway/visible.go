package gateway

import (
	"context"
	"sync"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// shower says what callers may use, or ask a person for. It is the policy.
type shower interface {
	Shows(who ferrule.Principal, dev *ferrule.Device, op ferrule.Operation, tool *ferrule.Tool) bool
	// ShowsAll reports whether Shows is true for all that a caller can name.
	ShowsAll(who ferrule.Principal) bool
	Version() string
}

// visibility tells the parts of a gateway what to show to whom, and when that changes.
type visibility struct {
	policy shower // nil shows everything

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
}

func newVisibility(policy shower) *visibility {
	return &visibility{policy: policy, changed: make(chan struct{})}
}

// Of implements control.Visibility. The gateway itself sees everything, and people see all
// devices that their credential is good for. What a credential does not permit is hidden,
// except from programs that can ask for more scopes.
func (v *visibility) Of(who ferrule.Principal) ferrule.Visibility {
	if who.Role == ferrule.Gateway {
		return ferrule.Visibility{}
	}
	policy, version := v.policy, ""
	if policy != nil {
		version = policy.Version() // before the first question
		if policy.ShowsAll(who) {
			policy = nil
		}
	}
	if policy == nil && !limited(who) {
		return ferrule.Visibility{}
	}
	return ferrule.Visibility{
		Shows: func(dev *ferrule.Device, op ferrule.Operation, tool *ferrule.Tool) bool {
			return who.Reaches(dev) && (who.CanStepUp() || who.Lacks(dev, op, tool) == 0) && (policy == nil || policy.Shows(who, dev, op, tool))
		},
		// Lists are kept by caller, scopes and devices included, so the version is that of
		// the policy alone.
		AllDevices: who.Role == ferrule.Person && who.Devices == "", Version: version,
	}
}

// limited reports whether a caller's credential hides anything from it.
func limited(who ferrule.Principal) bool {
	all := ferrule.ScopeEndanger // an agent is not shown tools for people
	if who.Role == ferrule.Person {
		all = ferrule.ScopeAdmin
	}
	return who.Devices != "" || !who.CanStepUp() && !who.Scopes.Has(all)
}

// Changed implements control.Visibility.
func (v *visibility) Changed() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changed
}

// replaced is called after the policy was replaced.
func (v *visibility) replaced() {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.changed)
	v.changed = make(chan struct{})
}

// Watch calls fn after each change, until stop is called.
func (v *visibility) Watch(fn func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	changed := v.Changed()
	wg.Go(func() { v.follow(ctx, changed, fn) })
	return func() {
		cancel()
		wg.Wait()
	}
}

// follow calls fn after each change until ctx ends, first after changed is closed.
func (v *visibility) follow(ctx context.Context, changed <-chan struct{}, fn func()) {
	for {
		select {
		case <-changed:
			changed = v.Changed() // before fn, so that no change is missed
			fn()
		case <-ctx.Done():
			return
		}
	}
}

// catalogFor returns the catalog as a caller sees it.
func (g *Gateway) catalogFor(who ferrule.Principal) builtin.Catalog { return g.Catalog.As(who) }
