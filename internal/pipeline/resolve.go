package pipeline

import (
	"context"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Fleet finds devices. What it returns is shared and read only.
type Fleet interface {
	Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool)
}

// resolve finds the device and the tool that a call names, or what else it asks for,
// and refuses what the caller may not know of or what cannot be called.
func resolve(fleet Fleet) stage {
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			dev, manifest, ok := fleet.Lookup(call.Device)
			switch {
			case !ok || !call.Principal.CanSee(dev):
				return nil, ferrule.UnknownDevice(call.Device)
			case dev.Trust == ferrule.TrustPending:
				return nil, ferrule.Errorf(ferrule.Pending, "%s was found and is not trusted yet", dev.ID).
					WithHint("`ferrule adopt %s` trusts it", dev.ID)
			case dev.State != ferrule.StateOnline:
				return nil, dev.OfflineError()
			}
			tool := manifest.ToolFor(call.Operation, call.Tool)
			switch {
			case tool == nil && call.Operation != ferrule.CallTool:
				return nil, cannot(dev, manifest, call)
			case tool == nil || !call.Principal.CanCall(tool):
				return nil, ferrule.Errorf(ferrule.NotFound, "%s has no tool %q", dev.ID, ferrule.Clean(call.Tool, ferrule.MaxToolName)).
					WithHint("it has %s", names(manifest, call.Principal))
			case tool.Quarantine != "":
				return nil, ferrule.Errorf(ferrule.Denied, "%s of %s cannot be used: %s", tool.Name, dev.ID, tool.Quarantine).
					WithHint("`ferrule tools %s` shows all its tools", dev.ID)
			}
			call.Target = ferrule.Target{Device: dev, Manifest: manifest, Tool: tool}
			return next(ctx, call)
		}
	}
}

// cannot says why something other than a tool cannot be asked for.
func cannot(dev *ferrule.Device, m *ferrule.Manifest, call *ferrule.Call) error {
	act, name := ferrule.Clean(string(call.Operation), ferrule.MaxWord), ferrule.Clean(call.Tool, ferrule.MaxURI)
	if call.Operation != ferrule.GetPrompt || !m.Supports(ferrule.GetPrompt) {
		return ferrule.Errorf(ferrule.NotFound, "%s has nothing to %s as %q", dev.ID, act, name)
	}
	var all []string
	for _, p := range m.Prompts {
		all = append(all, p.Name)
	}
	return ferrule.Errorf(ferrule.NotFound, "%s has no prompt %q", dev.ID, name).WithHint("it has %s", few(all, "no prompt"))
}

// names lists the tools of a device that a caller can use, for a hint.
func names(m *ferrule.Manifest, who ferrule.Principal) string {
	var all []string
	for i := range m.Tools {
		if t := &m.Tools[i]; t.Quarantine == "" && who.CanCall(t) {
			all = append(all, t.Name)
		}
	}
	return few(all, "no tool that can be used")
}

// few lists some of all, or says that there is none.
func few(all []string, none string) string {
	const most = 20
	if len(all) == 0 {
		return none
	}
	slices.Sort(all)
	if len(all) > most {
		all = append(all[:most], "and more")
	}
	return strings.Join(all, ", ")
}
