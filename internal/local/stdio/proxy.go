// Package stdio serves one agent on standard input and output: `ferrule mcp`.
//
// The agent's session lives in this process. Its devices and calls are those of the
// gateway of the data directory, which runs in another process or in this one. When
// that gateway ends, the session stays open: the tool list is kept for a moment, and
// calls wait for the next gateway, which may be this process.
//
//	agent -> server -> Proxy.handle -> pipeline of the gateway -> ...
//	           ^   ^
//	           |   +-- samples <- measurements of the gateway
//	        catalog <- Put, Remove <- fleet of the gateway
//
// The gateway reports only what the agent may use, so the agent must be known before: the
// fleet is followed, or followed again, when it says who it is. A gateway in this process
// hides the rest in the catalog.
//
// A call that was not sent when its gateway ended is sent to the next one. A call that
// may have been sent is repeated only if its tool is read-only or idempotent.
package stdio

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/agent/tasks"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/lifecycle"
	"github.com/ferrulehq/ferrule/internal/local/control"
)

// Parts is what a proxy is built from.
type Parts struct {
	Catalog catalog.Config
	Agents  server.Config
	Data    string // data directory
	// Socket is that of the only gateway to use, if it is not the one of the data
	// directory. The proxy then waits for that gateway and never is one.
	Socket string
	// Requests are the devices that this process requests from any gateway.
	Requests []control.DeviceRequest
	// Open builds a gateway in this process, or returns datadir.ErrRunning if another
	// process is the gateway. The gateway calls handOver when it is asked to end.
	Open    func(handOver func()) (Gateway, error)
	Version string
	Log     *slog.Logger
}

// Proxy serves one agent.
type Proxy struct {
	parts   Parts
	catalog *catalog.Catalog
	server  *server.Server
	// tasks end with this process, like all calls of its agent.
	tasks   *tasks.Tasks
	samples samples

	mu        sync.Mutex
	route     *route              // nil while there is no gateway
	moved     time.Time           // when the last gateway ended
	changed   chan struct{}       // closed when the route changes or a device comes online
	ready     chan struct{}       // closed when the tool list is complete enough to read
	known     map[string]bool     // devices in the catalog
	seen      map[string]bool     // devices that the gateway has reported; nil after Synced
	missing   map[string]*absence // devices that the agent still sees as online
	requested []control.DeviceRequest
	hosting   bool            // the gateway is in this process
	agent     *ferrule.Client // nil until the agent has sent a request that needs it
	renamed   chan struct{}   // closed when agent changes
}

// route leads to one gateway. It counts the calls in flight.
type route struct {
	handle ferrule.Handler
	// session is that of all calls by this route: to the gateway, the agent is gone when
	// this process is.
	session string
	calls   sync.WaitGroup
}

// absence is the state of a device that may be back in a moment.
type absence struct {
	device   *ferrule.Device
	manifest *ferrule.Manifest
}

// New builds a proxy. It starts nothing.
func New(parts Parts) *Proxy {
	p := &Proxy{
		parts: parts, catalog: catalog.New(parts.Catalog),
		changed: make(chan struct{}), ready: make(chan struct{}), renamed: make(chan struct{}),
		known: make(map[string]bool), missing: make(map[string]*absence),
	}
	p.tasks = tasks.New(tasks.Parts{Store: tasks.NewMemory(), Log: parts.Log})
	p.server = server.New(server.Parts{
		Config: parts.Agents, Tasks: p.tasks, Catalog: p.catalog, Handle: p.handle, Samples: &p.samples, Ready: p.readyFor, Version: parts.Version, Log: parts.Log,
	})
	return p
}

// Run serves the agent at the other end of in and out, until it disconnects or ctx ends.
func (p *Proxy) Run(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	return lifecycle.Run(ctx, p.keepGateway, func(ctx context.Context) error { return p.serve(ctx, in, out) })
}

func (p *Proxy) serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	return lifecycle.Run(ctx, p.tasks.Run, p.server.Run, func(ctx context.Context) error {
		l := newLines(in, out)
		return p.server.Stdio(ctx, l, writer{l})
	})
}

// beginSync is called before a gateway reports its fleet.
func (p *Proxy) beginSync() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = make(map[string]bool)
}

