package gateway

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/measure/history"
	"github.com/ferrulehq/ferrule/internal/measure/poller"
	"github.com/ferrulehq/ferrule/internal/measure/waits"
)

// How long after a moment it is certain that a state which a device reports by itself was
// still the same then. Its report may be on the way, and the lease of a node that is gone
// lasts for a while.
const (
	silenceHere      = 250 * time.Millisecond
	silenceElsewhere = 30 * time.Second
)

// How old a value may be to count as the present one. An unchanged state is recorded every
// minute.
const (
	freshValue = condition.Fresh
	freshState = 70 * time.Second
)

// notPolledAfter is how old the last value of a signal is if nobody measures it any more, and
// how long its device has been online by then.
const notPolledAfter = 2 * time.Minute

// buildConditions builds what evaluates conditions on signals and events. Readings of all
// nodes pass through the cluster.
func (g *Gateway) buildConditions() error {
	g.Conditions = condition.NewIndex(condition.Parts{
		Follow: func(device string) (stop func()) { return g.Cluster.Samples(device, "", g.Conditions.Reading) },
		Silence: func(r *ferrule.Reading) (time.Duration, bool) {
			if r.Node == g.node() {
				return silenceHere, r.Poll == poller.HeardPoll
			}
			return silenceElsewhere, r.Poll == poller.HeardPoll
		},
		Log: g.parts.Log,
	})
	g.Fleet.WatchDevices(g.Conditions.Devices())
	g.Cluster.Listen(g.Conditions.Event)
	return nil
}

// waitTool returns the tool that waits for conditions.
func (g *Gateway) waitTool() builtin.Tool {
	all := waits.New(waits.Parts{Index: g.Conditions, Find: func(call *ferrule.Call, id string) (*ferrule.Device, bool) {
		return g.visibleDevice(call.Principal, id)
	}, Devices: g.Fleet.Devices, Event: g.checkEvent, Current: g.current})
	return builtin.Typed(waits.Tool, waits.Text, ferrule.Reads, all.Handle).Undescribed().WithDeadline(waits.MaxDeadline + time.Minute).Slow()
}

// checkEvent returns an error if an event is not known: it is not one of the gateway, and none of
// the devices has sent a notification with this method, or is likely to. Hubs choose the methods
// of their devices, so for those only a misspelled event of the gateway is an error.
func (g *Gateway) checkEvent(devices []*ferrule.Device, event string) error {
	if ferrule.EventType(event).Known() || strings.ContainsAny(event, "/.") { // else it has the form of a method
		return nil
	}
	var known, sent []string
	for _, t := range ferrule.EventTypes() {
		if t != ferrule.ApprovalEvent && t != ferrule.WatchFired {
			known = append(known, string(t))
		}
	}
	free := len(devices) == 0 // others may appear
	for _, dev := range devices {
		free = free || dev.Protocol == hass.Name || dev.Protocol == homeassistant.Name
		for _, n := range g.Fleet.Notifications(dev.ID) {
			if n.Method == event {
				return nil
			}
			if len(sent) < maxSent && !slices.Contains(sent, n.Method) {
				sent = append(sent, n.Method)
			}
		}
	}
	similar := ferrule.DidYouMean(event, append(slices.Clone(known), sent...))
	if free && similar == "" {
		return nil
	}
	methods := "no notification of it is known"
	if len(sent) > 0 {
		methods = "notifications so far: " + strings.Join(sent, ", ")
	}
	return ferrule.Errorf(ferrule.NotFound, "unknown event %q%s", ferrule.Clean(event, ferrule.MaxWord), similar).
		WithHint("events: %s; %s; notified is met by any notification", strings.Join(known, ", "), methods)
}

// maxSent limits the methods in a hint.
const maxSent = 20

// visibleDevice returns a device that a caller may see, by its ID or an earlier one.
func (g *Gateway) visibleDevice(who ferrule.Principal, id string) (*ferrule.Device, bool) {
	dev, manifest, ok := g.Fleet.Lookup(id)
	if !ok || id == ferrule.GatewayID || !who.CanSee(dev) || !g.visibility.Of(who).Device(dev, manifest) {
		return nil, false
	}
	return dev, true
}

