package server

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// topic is what an agent can want to hear of: the state of a device, a resource of it,
// or a signal.
type topic struct {
	device string
	uri    string // the device's own, of a resource
	signal string // what it measures
}

// isState tells whether it is the state of a device.
func (t topic) isState() bool { return t.uri == "" && t.signal == "" }

// pause is how long agents are not told of it again.
func (t topic) pause() time.Duration {
	if t.signal != "" {
		return signalPause
	}
	return updatePause
}

// The bounds of what devices are asked to tell of.
const (
	maxFollowed   = 4096
	maxFollowedOf = 128 // of one device
)

// follows is what devices were asked to tell of: each resource once, however many
// agents want to hear of it, until none does. A device that comes back is asked again;
// and so is one that was asked a while ago, because whoever has it forgets otherwise.
type follows struct {
	listener string                                  // who asks: this front
	handle   func(call *ferrule.Call) error          // takes the road
	since    func(device string) (at int64, ok bool) // since when it is online
	heard    func(topic)                             // tells agents that it may be another

	mu  sync.Mutex
	all map[topic]*follow
}

// follow is one of them. One call at a time is under way about it.
type follow struct {
	wanted   int           // by so many
	busy     chan struct{} // closed when the call that is under way has ended; nil if none is
	followed bool
	since    int64     // of the device that was asked
	asked    time.Time // when that was
}

// When a device is asked again that is there all the time: so that it can fail twice before
// whoever has it forgets; and sooner if it has failed.
const (
	renewTime = ferrule.SubscriptionTTL / 4
	retryTime = time.Minute
)

// begin has a device asked to tell of a resource, unless it was. One that has begun
// must end.
func (f *follows) begin(ctx context.Context, who ferrule.Principal, t topic) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		one := f.all[t]
		switch {
		case one == nil:
			if err := f.room(t); err != nil {
				return err
			}
			one = &follow{}
			f.all[t] = one
		case one.busy != nil:
			if err := f.wait(ctx, one.busy); err != nil {
				return err
			}
			continue
		}
		if one.followed {
			one.wanted++
			return nil
		}
		one.wanted++
		err := f.ask(t, one, who)
		if err != nil {
			one.wanted--
		}
		f.settle(t, one)
		return err
	}
}

// room tells why there is no room for one more.
func (f *follows) room(t topic) error {
	of := 0
	for other := range f.all {
		if other.device == t.device {
			of++
		}
	}
	if of >= maxFollowedOf || len(f.all) >= maxFollowed {
		return ferrule.Errorf(ferrule.Limited, "agents hear of %d resources of %s, and of %d in all; more are not possible", of, t.device, len(f.all))
	}
	return nil
}

// wait waits for a call to end. It is called with mu held, which it lets go meanwhile.
func (f *follows) wait(ctx context.Context, busy chan struct{}) error {
	f.mu.Unlock()
	defer f.mu.Lock()
	select {
	case <-busy:
		return nil
	case <-ctx.Done():
		return ferrule.Errorf(ferrule.Cancelled, "%w", context.Cause(ctx))
	}
}

// ask asks a device to tell of a resource. It is called with mu held, which it lets go
// meanwhile.
func (f *follows) ask(t topic, one *follow, who ferrule.Principal) error {
	since, _ := f.since(t.device)
	one.asked = time.Now()
	err := f.call(one, &ferrule.Call{Principal: who, Device: t.device, Operation: ferrule.Subscribe, Tool: t.uri, Subscriber: f.listener})
	if err == nil || one.since != since { // else it was asked before, and is not forgotten yet
		one.followed, one.since = err == nil, since
	}
	return err
}

// call takes the road. It is called with mu held, which it lets go meanwhile.
func (f *follows) call(one *follow, call *ferrule.Call) error {
	one.busy = make(chan struct{})
	f.mu.Unlock()
	err := f.handle(call)
	f.mu.Lock()
	close(one.busy)
	one.busy = nil
	return err
}

// end tells that one fewer wants to hear of a resource.
func (f *follows) end(t topic) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one := f.all[t]; one != nil {
		one.wanted--
		f.settle(t, one)
	}
}

