package pipeline

import (
	"context"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule"
)

// Fleet finds devices. What it returns is shared and read only.
type Fleet interface {
	Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool)
}

// resolve finds the device and the tool that a call names, and refuses what the
// caller may not know of or what cannot be called.
func resolve(fleet Fleet) Stage {
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			dev, manifest, ok := fleet.Lookup(call.Device)
			if !ok || dev.Trust == ferrule.TrustHeld && call.Principal.Role == ferrule.Agent {
				return nil, ferrule.Errorf(ferrule.NotFound, "there is no device %q", call.Device).
					WithHint("`ferrule devices` lists the devices")
			}
			if dev.Trust == ferrule.TrustHeld {
				return nil, ferrule.Errorf(ferrule.Held, "%s was found and is not trusted yet", dev.ID).
					WithHint("`ferrule adopt %s` trusts it", dev.ID)
			}
			if dev.State != ferrule.StateOnline {
				return nil, dev.OfflineError()
			}
			tool := manifest.Tool(call.Tool)
			switch {
			case tool == nil, tool.UserOnly && call.Principal.Role != ferrule.Person:
				return nil, ferrule.Errorf(ferrule.NotFound, "%s has no tool %q", dev.ID, call.Tool).
					WithHint("it has %s", names(manifest, call.Principal.Role))
			case tool.Quarantine != "":
				return nil, ferrule.Errorf(ferrule.Denied, "%s of %s cannot be used: %s", tool.Name, dev.ID, tool.Quarantine).
					WithHint("`ferrule tools %s` shows all its tools", dev.ID)
			}
			call.Target = ferrule.Target{Device: dev, Tool: tool}
			return next(ctx, call)
		}
	}
}

// names lists the tools of a device that a caller can use, for a hint.
func names(m *ferrule.Manifest, role ferrule.Role) string {
	const most = 20
	var all []string
	for _, t := range m.Tools {
		if t.Quarantine == "" && (!t.UserOnly || role == ferrule.Person) {
			all = append(all, t.Name)
		}
	}
	if len(all) == 0 {
		return "no tool that can be used"
	}
	slices.Sort(all)
	if len(all) > most {
		all = append(all[:most], "and more")
	}
	return strings.Join(all, ", ")
}
