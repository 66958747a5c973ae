package stdio

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
)

// Gateway is a gateway in this process.
type Gateway struct {
	Handle  ferrule.Handler
	Samples server.Sampler
	// Visible returns what a caller is shown, and Changed calls fn when that has changed.
	Visible func(who ferrule.Principal) ferrule.Visibility
	Changed func(fn func()) (stop func())
	// Follow reports the fleet to a follower: what is there before it returns, changes later.
	Follow func(ferrule.DeviceWatcher) (stop func())
	// Listen calls fn with the notifications of devices.
	Listen func(fn func(ferrule.Event)) (stop func())
	// Request requests devices, and waits until they are online or failed.
	Request func(context.Context, []control.DeviceRequest) error
	// Run runs the gateway and then parts that need it.
	Run   func(ctx context.Context, more ...func(context.Context) error) error
	Close func() error
}

// keepGateway makes sure that the proxy has a gateway, until ctx ends.
func (p *Proxy) keepGateway(ctx context.Context) error {
	pause, use := 20*time.Millisecond, p.hostOrJoin
	if p.parts.Socket != "" {
		pause, use = 200*time.Millisecond, p.join
	}
	for ctx.Err() == nil {
		err := use(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return nil
}

// hostOrJoin is the gateway, or uses that of another process.
func (p *Proxy) hostOrJoin(ctx context.Context) error {
	err := p.host(ctx)
	if errors.Is(err, datadir.ErrRunning) {
		err = p.join(ctx)
	}
	return err
}

// host is the gateway until ctx ends or another process takes over. It returns
// datadir.ErrRunning if another process is the gateway, or is about to be.
func (p *Proxy) host(ctx context.Context) error {
	if datadir.Claimed(p.parts.Data) {
		return datadir.ErrRunning
	}
	hosting, end := context.WithCancel(ctx)
	defer end()
	g, err := p.parts.Open(end)
	if err != nil {
		return err
	}
	p.parts.Log.Info("this process is the gateway now", "version", p.parts.Version, "data", p.parts.Data)
	p.beginSync()
	p.hideWith(g.Visible) // before there is anything to see
	defer g.Changed(p.server.PolicyChanged)()
	stop := g.Follow(p)
	defer g.Listen(p.server.HandleEvent)()
	p.samples.use(g.Samples)
	defer p.samples.use(nil)
	p.Synced()
	p.connect(newSession(), g.Handle)
	p.server.HandleMissed(0) // events and readings between the two gateways
	var drain func()
	err = g.Run(hosting, func(ctx context.Context) error {
		if err := g.Request(ctx, p.lastRequests()); err != nil && ctx.Err() == nil {
			p.parts.Log.Warn("a requested device was not taken over", "err", err)
		}
		p.setReady()
		<-ctx.Done()
		drain = p.disconnect() // before the parts that calls need are stopped
		return nil
	})
	drain()
	stop()
	err = errors.Join(err, g.Close())
	if hosting.Err() != nil && ctx.Err() == nil {
		p.parts.Log.Info("another process takes over as the gateway")
	}
	return err
}

// join uses the gateway of another process until it ends or ctx ends. A gateway that
// does not answer yet is not an error: it may have just started.
func (p *Proxy) join(ctx context.Context) error {
	path, err := p.parts.Socket, error(nil)
	if path == "" {
		path, err = control.SocketPath(p.parts.Data)
	}
	if err != nil {
		return err
	}
	client := control.NewClient(path)
	defer client.Close()
	defer func() { p.disconnect() }()
	p.beginSync()
	defer p.keepWatching(ctx, client, "notifications of devices are not received", control.Subscription{Event: p.server.HandleEvent, Missed: p.server.HandleMissed})()
	defer p.samples.use(nil)
	requests := append(append([]control.DeviceRequest{}, p.parts.Requests...), p.lastRequests()...) // duplicates are harmless
	err = p.follow(ctx, client, requests)
	switch {
	case errors.Is(err, control.ErrVersion), errors.Is(err, control.ErrNotAllowed):
		return err
	case !errors.Is(err, control.ErrNoGateway) && ctx.Err() == nil:
		p.parts.Log.Info("the gateway has ended", "err", err)
	}
	return nil
}

func newSession() string { return "process-" + rand.Text() }

// follow follows the fleet of a gateway as the agent sees it, until the gateway or ctx
// ends. While the agent is not known, it follows no devices, but learns when the gateway
// ends.
func (p *Proxy) follow(ctx context.Context, client *control.Client, requests []control.DeviceRequest) error {
	samples := p.samplesOf(ctx, client)
	for first := true; ; first = false {
		agent, renamed := p.identity()
		following, stop := context.WithCancel(ctx)
		synced := make(chan struct{})
		go func() {
			for _, next := range []<-chan struct{}{renamed, synced} { // the requested devices must have settled
				select {
				case <-next:
				case <-following.Done():
				}
			}
			stop()
		}()
		session := newSession()
		err := client.WatchFleet(following, requests, agent, session, joined{p, agent, session, client.Handle, samples, first, synced})
		again := following.Err() != nil && ctx.Err() == nil
		stop()
		if !again {
			return err
		}
		p.beginSync()
	}
}

// joined is a proxy that has joined the gateway of another process.
type joined struct {
	*Proxy
	agent   *ferrule.Client // nil if it is not known
	session string          // it ends with this connection
	handle  ferrule.Handler
	samples server.Sampler
	first   bool // it was not followed as another agent before
	synced  chan struct{}
}

// Put implements ferrule.DeviceWatcher, unless the agent is somebody else by now.
func (j joined) Put(dev *ferrule.Device, m *ferrule.Manifest) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.agent != j.Proxy.agent {
		return
	}
	if m == nil && j.hosting {
		j.remove(dev.ID) // the last gateway, in this process, reported more than this one may show
	}
	j.put(dev, m)
}

// Refused implements control.FleetWatcher.
func (j joined) Refused(reason string) {
	j.parts.Log.Warn("the gateway refused a requested device", "err", reason)
}

// Synced implements control.FleetWatcher.
func (j joined) Synced() {
	defer close(j.synced)
	if j.first {
		j.parts.Log.Info("joined the running gateway")
	}
	if j.agent == nil {
		return // nothing is shown until it is known who the agent is
	}
	j.connect(j.session, j.handle)
	j.Proxy.samples.use(j.samples)
	if now, _ := j.identity(); now != j.agent {
		return // it is followed again
	}
	j.Proxy.Synced()
	j.hideWith(nil)
	j.server.HandleMissed(0) // readings between the two gateways
	j.setReady()
}
