package pipeline

import (
	"context"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Fleet finds devices.
type Fleet interface {
	// Target returns a device, its effective manifest and the handler that leads
	// to it. All of it is shared and read only.
	Target(id string) (target ferrule.Target, ok bool)
	// Own is Target for what this node holds.
	Own(id string) (target ferrule.Target, ok bool)
}

// visible returns what a caller is shown.
type visible func(who ferrule.Principal) ferrule.Visibility

// tool reports whether a tool of a device is shown to a caller.
func (v visible) tool(who ferrule.Principal, dev *ferrule.Device, t *ferrule.Tool) bool {
	return t.Quarantine == "" && who.CanCall(t) && (v == nil || v(who).Tool(dev, t))
}

// resolve finds the device, the tool and the route of a call. It refuses what the
// caller may not see and what cannot be called.
func resolve(fleet Fleet, seen visible) stage {
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			find := fleet.Target
			if call.Via != "" {
				find = fleet.Own
			}
			target, ok := find(call.Device)
			dev, manifest := target.Device, target.Manifest
			switch {
			case !ok || !call.Principal.CanSee(dev):
				return nil, ferrule.UnknownDevice(call.Device)
			case dev.Trust == ferrule.TrustPending:
				return nil, ferrule.Errorf(ferrule.Pending, "%s was found but is not adopted", dev.ID).
					WithHint("to adopt it, run `ferrule adopt %s`", dev.ID)
			case dev.State != ferrule.StateOnline && !mayReturn(target, call):
				return nil, dev.OfflineError()
			}
			tool := manifest.ToolFor(call.Operation, call.Tool)
			switch {
			case tool == nil && call.Operation != ferrule.CallTool:
				return nil, unsupported(dev, manifest, call, seen)
			case tool == nil || !call.Urgent && !call.Principal.CanCall(tool): // the owner chose what is urgent
				return nil, ferrule.Errorf(ferrule.NotFound, "%s has no tool %q", dev.ID, ferrule.Clean(call.Tool, ferrule.MaxToolName)).
					WithHint("it has %s%s", toolNames(dev, manifest, call.Principal, seen), waiting(dev))
			case tool.Quarantine != "":
				return nil, ferrule.Errorf(ferrule.Denied, "%s of %s cannot be used: %s", tool.Name, dev.ID, tool.Quarantine).
					WithHint("to see its other tools, run `ferrule tools %s`", dev.ID)
			}
			target.Tool = tool
			call.Device = dev.ID // it may be given by an earlier ID
			call.Target = target
			return next(ctx, call)
		}
	}
}

// mayReturn reports whether a call may wait for a device that is offline: its handler
// decides for how long. The gateway's own calls do not wait.
func mayReturn(target ferrule.Target, call *ferrule.Call) bool {
	return target.Device.State == ferrule.StateOffline && target.Manifest != nil && target.Handler != nil && call.Principal.Role != ferrule.Gateway
}

// unsupported returns the error for an operation other than a tool call that the
// device does not support.
func unsupported(dev *ferrule.Device, m *ferrule.Manifest, call *ferrule.Call, seen visible) error {
	op, name := ferrule.Clean(string(call.Operation), ferrule.MaxWord), ferrule.Clean(call.Tool, ferrule.MaxURI)
	if call.Operation != ferrule.GetPrompt || !m.Supports(ferrule.GetPrompt) {
		err := ferrule.Errorf(ferrule.NotFound, "%s does not support the operation %s of %q", dev.ID, op, name)
		if note := dev.WaitingNote(); note != "" {
			err = err.WithHint("%s", note)
		}
		return err
	}
	var all []string
	for _, p := range m.Prompts {
		if seen == nil || seen(call.Principal).Item(dev, m, ferrule.GetPrompt, p.Name) {
			all = append(all, p.Name)
		}
	}
	return ferrule.Errorf(ferrule.NotFound, "%s has no prompt %q", dev.ID, name).WithHint("it has %s%s", joinNames(all, "no prompts"), waiting(dev))
}

// waiting returns a remark on what a device offers and cannot be used yet, or "".
func waiting(dev *ferrule.Device) string {
	if note := dev.WaitingNote(); note != "" {
		return "; " + note
	}
	return ""
}

// toolNames lists the tools of a device that a caller can use.
func toolNames(dev *ferrule.Device, m *ferrule.Manifest, who ferrule.Principal, seen visible) string {
	var all []string
	for i := range m.Tools {
		if t := &m.Tools[i]; seen.tool(who, dev, t) {
			all = append(all, t.Name)
		}
	}
	return joinNames(all, "no usable tools")
}

// joinNames joins the first names, or returns none if there are no names.
func joinNames(names []string, none string) string {
	const limit = 20
	if len(names) == 0 {
		return none
	}
	slices.Sort(names)
	if len(names) > limit {
		names = append(names[:limit], "and more")
	}
	return strings.Join(names, ", ")
}