// Put implements ferrule.DeviceWatcher. A new gateway has to reconnect all devices, so a
// device that was online is reported as offline only if it stays away.
func (p *Proxy) Put(dev *ferrule.Device, m *ferrule.Manifest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put(dev, m)
}

// put is Put with mu held.
func (p *Proxy) put(dev *ferrule.Device, m *ferrule.Manifest) {
	p.known[dev.ID] = true
	if p.seen != nil {
		p.seen[dev.ID] = true
	}
	if dev.State == ferrule.StateOnline {
		delete(p.missing, dev.ID)
		p.catalog.Put(dev, m)
		p.wake()
		return
	}
	before, _, ok := p.catalog.Lookup(dev.ID)
	if ok && before.State == ferrule.StateOnline && time.Since(p.moved) < grace {
		if m != nil {
			p.catalog.Put(before, m) // as this gateway shows it
		}
		p.miss(&absence{dev, m})
		return
	}
	delete(p.missing, dev.ID)
	p.catalog.Put(dev, m)
}

// grace is how long a device may stay away after a change of the gateway before the
// agent sees it offline.
const grace = 5 * time.Second

// miss gives a device time to come back. It is called with mu held.
func (p *Proxy) miss(a *absence) {
	id := a.device.ID
	p.missing[id] = a
	time.AfterFunc(grace, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.missing[id] == a {
			delete(p.missing, id)
			p.catalog.Put(a.device, a.manifest)
		}
	})
}

// wake wakes the calls that wait. It is called with mu held.
func (p *Proxy) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Remove implements ferrule.DeviceWatcher.
func (p *Proxy) Remove(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(id)
}

func (p *Proxy) remove(id string) {
	delete(p.known, id)
	delete(p.missing, id)
	p.catalog.Remove(id)
}

// Requested implements control.FleetWatcher.
func (p *Proxy) Requested(requests []control.DeviceRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requested = requests
}

// Synced implements control.FleetWatcher: devices that were not reported are gone.
func (p *Proxy) Synced() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.known {
		if !p.seen[id] {
			p.remove(id)
		}
	}
	p.seen = nil
}

// connect sends calls to a gateway from now on.
func (p *Proxy) connect(session string, handle ferrule.Handler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.route = &route{handle: handle, session: session}
	p.wake()
}

// disconnect makes calls wait for the next gateway. The returned function waits for the
// calls in flight.
func (p *Proxy) disconnect() (drain func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.route
	if last == nil {
		return func() {}
	}
	p.route, p.moved = nil, time.Now()
	p.wake()
	return last.calls.Wait
}

// setReady lets the agent read the tool list.
func (p *Proxy) setReady() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.ready:
	default:
		close(p.ready)
	}
}

// readyFor waits until the catalog has what an agent sees.
func (p *Proxy) readyFor(ctx context.Context, client ferrule.Client) {
	p.identify(client)
	p.awaitReady(ctx)
}

// identify sets who the agent says it is. If the gateway is in another process and knew it
// as somebody else, nothing is shown until that gateway has reported its fleet again.
func (p *Proxy) identify(client ferrule.Client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.agent != nil && p.agent.Name == client.Name {
		return
	}
	if p.agent != nil && !p.hosting {
		for id := range p.known {
			p.remove(id)
		}
		select {
		case <-p.ready:
			p.ready = make(chan struct{})
		default:
		}
	}
	p.agent = &client
	close(p.renamed)
	p.renamed = make(chan struct{})
}

// identity returns who the agent says it is, nil if it has not, and a channel that is
// closed when it says something else.
func (p *Proxy) identity() (agent *ferrule.Client, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.agent, p.renamed
}

// hideWith makes the catalog hide what a gateway in this process does not show. If it is nil,
// the gateway of another process has left that out.
func (p *Proxy) hideWith(visible func(who ferrule.Principal) ferrule.Visibility) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hosting = visible != nil
	p.catalog.ShowTo(visible)
}

// awaitReady waits until the tool list can be read: agents that read it only once would
// miss devices that come online a moment later.
func (p *Proxy) awaitReady(ctx context.Context) {
	p.mu.Lock()
	ready := p.ready
	p.mu.Unlock()
	select {
	case <-ready:
	case <-time.After(control.SettleTime + time.Second):
	case <-ctx.Done():
	}
}

// patience is how long a call waits for a gateway, or for a device that the last gateway
// had and this one is still connecting to.
const patience = 10 * time.Second

