package main

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// decided are the tools by which a person decides about a device. Its own node does
// what they decide.
var decided = []string{"adopt_device", "forget_device", "release_device"}

// remembered are the tools that tell what was measured of a device. Its own node keeps it.
var remembered = []string{"latest", "history", "plot"}

// whereItIs passes on what concerns devices of other nodes.
func (g *gateway) whereItIs(here ferrule.Handler) ferrule.Handler {
	return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		tells := slices.Contains(remembered, call.Tool)
		if tells || slices.Contains(decided, call.Tool) {
			var in struct{ Device string }
			if err := json.Unmarshal(call.Args, &in); err == nil {
				if node := g.elsewhere(in.Device); node != "" {
					result, err := g.bus.Decide(ctx, node, call)
					if tells && err != nil && ferrule.AsError(err).Code == ferrule.Offline {
						return nil, ferrule.Errorf(ferrule.Offline, "node %s does not answer, and it keeps what was measured of %s", node, in.Device).
							WithHint("try again when it is there")
					}
					return result, err
				}
			}
		}
		return here(ctx, call)
	}
}

// decisions serves what people at other nodes have decided about devices of this one, and
// what was measured of them, and nothing else of the gateway's tools.
func decisions(here ferrule.Handler) ferrule.Handler {
	return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		if !slices.Contains(decided, call.Tool) && !slices.Contains(remembered, call.Tool) {
			return nil, ferrule.Errorf(ferrule.Denied, "%s is for this node alone", ferrule.Clean(call.Tool, ferrule.MaxToolName))
		}
		return here(ctx, call)
	}
}

// elsewhere is the other node that a device is at, or was last; empty for a device of
// this one.
func (g *gateway) elsewhere(id string) string {
	dev, _, ok := g.fleet.Lookup(id)
	if !ok || dev.Node == g.bus.State().Node {
		return ""
	}
	return dev.Node
}

// tracer shows the wire to devices of this node.
type tracer struct{ *gateway }

// Trace implements control.Tracer.
func (t tracer) Trace(ctx context.Context, device string, fn func(ferrule.Trace)) error {
	if node := t.elsewhere(device); node != "" {
		return ferrule.Errorf(ferrule.NotFound, "%s is at node %s, and its wire can be seen there only", device, node).
			WithHint("run `ferrule trace %s` on that node", device)
	}
	return t.dock.Trace(ctx, device, fn)
}
