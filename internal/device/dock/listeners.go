package dock

import (
	"context"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The bounds of who listens to one device.
const (
	maxListeners = 1024 // to all its resources
	sweepTime    = 30 * time.Second
)

// listeners is who wants to hear of the resources of a device. It is asked to tell of each
// of them once, and left alone when nobody listens any more. What it was asked ends with
// the session: those who listen see that it has come anew, and say so again.
//
// Whoever has the lane may look at it.
type listeners struct {
	session  protocol.Session
	all      map[string]map[string]time.Time // by URI and name: until when
	count    int
	sweeping bool // a timer runs
}

// of begins anew with a session that is another.
func (l *listeners) of(session protocol.Session) {
	if l.session != session {
		l.session, l.all, l.count = session, make(map[string]map[string]time.Time), 0
	}
}

// add notes that somebody listens until then.
func (l *listeners) add(uri, name string, until time.Time) {
	if l.all[uri] == nil {
		l.all[uri] = make(map[string]time.Time)
	}
	if _, known := l.all[uri][name]; !known {
		l.count++
	}
	l.all[uri][name] = until
}

// remove notes that somebody does not listen any more, and tells whether nobody does.
func (l *listeners) remove(uri, name string) (nobody bool) {
	if _, known := l.all[uri][name]; known {
		l.count--
		delete(l.all[uri], name)
	}
	if len(l.all[uri]) > 0 {
		return false
	}
	delete(l.all, uri)
	return true
}

// expire removes those who have not said for long that they listen, and returns the
// resources to which nobody does any more.
func (l *listeners) expire(now time.Time) (uris []string) {
	for uri, names := range l.all {
		for name, until := range names {
			if now.After(until) && l.remove(uri, name) {
				uris = append(uris, uri)
			}
		}
	}
	return uris
}

// listen serves a Follow or a Leave. It is called by whoever has the lane.
func (b *berth) listen(ctx context.Context, session protocol.Session, call *ferrule.Call) (*ferrule.Result, error) {
	l := &b.heard
	l.of(session)
	if call.Operation == ferrule.Unsubscribe {
		if l.remove(call.Tool, call.Subscriber) {
			return session.Invoke(ctx, call)
		}
		return &ferrule.Result{}, nil
	}
	_, known := l.all[call.Tool][call.Subscriber]
	if !known && l.count >= maxListeners || len(call.Subscriber) > ferrule.MaxWord {
		return nil, ferrule.Errorf(ferrule.Limited, "%d already listen to %s; more are not possible", l.count, call.Device)
	}
	if len(l.all[call.Tool]) == 0 {
		if _, err := session.Invoke(ctx, call); err != nil {
			return nil, err
		}
	}
	l.add(call.Tool, call.Subscriber, time.Now().Add(ferrule.SubscriptionTTL))
	b.sweepLater()
	return &ferrule.Result{}, nil
}

// sweepLater has listeners that have gone without a word forgotten. It is called by whoever
// has the lane.
func (b *berth) sweepLater() {
	if !b.heard.sweeping {
		b.heard.sweeping = true
		b.startSweep()
	}
}

func (b *berth) startSweep() {
	time.AfterFunc(ferrule.SubscriptionTTL/2, func() {
		b.dock.start(func() { b.safely(b.sweep) })
	})
}

// sweep forgets them, and tells the device what nobody listens to any more.
func (b *berth) sweep() error {
	ctx, cancel := context.WithTimeout(context.Background(), sweepTime)
	defer cancel()
	call := ferrule.Call{
		Principal: ferrule.Principal{Role: ferrule.Gateway, Name: "subscriptions"}, Device: b.slot.device.Load().ID,
		Operation: ferrule.Unsubscribe, Timeout: ferrule.Duration(sweepTime),
	}
	if err := b.lane.enter(ctx, &call); err != nil {
		b.startSweep() // it has better things to do
		return err
	}
	defer b.lane.leave()
	b.mu.Lock()
	session := b.session
	b.mu.Unlock()
	l := &b.heard
	l.sweeping = false
	l.of(session)
	for _, uri := range l.expire(time.Now()) {
		call.Tool = uri
		session.Invoke(ctx, &call) // if it fails, the device tells for nothing
	}
	if l.count > 0 {
		b.sweepLater()
	}
	return nil
}
