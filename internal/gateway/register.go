package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/device/transport/plugin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// registeredTransport is the transport of devices with registered tools, for people.
const registeredTransport = "program"

// The limits of registered tools.
const (
	maxRegistered = 1000 // tools of one device
	maxRunning    = 64   // calls of one device at a time
	maxRecords    = 1024 // changes that wait to be recorded
)

// registered holds the tools that parts of the program registered while the gateway runs. It
// also records when these, or the tools of plugins, change.
//
//	Register --> Set --> Fleet.Put: a device of this node --> catalog, other nodes
//	fleet --Put, Remove--> names compared --> event, journal
type registered struct {
	gateway *Gateway
	records chan *registration

	mu      sync.Mutex
	tools   map[string][]builtin.Tool // by device
	devices map[string]*ferrule.Device

	seen map[string][]string // tools by device; guarded by the lock of the fleet
}

// registration is a change of tools, for the journal and for those who watch events.
type registration struct {
	entry ferrule.Entry
	event ferrule.Event
}

func newRegistered(g *Gateway) *registered {
	r := &registered{
		gateway: g, records: make(chan *registration, maxRecords),
		tools: make(map[string][]builtin.Tool), devices: make(map[string]*ferrule.Device), seen: make(map[string][]string),
	}
	g.Fleet.WatchOwn(r)
	return r
}

// Register adds a tool to a device of this node while the gateway runs, until remove is
// called. The device exists as long as it has tools. It is not the gateway itself: rules,
// scopes, approvals and the stop hold for it as for every device, and agents are told that
// the list of tools has changed.
//
// The function of the tool gets a context that ends with the call. [ferrule.Logger] returns the
// logger of the call.
func (g *Gateway) Register(device string, tool builtin.Tool) (remove func(), err error) {
	if err := g.registered.add(device, tool); err != nil {
		return nil, fmt.Errorf("registering %s of %s: %w", tool.Name(), device, err)
	}
	return sync.OnceFunc(func() { g.registered.remove(device, tool.Name()) }), nil
}

func (r *registered) add(device string, tool builtin.Tool) error {
	if err := ferrule.CheckID(device); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	tools := r.tools[device]
	if len(tools) == 0 {
		if _, _, taken := r.gateway.Fleet.Lookup(device); taken || device == ferrule.GatewayID {
			return fmt.Errorf("there is another device named %s", device)
		}
	}
	if len(tools) >= maxRegistered {
		return fmt.Errorf("the device has %d tools; limit is %d", len(tools), maxRegistered)
	}
	return r.put(device, append(slices.Clone(tools), tool))
}

func (r *registered) remove(device, tool string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest := slices.DeleteFunc(slices.Clone(r.tools[device]), func(t builtin.Tool) bool { return t.Name() == tool })
	if len(rest) > 0 {
		if err := r.put(device, rest); err != nil { // their schemas were derived before
			r.gateway.parts.Log.Error("a registered tool was not removed", "device", device, "tool", tool, "err", err)
		}
		return
	}
	delete(r.tools, device)
	delete(r.devices, device)
	r.gateway.Fleet.Remove(device)
}

// put replaces the tools of a device. It changes nothing if it returns an error. It is called
// with mu held.
func (r *registered) put(device string, tools []builtin.Tool) error {
	set, err := builtin.NewDevice(device, r.gateway.parts.Version, tools...)
	if err != nil {
		return err
	}
	m, dev := set.Manifest(), set.Device()
	m.Bound()
	for _, t := range m.Tools {
		if t.Quarantine != "" {
			return fmt.Errorf("%s: %s", t.Name, t.Quarantine)
		}
	}
	dev.Transport, dev.Node = registeredTransport, r.gateway.node()
	if was := r.devices[device]; was != nil {
		dev.Since = was.Since
	}
	r.tools[device], r.devices[device] = tools, dev
	r.gateway.Fleet.Put(dev, m, within(make(chan struct{}, maxRunning), set.Handle))
	return nil
}

// device returns a device with registered tools.
func (r *registered) device(id string) (*ferrule.Device, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	dev, ok := r.devices[id]
	return dev, ok
}

