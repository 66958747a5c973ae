package notify

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Sampler reports what devices measure. Fn is called with each reading of a device that
// has samples of a signal, or of any signal if that is empty, until stop is called. Fn
// must not block, and what it gets is shared and read-only. Stop waits for a call of fn
// to return.
type Sampler interface {
	Samples(device, signal string, fn func(ferrule.Reading)) (stop func())
}

// Limits of all sessions together.
const (
	maxResources       = 4096
	maxDeviceResources = 128 // of one device
	maxSampledDevices  = 4096
)

// When a subscription at a device is renewed: twice before it expires, so that one
// attempt may fail, and sooner if it has failed.
const (
	renewInterval = ferrule.SubscriptionTTL / 4
	retryInterval = time.Minute
)

// gatewayPrincipal makes the calls that no agent waits for.
var gatewayPrincipal = ferrule.Principal{Role: ferrule.Gateway, Name: "subscriptions"}

// sources are where changes come from. A resource is subscribed to at its device, and
// a device is sampled, once, however many subscribers there are.
type sources struct {
	subscriber string                                              // this gateway, towards devices
	call       func(ctx context.Context, call *ferrule.Call) error // sends a call to a device
	since      func(device string) (at int64, ok bool)             // since when it is online
	changed    func(Topic)
	samples    Sampler
	sampled    func(device string, r ferrule.Reading)

	mu        sync.Mutex
	resources map[Topic]*resourceSource

	// Sampler's methods are called with samplesMu held, so sampled must not need it.
	samplesMu sync.Mutex
	sampling  map[string]*sampledDevice
}

// resourceSource is a resource of a device. One call about it is under way at a time.
type resourceSource struct {
	users      int
	busy       chan struct{} // closed when the call under way has ended; nil without
	subscribed bool
	since      int64     // of the device when it was called
	called     time.Time // last
	// permitted are the callers for whom the device was called. Each is asked for: what one
	// may subscribe to may be forbidden to another.
	permitted map[ferrule.Principal]bool
}

// maxPermitted limits permitted: agents without a token choose their name.
const maxPermitted = 256

type sampledDevice struct {
	users int
	stop  func()
}

func newSources(n *Notifier) *sources {
	return &sources{
		subscriber: rand.Text(), resources: make(map[Topic]*resourceSource), sampling: make(map[string]*sampledDevice),
		samples: n.config.Samples, sampled: n.sampled, changed: n.Changed,
		call: func(ctx context.Context, call *ferrule.Call) error {
			_, err := n.config.Handle(ctx, call)
			return err
		},
		since: func(device string) (int64, bool) {
			dev, ok := n.config.Device(device)
			if !ok || dev.State != ferrule.StateOnline {
				return 0, false
			}
			return dev.Since.UnixNano(), true
		},
	}
}

// acquire sees to it that changes of a topic are reported. The caller must release it.
func (s *sources) acquire(ctx context.Context, who ferrule.Principal, t Topic) error {
	switch {
	case t.URI != "":
		return s.acquireResource(ctx, who, t)
	case t.Signal != "":
		return s.acquireSamples(t.Device)
	}
	return nil // the catalog reports states
}

// release ends what acquire began, with the last user.
func (s *sources) release(t Topic) {
	switch {
	case t.URI != "":
		s.releaseResource(t)
	case t.Signal != "":
		s.releaseSamples(t.Device)
	}
}

func (s *sources) acquireSamples(device string) error {
	s.samplesMu.Lock()
	defer s.samplesMu.Unlock()
	if d := s.sampling[device]; d != nil {
		d.users++
		return nil
	}
	if len(s.sampling) >= maxSampledDevices {
		return ferrule.Errorf(ferrule.Limited, "too many devices with subscribed signals: limit is %d", maxSampledDevices)
	}
	stop := s.samples.Samples(device, "", func(r ferrule.Reading) { s.sampled(device, r) })
	s.sampling[device] = &sampledDevice{1, stop}
	return nil
}

func (s *sources) releaseSamples(device string) {
	s.samplesMu.Lock()
	defer s.samplesMu.Unlock()
	d := s.sampling[device]
	if d == nil {
		return
	}
	if d.users--; d.users == 0 {
		delete(s.sampling, device)
		d.stop()
	}
}

