package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/halt"
	"github.com/ferrulehq/ferrule/internal/ops/telemetry"
)

func (g *Gateway) openStop() error {
	g.Stop = halt.Open(halt.Options{
		Dir: g.parts.Data, Node: g.node(), Records: g.Cluster.Shared(), Nodes: func() []string { return g.Cluster.State().Nodes },
		Targets: g.ownTargets, Journal: g.Journal, Event: g.Cluster.AddEvent, Changed: g.stopChanged, Log: g.parts.Log,
		Handle: func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			return g.Pipeline.Handle(ctx, call)
		},
	})
	if state := g.Stop.Stopped(); len(state.Orders) > 0 {
		g.parts.Log.Warn(state.String())
	}
	g.Stop.Connect()
	return nil
}

// ownTargets returns the devices of this node with their manifests.
func (g *Gateway) ownTargets() (all []ferrule.Target) {
	var ids []string
	g.Fleet.EachOwn(func(dev *ferrule.Device) { ids = append(ids, dev.ID) })
	for _, id := range ids {
		if target, ok := g.Fleet.Own(id); ok && target.Device.ID == id {
			all = append(all, target)
		}
	}
	return all
}

// stopper implements builtin.Stop.
type stopper struct{ *Gateway }

// Halt implements builtin.Stop. A device that is unknown does not keep the others from
// being stopped, nor from being reported.
func (s stopper) Halt(ctx context.Context, by ferrule.Principal, reason string, devices []string) (out builtin.StopOutput, err error) {
	known, unknown := s.resolve(devices)
	if len(devices) > 0 && len(known) == 0 {
		return out, ferrule.UnknownDevice(unknown[0])
	}
	report, err := s.Stop.Halt(ctx, by, reason, known)
	if err != nil {
		return out, err
	}
	s.lastStop.Store(&report)
	s.stopChanged()
	out = builtin.StopOutput{Summary: subject(known) + " stopped: changes are denied. A device may still be doing what it was told before. To resume, a person runs `ferrule resume`.", Ended: report.Ended, MayHaveRun: report.MayHaveRun}
	for _, id := range unknown {
		out.Incomplete = true
		out.Notes = append(out.Notes, fmt.Sprintf("there is no device %q; to see the devices, run `ferrule devices`", ferrule.Clean(id, ferrule.MaxWord)))
	}
	toolNotes(&out, report.Tools, "")
	for _, node := range report.Nodes {
		out.Ended += node.Ended
		out.MayHaveRun += node.MayHaveRun
		toolNotes(&out, node.Tools, " on node "+node.Node)
		if node.NotSaved != "" {
			out.Notes = append(out.Notes, "node "+node.Node+" would not be stopped after a restart: "+node.NotSaved)
		}
	}
	nodes(&out, report.Nodes, "it stops as soon as it hears of this")
	out.Incomplete = out.Incomplete || len(out.Unreached) > 0
	if out.MayHaveRun > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("%d calls had been sent to devices and may have run", out.MayHaveRun))
	}
	if report.NotSaved != "" {
		out.Notes = append(out.Notes, "this node would not be stopped after a restart: "+report.NotSaved)
	}
	return out, nil
}

// Resume implements builtin.Stop.
func (s stopper) Resume(ctx context.Context, by ferrule.Principal, devices []string) (out builtin.StopOutput, err error) {
	state := s.Stop.Stopped()
	var orders []string // the names under which the devices were stopped
	for _, id := range devices {
		names := []string{id} // a device that was forgotten may still be stopped
		if dev, _, ok := s.Fleet.Lookup(id); ok {
			names = append(append(names, dev.ID), dev.Aliases...)
		}
		names = slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(state.Devices(), name) })
		orders = append(orders, names...)
		switch {
		case len(names) > 0:
		case state.Everything():
			return out, ferrule.Errorf(ferrule.Denied, "everything is %s, so %s cannot be resumed alone", state.Orders[0], ferrule.Clean(id, ferrule.MaxWord)).
				WithHint("to resume everything, run `ferrule resume`")
		default:
			return out, ferrule.Errorf(ferrule.NotFound, "%s is not stopped", ferrule.Clean(id, ferrule.MaxWord)).WithHint("to see what is, run `ferrule devices`")
		}
	}
	resumed, heard, err := s.Stop.Resume(ctx, by, orders)
	if err != nil {
		return out, err
	}
	if len(resumed) == 0 {
		return builtin.StopOutput{Summary: "Nothing was stopped."}, nil
	}
	if len(devices) > 0 {
		resumed = devices
	} else if slices.Contains(resumed, "") {
		resumed = nil
	}
	out.Summary = subject(resumed) + " resumed. Nothing is repeated: calls that were ended must be made again."
	nodes(&out, heard, "it resumes as soon as it hears of this")
	if state := s.Stop.Stopped(); len(state.Orders) > 0 {
		out.Notes = append(out.Notes, state.String())
	}
	return out, nil
}

// resolve returns the current IDs of devices, and what is unknown.
func (s stopper) resolve(devices []string) (known, unknown []string) {
	for _, id := range devices {
		if dev, _, ok := s.Fleet.Lookup(id); ok && dev.ID != ferrule.GatewayID {
			id = dev.ID
		} else if !slices.Contains(s.Stop.Stopped().Devices(), id) {
			unknown = append(unknown, id)
			continue
		}
		if !slices.Contains(known, id) {
			known = append(known, id)
		}
	}
	return known, unknown
}

// subject names devices at the beginning of a sentence.
func subject(devices []string) string {
	switch len(devices) {
	case 0:
		return "Everything is"
	case 1:
		return devices[0] + " is"
	}
	return strings.Join(devices, ", ") + " are"
}

// nodes sorts other nodes by whether they have answered.
func nodes(out *builtin.StopOutput, all []halt.NodeResult, otherwise string) {
	for _, node := range all {
		if node.Acknowledged {
			out.Acknowledged = append(out.Acknowledged, node.Node)
			continue
		}
		out.Unreached = append(out.Unreached, node.Node)
		out.Notes = append(out.Notes, "node "+node.Node+" did not answer; "+otherwise)
	}
}

// toolNotes says what became of stop tools.
func toolNotes(out *builtin.StopOutput, results []halt.ToolResult, where string) {
	for _, r := range results {
		if r.Error == "" {
			out.Notes = append(out.Notes, fmt.Sprintf("%s%s: %s was called", r.Device, where, r.Tool))
		} else {
			out.Incomplete = true
			out.Notes = append(out.Notes, fmt.Sprintf("%s%s: %s FAILED: %s", r.Device, where, r.Tool, r.Error))
		}
	}
}

// Stopped says why changes of a device are denied, or "".
func (l listed) Stopped(dev *ferrule.Device) string { return l.Stop.Stopped().For(dev) }

// stopCounts returns what is stopped, for metrics.
func (g *Gateway) stopCounts() telemetry.Stop {
	state := g.Stop.Stopped()
	return telemetry.Stop{Everything: state.Everything(), Devices: len(state.Devices())}
}