// within serves calls with a function that may not return in time, or panics. The caller
// then does not wait for it.
func within(running chan struct{}, serve ferrule.Handler) ferrule.Handler {
	type served struct {
		result *ferrule.Result
		err    error
	}
	return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		select {
		case running <- struct{}{}:
		default:
			return nil, ferrule.Errorf(ferrule.Busy, "%s has %d calls under way", call.Device, cap(running)).WithHint("retry in a moment")
		}
		if err := ferrule.MaySend(ctx); err != nil {
			<-running
			return nil, err
		}
		done := make(chan served, 1)
		call = new(*call) // the caller may change its own
		go func() {
			defer func() { <-running }()
			defer func() {
				if p := recover(); p != nil {
					ferrule.Logger(ctx).Error("a registered tool panicked", "err", p)
					done <- served{err: ferrule.Errorf(ferrule.Internal, "%s of %s panicked", call.Tool, call.Device).AfterSend()}
				}
			}()
			result, err := serve(ctx, call)
			done <- served{result, err}
		}()
		select {
		case s := <-done:
			return s.result, s.err
		case <-ctx.Done():
		}
		if ctx.Err() == context.DeadlineExceeded {
			return nil, ferrule.Errorf(ferrule.Unanswered, "%s of %s did not end in time", call.Tool, call.Device)
		}
		return nil, ferrule.Errorf(ferrule.Cancelled, "%s of %s was cancelled", call.Tool, call.Device).AfterSend()
	}
}

// Put implements ferrule.DeviceWatcher. It compares the tools of a device with those before.
// It is called with the fleet locked.
func (r *registered) Put(dev *ferrule.Device, m *ferrule.Manifest) {
	if dev.Transport != plugin.Name && dev.Transport != registeredTransport || dev.State != ferrule.StateOnline || dev.Trust == ferrule.TrustPending || m == nil {
		return
	}
	var names []string
	for _, t := range m.Tools {
		if t.Quarantine == "" {
			names = append(names, t.Name)
		}
	}
	r.compare(dev.ID, dev.Kind, names)
}

// Remove implements ferrule.DeviceWatcher.
func (r *registered) Remove(id string) {
	if _, ok := r.seen[id]; ok {
		r.compare(id, "", nil)
		delete(r.seen, id)
	}
}

// compare records which tools of a device are new or gone.
func (r *registered) compare(device string, kind ferrule.Kind, names []string) {
	before := r.seen[device]
	r.seen[device] = names
	r.record(ferrule.Registered, "registered", device, kind, without(names, before))
	r.record(ferrule.Unregistered, "removed", device, kind, without(before, names))
}

// without returns the names that others do not have, sorted.
func without(names, others []string) []string {
	all := make(map[string]bool)
	for _, name := range names {
		all[name] = true
	}
	for _, name := range others {
		delete(all, name)
	}
	return slices.Sorted(maps.Keys(all))
}

// record queues a change of tools for Run, because the fleet is locked.
func (r *registered) record(event ferrule.EventType, verb, device string, kind ferrule.Kind, tools []string) {
	if len(tools) == 0 {
		return
	}
	few := tools[:min(len(tools), ferrule.MaxEventTools)]
	text := fmt.Sprintf("%s %d tools: %s", verb, len(tools), strings.Join(few, ", "))
	if len(few) < len(tools) {
		text += " and more"
	}
	change := &registration{
		event: ferrule.Event{Time: time.Now(), Type: event, Device: device, Kind: kind, Tools: few, Reason: text},
		entry: ferrule.Entry{
			Phase: ferrule.Registration, Principal: ferrule.Principal{Role: ferrule.Gateway, Name: "tools"}, Device: device, Kind: kind,
			Message: ferrule.Clean(device+": "+text, ferrule.MaxReason),
		},
	}
	select {
	case r.records <- change:
	default:
		r.gateway.parts.Log.Error("registered tools not recorded: too many records wait", "device", device)
	}
}

// Run records changes of tools until ctx ends.
func (r *registered) Run(ctx context.Context) error {
	for {
		select {
		case change := <-r.records:
			r.gateway.Cluster.AddEvent(change.event)
			if err := r.gateway.Journal.Append(change.entry, false); err != nil {
				r.gateway.parts.Log.Error("registered tools not recorded", "device", change.entry.Device, "err", err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}