// settle lets a device know when nobody wants to hear of a resource any more. It is
// called with mu held.
func (f *follows) settle(t topic, one *follow) {
	switch {
	case one.wanted > 0 || one.busy != nil:
	case !one.followed:
		delete(f.all, t)
	default:
		one.followed = false
		one.busy = make(chan struct{})
		go func() {
			f.handle(&ferrule.Call{Principal: ourselves, Device: t.device, Operation: ferrule.Unsubscribe, Tool: t.uri, Subscriber: f.listener}) // if it fails, the device tells for nothing
			f.mu.Lock()
			defer f.mu.Unlock()
			close(one.busy)
			one.busy = nil
			if one.wanted == 0 {
				delete(f.all, t)
			}
		}()
	}
}

// ourselves is who asks for agents that have gone, or are not waiting.
var ourselves = ferrule.Principal{Role: ferrule.Gateway, Name: "subscriptions"}

// again asks those devices anew that have gone and come back since, or were asked a while
// ago.
func (f *follows) again() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for t, one := range f.all {
		if f.due(t, one) {
			go f.renew(t, one)
		}
	}
}

// due tells whether a device is to be asked anew. It is called with mu held.
func (f *follows) due(t topic, one *follow) bool {
	since, online := f.since(t.device)
	pause := retryTime
	if one.followed {
		pause = renewTime
	}
	return online && one.busy == nil && one.wanted > 0 && (since != one.since || time.Since(one.asked) >= pause)
}

func (f *follows) renew(t topic, one *follow) {
	f.mu.Lock()
	if f.all[t] != one || !f.due(t, one) {
		f.mu.Unlock()
		return
	}
	was := *one
	err := f.ask(t, one, ourselves)
	anew := !was.followed || was.since != one.since
	f.settle(t, one)
	f.mu.Unlock()
	if err == nil && anew {
		f.heard(t) // it may have changed meanwhile
	}
}

// keep asks anew what is to be asked, until ctx ends.
func (f *follows) keep(ctx context.Context) {
	ticker := time.NewTicker(retryTime / 2)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			f.again()
		case <-ctx.Done():
			return
		}
	}
}

// newFollows are those of a front.
func (f *Server) newFollows() *follows {
	return &follows{
		listener: rand.Text(), all: make(map[topic]*follow),
		handle: func(call *ferrule.Call) error {
			_, err := f.handle(context.Background(), call)
			return err
		},
		since: func(device string) (int64, bool) {
			dev, _, ok := f.parts.Catalog.Lookup(device)
			if !ok || dev.State != ferrule.StateOnline {
				return 0, false
			}
			return dev.Since.UnixNano(), true
		},
		heard: func(t topic) {
			for _, v := range f.viewsOf(t.device) {
				v.subscriptions.touch(v.uriOf(t))
			}
		},
	}
}

// uriOf is the one URI by which agents here know a topic.
func (v *view) uriOf(t topic) string {
	switch {
	case t.signal != "":
		return signalURI(t.device, t.signal)
	case t.uri == "":
		return stateURI(t.device)
	}
	return v.scoped(t.device, &ferrule.Resource{URI: t.uri})
}

// topicOf is what a URI means, if an agent here may subscribe to it. There is one way
// to write each: the SDK keeps what it is given.
func (v *view) topicOf(uri string) (topic, error) {
	if device, own, ok := v.located(uri); ok {
		t := topic{device: device, uri: own}
		if !v.can(device, ferrule.Subscribe) || own == "" || ferrule.Clean(own, ferrule.MaxURI) != own || v.uriOf(t) != uri {
			return topic{}, noResource(uri)
		}
		return t, nil
	}
	t := topic{device: deviceIn(uri)}
	if device, signal, ok := signalIn(uri); ok && v.front.live() {
		t = topic{device: device, signal: signal}
	}
	if v.uriOf(t) != uri {
		return topic{}, badParams(v.subscribable())
	}
	_, _, known := v.front.parts.Catalog.Lookup(t.device)
	if !known || t.device == ferrule.GatewayID || v.device != "" && v.device != t.device {
		return topic{}, noResource(uri)
	}
	return t, nil
}

// subscribable says which of the gateway's own resources can be subscribed to.
func (v *view) subscribable() string {
	if v.front.live() {
		return fmt.Sprintf("of the gateway's own resources, the state of a device and what it measures can be subscribed to, such as %s and %s", stateURI("robot"), signalURI("robot", "temperature"))
	}
	return fmt.Sprintf("of the gateway's own resources only the state of a device can be subscribed to, such as %s", stateURI("robot"))
}
