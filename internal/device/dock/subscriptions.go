package dock

import (
	"context"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The limits of the subscriptions to one device.
const (
	maxSubscribers = 1024 // of all its resources
	sweepTime      = 30 * time.Second
)

// subscriptions holds the subscribers to the resources of a device. The device gets
// one subscription for each resource, and an unsubscription after the last
// subscriber left. All end with the session: subscribers notice the reconnect and
// subscribe again.
//
// It is guarded by the lane.
type subscriptions struct {
	session   protocol.Session
	resources map[string]map[string]time.Time // expiry by URI and subscriber
	count     int
	sweeping  bool // a timer is running
}

// reset drops everything if the session is a new one.
func (l *subscriptions) reset(session protocol.Session) {
	if l.session != session {
		l.session, l.resources, l.count = session, make(map[string]map[string]time.Time), 0
	}
}

// add adds or renews a subscriber.
func (l *subscriptions) add(uri, name string, until time.Time) {
	if l.resources[uri] == nil {
		l.resources[uri] = make(map[string]time.Time)
	}
	if _, known := l.resources[uri][name]; !known {
		l.count++
	}
	l.resources[uri][name] = until
}

// remove removes a subscriber and reports whether none is left.
func (l *subscriptions) remove(uri, name string) (last bool) {
	if _, known := l.resources[uri][name]; known {
		l.count--
		delete(l.resources[uri], name)
	}
	if len(l.resources[uri]) > 0 {
		return false
	}
	delete(l.resources, uri)
	return true
}

// expire removes expired subscribers and returns the resources without any left.
func (l *subscriptions) expire(now time.Time) (uris []string) {
	for uri, names := range l.resources {
		for name, until := range names {
			if now.After(until) && l.remove(uri, name) {
				uris = append(uris, uri)
			}
		}
	}
	return uris
}

// subscribe serves a Subscribe or Unsubscribe. It is called by the holder of the lane.
func (c *supervisor) subscribe(ctx context.Context, session protocol.Session, call *ferrule.Call) (*ferrule.Result, error) {
	l := &c.subscriptions
	l.reset(session)
	if call.Operation == ferrule.Unsubscribe {
		if l.remove(call.Tool, call.Subscriber) {
			return session.Invoke(ctx, call)
		}
		return &ferrule.Result{}, nil
	}
	_, known := l.resources[call.Tool][call.Subscriber]
	if !known && l.count >= maxSubscribers || len(call.Subscriber) > ferrule.MaxWord {
		return nil, ferrule.Errorf(ferrule.Limited, "too many subscribers to %s: limit is %d", call.Device, maxSubscribers)
	}
	if len(l.resources[call.Tool]) == 0 {
		if _, err := session.Invoke(ctx, call); err != nil {
			return nil, err
		}
	}
	l.add(call.Tool, call.Subscriber, time.Now().Add(ferrule.SubscriptionTTL))
	c.sweepLater()
	return &ferrule.Result{}, nil
}

// sweepLater schedules the removal of expired subscribers. It is called by the
// holder of the lane.
func (c *supervisor) sweepLater() {
	if !c.subscriptions.sweeping {
		c.subscriptions.sweeping = true
		c.startSweep()
	}
}

func (c *supervisor) startSweep() {
	time.AfterFunc(ferrule.SubscriptionTTL/2, func() {
		c.dock.start(func() { c.safely(c.sweep) })
	})
}

// sweep removes expired subscribers and unsubscribes from their resources.
func (c *supervisor) sweep() error {
	ctx, cancel := context.WithTimeout(context.Background(), sweepTime)
	defer cancel()
	call := ferrule.Call{
		Principal: ferrule.Principal{Role: ferrule.Gateway, Name: "subscriptions"}, Device: c.slot.device.Load().ID,
		Operation: ferrule.Unsubscribe, Timeout: ferrule.Duration(sweepTime),
	}
	if err := c.lane.enter(ctx, &call); err != nil {
		c.startSweep() // the device is busy
		return err
	}
	defer c.lane.leave()
	c.mu.Lock()
	session := c.session
	c.mu.Unlock()
	l := &c.subscriptions
	l.sweeping = false
	l.reset(session)
	for _, uri := range l.expire(time.Now()) {
		call.Tool = uri
		session.Invoke(ctx, &call) // a failure costs only useless notifications
	}
	if l.count > 0 {
		c.sweepLater()
	}
	return nil
}