// current returns the present value of a signal, if a fresh one is known. It fails if the
// signal is not measured.
func (g *Gateway) current(ctx context.Context, call *ferrule.Call, dev *ferrule.Device, signal string) (ferrule.Reading, bool, error) {
	if dev.Node != "" && dev.Node != g.node() {
		return g.currentElsewhere(ctx, call, dev, signal)
	}
	if heard, ok := g.heard.Current(dev.ID, signal); ok {
		return readingOf(dev, poller.HeardPoll, heard), heard.State || time.Since(heard.Time) < freshValue, nil
	}
	if g.History == nil {
		return ferrule.Reading{}, false, nil
	}
	known, err := history.WithPast{Store: g.History, Source: g.pastSource}.Latest(ctx, dev.ID)
	if err != nil {
		return ferrule.Reading{}, false, err
	}
	i := slices.IndexFunc(known, func(l ferrule.Latest) bool { return l.Signal == signal })
	if i < 0 {
		return ferrule.Reading{}, false, g.notMeasured(dev.ID, signal, known)
	}
	l := known[i]
	age, online := time.Since(l.Time), dev.State == ferrule.StateOnline
	if online && time.Since(dev.Since) > notPolledAfter && age > notPolledAfter && (g.Poller == nil || !g.Poller.Polls(dev.ID, signal)) {
		return ferrule.Reading{}, false, ferrule.Errorf(ferrule.NotFound, "nobody measures %s of %s any more; the last value is from %s", signal, dev.ID, ferrule.FormatTime(l.Time)).
			WithHint("%s", g.howToPoll())
	}
	fresh := freshValue
	if l.State {
		fresh = freshState
	}
	return readingOf(dev, "latest", l), online && age < fresh, nil
}

// notMeasured returns the error for a signal that was never measured.
func (g *Gateway) notMeasured(device, signal string, known []ferrule.Latest) error {
	err := builtin.UnknownSignal(device, signal, known)
	if len(known) == 0 {
		return ferrule.AsError(err).WithHint("%s", g.howToPoll())
	}
	return err
}

// howToPoll says how a signal gets values.
func (g *Gateway) howToPoll() string {
	if g.Poller == nil {
		return "polling is off: set polling.enabled to true in the configuration"
	}
	return "poll it: name its tool and an interval in an overlay, for example `every: 10s`; see docs/how-to/change-polling.md"
}

// currentElsewhere is current for a device of another node. It asks that node, as the caller.
func (g *Gateway) currentElsewhere(ctx context.Context, call *ferrule.Call, dev *ferrule.Device, signal string) (r ferrule.Reading, ok bool, err error) {
	args, err := json.Marshal(builtin.LatestInput{Device: dev.ID, Signal: signal})
	if err != nil {
		return r, false, err
	}
	result, err := g.handleLater(ctx, &ferrule.Call{Principal: call.Principal, Client: call.Client, Session: call.Session, Device: ferrule.GatewayID, Tool: "latest", Args: args})
	if err != nil {
		if ferrule.AsError(err).Code == ferrule.NotFound {
			return r, false, err
		}
		return r, false, nil // the next sample decides
	}
	var out builtin.LatestOutput
	if json.Unmarshal(result.Value, &out) != nil || len(out.Signals) == 0 {
		return r, false, nil
	}
	s := out.Signals[0]
	r = readingOf(dev, "latest", ferrule.Latest{Signal: signal, Sample: ferrule.Sample{Time: s.Time, Value: s.Value, Within: s.Within}})
	return r, time.Since(s.Time) < freshValue, nil
}

// readingOf returns a reading with one value.
func readingOf(dev *ferrule.Device, poll string, l ferrule.Latest) ferrule.Reading {
	return ferrule.Reading{Device: dev.ID, Node: dev.Node, Poll: poll, Time: l.Time, Batches: []ferrule.SampleBatch{
		{Signal: l.Signal, Unit: l.Unit, State: l.State, Samples: []ferrule.Sample{l.Sample}},
	}}
}

// waitNode returns the other node that has all devices of a call of wait_for; empty if there
// is none. Nothing is lost on the way to the conditions there.
func (g *Gateway) waitNode(call *ferrule.Call) (node string) {
	var in waits.Input
	if json.Unmarshal(call.Args, &in) != nil {
		return ""
	}
	for i, c := range in.Conditions {
		selector, err := condition.ParseSelector(c.Device)
		if err != nil || selector.ID() == "" {
			return ""
		}
		on := g.otherNode(selector.ID())
		if on == "" || i > 0 && on != node {
			return ""
		}
		node = on
	}
	return node
}