// handle sends a call to the current gateway. If the gateway ends before the call was
// sent, it waits for the next. If the call may have been sent, it is repeated once if
// that is harmless.
func (p *Proxy) handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	p.awaitReady(ctx)
	var until time.Time      // when patience ends; a call may have waited for approval before
	var maybe *ferrule.Error // of the first attempt, if it may have run
	for first := true; ; first = false {
		changed := p.nextChange()
		result, used, err := p.try(ctx, call)
		if err == nil {
			return result, nil
		}
		e := asSeenByAgent(ctx, call, err)
		if first {
			until = time.Now().Add(patience)
		}
		switch {
		case e.MayHaveRun():
			if maybe != nil || !p.repeatable(call) || !p.gone(used) {
				return nil, e
			}
			maybe = e
		case !time.Now().Before(until) || ctx.Err() != nil || !p.worthWaiting(e, call):
			switch {
			case maybe != nil:
				return nil, maybe
			case e == errNoGateway && ctx.Err() != nil:
				return nil, ferrule.Errorf(ferrule.Cancelled, "cancelled while waiting for a gateway")
			}
			return nil, e
		}
		if first {
			call.Report(ferrule.Progress{Message: "another process is now the gateway; waiting for " + call.Device})
		}
		select {
		case <-changed:
		case <-time.After(time.Until(until)):
		case <-ctx.Done():
		}
	}
}

// errNoGateway means that a call was not sent.
var errNoGateway = ferrule.Errorf(ferrule.Offline, "no gateway is running").WithHint("run `ferrule doctor` to find out why")

// try sends a call to the current gateway, if there is one, and returns the route it used.
func (p *Proxy) try(ctx context.Context, call *ferrule.Call) (*ferrule.Result, *route, error) {
	p.mu.Lock()
	r := p.route
	if r != nil {
		call.Session = r.session
		r.calls.Add(1)
		defer r.calls.Done()
	}
	p.mu.Unlock()
	if r == nil {
		return nil, nil, errNoGateway
	}
	result, err := r.handle(ctx, call)
	return result, r, err
}

// asSeenByAgent translates an error: a gateway that ends reports that its callers went
// away, but the agent is still there.
func asSeenByAgent(ctx context.Context, call *ferrule.Call, err error) *ferrule.Error {
	if errors.Is(err, control.ErrNoGateway) {
		return errNoGateway
	}
	e := ferrule.AsError(err)
	if e.Code != ferrule.Cancelled || ctx.Err() != nil {
		return e
	}
	if e.MayHaveRun() {
		return ferrule.Errorf(ferrule.Unanswered, "the gateway ended while %s was running %s", call.Device, call.Tool)
	}
	return errNoGateway
}

// worthWaiting reports whether a call that was not sent may succeed later: another
// gateway will come, or the device will reconnect to the current one.
func (p *Proxy) worthWaiting(e *ferrule.Error, call *ferrule.Call) bool {
	return e == errNoGateway || e.Code == ferrule.Offline && p.returning(call.Device)
}

// nextChange returns a channel that is closed when waiting calls should try again.
func (p *Proxy) nextChange() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// gone reports whether a route is no longer in use. It waits a moment, because the end
// of a gateway may be noticed after a call has failed for it.
func (p *Proxy) gone(r *route) bool {
	late := time.After(noticeTime)
	for {
		p.mu.Lock()
		gone, changed := p.route != r, p.changed
		p.mu.Unlock()
		if gone {
			return true
		}
		select {
		case <-changed:
		case <-late:
			return false
		}
	}
}

// noticeTime is how long it may take until the end of a gateway is noticed.
const noticeTime = 200 * time.Millisecond

// returning reports whether a device is expected back, because the gateway changed a
// moment ago.
func (p *Proxy) returning(device string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[device] && time.Since(p.moved) < patience
}

// repeatable reports whether a call may be made twice.
func (p *Proxy) repeatable(call *ferrule.Call) bool {
	_, m, ok := p.catalog.Lookup(call.Device)
	if !ok || m == nil {
		return false
	}
	t := m.Tool(call.Tool)
	return t != nil && t.Repeatable()
}

// lastRequests returns the devices that were requested from the last gateway, by this
// process or by one that may have ended.
func (p *Proxy) lastRequests() []control.DeviceRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requested
}