// acquireResource subscribes to a resource at its device, unless that was done for the
// same caller.
func (s *sources) acquireResource(ctx context.Context, who ferrule.Principal, t Topic) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		r := s.resources[t]
		switch {
		case r == nil:
			if err := s.checkLimits(t); err != nil {
				return err
			}
			r = &resourceSource{permitted: make(map[ferrule.Principal]bool)}
			s.resources[t] = r
		case r.busy != nil:
			if err := s.wait(ctx, r.busy); err != nil {
				return err
			}
			continue
		}
		r.users++
		if r.subscribed && r.permitted[who] {
			return nil
		}
		// The call goes on if the caller leaves. Its context says which program the caller is.
		err := s.subscribe(context.WithoutCancel(ctx), t, r, who)
		if err != nil {
			r.users--
		} else {
			if len(r.permitted) >= maxPermitted {
				clear(r.permitted)
			}
			r.permitted[who] = true
		}
		s.settle(t, r)
		return err
	}
}

func (s *sources) checkLimits(t Topic) error {
	sameDevice := 0
	for other := range s.resources {
		if other.Device == t.Device {
			sameDevice++
		}
	}
	if sameDevice >= maxDeviceResources || len(s.resources) >= maxResources {
		return ferrule.Errorf(ferrule.Limited, "too many subscribed resources: limit is %d of %s, and %d in total", maxDeviceResources, t.Device, maxResources)
	}
	return nil
}

// wait waits for a call to end. It is called with mu held, and releases it meanwhile.
func (s *sources) wait(ctx context.Context, busy chan struct{}) error {
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-busy:
		return nil
	case <-ctx.Done():
		return ferrule.Errorf(ferrule.Cancelled, "%w", context.Cause(ctx))
	}
}

// subscribe calls the device. It is called with mu held, and releases it meanwhile.
func (s *sources) subscribe(ctx context.Context, t Topic, r *resourceSource, who ferrule.Principal) error {
	since, _ := s.since(t.Device)
	r.called = time.Now()
	r.busy = make(chan struct{})
	s.mu.Unlock()
	err := s.call(ctx, &ferrule.Call{Principal: who, Device: t.Device, Operation: ferrule.Subscribe, Tool: t.URI, Subscriber: s.subscriber})
	s.mu.Lock()
	close(r.busy)
	r.busy = nil
	denied := err != nil && ferrule.AsError(err).Code == ferrule.Denied // the device was not called
	if err == nil || r.since != since && !denied {                      // else an earlier subscription is still valid
		r.subscribed, r.since = err == nil, since
	}
	return err
}

func (s *sources) releaseResource(t Topic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.resources[t]; r != nil {
		r.users--
		s.settle(t, r)
	}
}

// settle unsubscribes at the device when a resource has no users left. It is called
// with mu held.
func (s *sources) settle(t Topic, r *resourceSource) {
	switch {
	case r.users > 0 || r.busy != nil:
	case !r.subscribed:
		delete(s.resources, t)
	default:
		r.subscribed = false
		r.busy = make(chan struct{})
		go func() {
			s.call(context.Background(), &ferrule.Call{Principal: gatewayPrincipal, Device: t.Device, Operation: ferrule.Unsubscribe, Tool: t.URI, Subscriber: s.subscriber}) // if it fails, the device reports in vain
			s.mu.Lock()
			defer s.mu.Unlock()
			close(r.busy)
			r.busy = nil
			if r.users == 0 {
				delete(s.resources, t)
			}
		}()
	}
}

// renew subscribes again at devices that have reconnected, and where a subscription
// is about to expire.
func (s *sources) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t, r := range s.resources {
		if s.due(t, r) {
			go s.renewResource(t, r)
		}
	}
}

// due reports whether a resource must be subscribed to again. It is called with mu
// held.
func (s *sources) due(t Topic, r *resourceSource) bool {
	since, online := s.since(t.Device)
	interval := retryInterval
	if r.subscribed {
		interval = renewInterval
	}
	return online && r.busy == nil && r.users > 0 && (since != r.since || time.Since(r.called) >= interval)
}

func (s *sources) renewResource(t Topic, r *resourceSource) {
	s.mu.Lock()
	if s.resources[t] != r || !s.due(t, r) {
		s.mu.Unlock()
		return
	}
	before := *r
	err := s.subscribe(context.Background(), t, r, gatewayPrincipal)
	interrupted := !before.subscribed || before.since != r.since
	s.settle(t, r)
	s.mu.Unlock()
	if err == nil && interrupted {
		s.changed(t) // it may have changed meanwhile
	}
}

// recheck forgets for whom devices were called.
func (s *sources) recheck() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.resources {
		clear(r.permitted)
	}
}

// keep renews subscriptions until ctx ends.
func (s *sources) keep(ctx context.Context) {
	ticker := time.NewTicker(retryInterval / 2)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.renew()
		case <-ctx.Done():
			return
		}
	}
}
