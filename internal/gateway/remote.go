package gateway

import (
	"context"
	"slices"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/measure/waits"
)

// decisions are the tools by which a person decides about a device, or about a call of it.
// The device's own node runs them.
var decisions = []string{
	"adopt_device", "forget_device", "release_device", "retry_device", "rename_device", "label_device", "device_changes", "accept_device", answerTool,
}

// measurements are the tools that return measurements of a device. The device's own
// node has them.
var measurements = []string{"latest", "history", "plot"}

// forward sends a call about a device of another node to that node. A call from another
// node is served here: it is a decision about a device of this node, or asks for its
// measurements or waits for them. No other tool of the gateway can be called from there.
func (g *Gateway) forward(local ferrule.Handler) ferrule.Handler {
	return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		if call.Via != "" {
			if !slices.Contains(decisions, call.Tool) && !slices.Contains(measurements, call.Tool) && call.Tool != listTool && call.Tool != builtin.ApprovalStatusTool && call.Tool != waits.Tool {
				return nil, ferrule.Errorf(ferrule.Denied, "%s cannot be called from another node", ferrule.Clean(call.Tool, ferrule.MaxToolName))
			}
			return local(ctx, call)
		}
		if call.Tool == waits.Tool {
			if node := g.waitNode(call); node != "" {
				return g.Cluster.Forward(ctx, node, call)
			}
		}
		measured := slices.Contains(measurements, call.Tool)
		if measured || slices.Contains(decisions, call.Tool) {
			if node, device := g.nodeOf(call); node != "" {
				result, err := g.Cluster.Forward(ctx, node, call)
				if measured && err != nil && ferrule.AsError(err).Code == ferrule.Offline {
					return nil, ferrule.Errorf(ferrule.Offline, "node %s does not answer; it has the measurements of %s", node, device).
						WithHint("try again when the node is back")
				}
				return result, err
			}
		}
		return local(ctx, call)
	}
}

// remoteNames implements dock.Remote. An earlier name of a device on another node is taken,
// because agents may still use it. So is the name of a device with registered tools.
type remoteNames struct{ *Gateway }

// Known implements dock.Remote.
func (r remoteNames) Known(id string) (*ferrule.Device, bool) {
	if dev, ok := r.Cluster.Known(id); ok {
		return dev, true
	}
	if dev, ok := r.registered.device(id); ok {
		return dev, true
	}
	return r.Fleet.RenamedElsewhere(id)
}

// Manifest implements dock.Remote.
func (r remoteNames) Manifest(ctx context.Context, kind ferrule.Kind) (*ferrule.Manifest, error) {
	return r.Cluster.Manifest(ctx, kind)
}

// otherNode returns the other node that has a device or had it last, or "" if the
// device belongs to this node or is unknown.
func (g *Gateway) otherNode(id string) string {
	dev, _, ok := g.Fleet.Lookup(id)
	if !ok || dev.Node == g.Cluster.State().Node {
		return ""
	}
	return dev.Node
}

// Trace implements control.Tracer. It traces the messages of a device of this node, until
// ctx ends.
func (g *Gateway) Trace(ctx context.Context, device string, fn func(ferrule.Trace)) error {
	if node := g.otherNode(device); node != "" {
		return ferrule.Errorf(ferrule.NotFound, "%s is on node %s and can only be traced there", device, node).
			WithHint("run `ferrule trace %s` on that node", device)
	}
	return g.Dock.Trace(ctx, device, fn)
}
