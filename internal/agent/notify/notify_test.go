package notify

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// newNotifier returns a notifier without devices, and a group whose messages are
// passed to write.
func newNotifier(write func(uri string)) (*Notifier, *Group) {
	n := New(Config{
		Handle: func(context.Context, *ferrule.Call) (*ferrule.Result, error) { return &ferrule.Result{}, nil },
		Device: func(string) (*ferrule.Device, bool) { return nil, false },
	})
	g := &Group{notifier: n, streams: make(map[*subscriber]bool), write: func(_ context.Context, _ string, req mcp.Request) (mcp.Result, error) {
		write(req.GetParams().(*mcp.ResourceUpdatedNotificationParams).URI)
		return nil, nil
	}}
	return n, g
}

// newSubscriber returns a session that is a subscriber of its own.
func newSubscriber(n *Notifier, g *Group) *subscriber {
	session := &mcp.ServerSession{}
	own := &subscriber{group: g, session: session, topics: make(map[string]Topic)}
	n.session(session).own = own
	return own
}

var robot = Topic{Device: "robot"}

func subscribe(t *testing.T, n *Notifier, sub *subscriber) {
	t.Helper()
	if err := n.subscribe(t.Context(), gatewayPrincipal, sub, "robot", robot); err != nil {
		t.Fatal(err)
	}
}

// TestUnacknowledged: what changes after a stream was opened, and before it is
// acknowledged, is sent when it is; nothing else is.
func TestUnacknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		n, g := newNotifier(func(string) { sent++ })
		change := func() {
			n.Changed(robot)
			synctest.Wait()
			time.Sleep(time.Second)
		}
		expect := func(want int, when string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if sent != want {
				t.Errorf("sent %d %s, want %d", sent, when, want)
			}
		}
		open := func() *subscriber {
			stream, err := n.open(g, ferrule.Principal{}, &mcp.ServerSession{})
			if err != nil {
				t.Fatal(err)
			}
			subscribe(t, n, stream)
			return stream
		}
		ack := &mcp.SubscriptionsAcknowledgedParams{Meta: mcp.Meta{mcp.MetaKeySubscriptionID: 1}}
		early := open()
		n.acknowledged(early, ack)
		expect(0, "without a change")
		change()
		late := open()
		n.acknowledged(late, ack)
		expect(1, "for a change before")
		n.end(late)
		late = open()
		change()
		expect(2, "before the acknowledgment")
		n.acknowledged(late, ack)
		expect(3, "for a change in between")
		n.end(early)
		n.end(late)
		change()
		expect(3, "after all streams have ended")
		if len(n.sessions)+len(n.topics)+len(n.deliveries) > 0 {
			t.Errorf("%d sessions, %d topics, %d deliveries are left", len(n.sessions), len(n.topics), len(n.deliveries))
		}
	})
}

// TestInterval: the first change is sent at once. However often a topic changes,
// subscribers get a few notifications a second, and one of the last change.
func TestInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Duration
		start := time.Now()
		n, g := newNotifier(func(string) { sent = append(sent, time.Since(start)) })
		sub := newSubscriber(n, g)
		subscribe(t, n, sub)
		for range 1000 { // for a second
			n.Changed(robot)
			n.Changed(Topic{Device: "lamp"})
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := time.Second / UpdateInterval; len(sent) != int(n)+1 || sent[0] != 0 || sent[n] != time.Second {
			t.Errorf("sent after %v", sent)
		}
		n.unsubscribe(sub, "robot")
		n.end(sub)
		n.Changed(robot)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(sent) != int(time.Second/UpdateInterval)+1 {
			t.Errorf("sent after %v, without a subscriber", sent[len(sent)-1])
		}
	})
}

// TestUnsubscribeWaits: when a client is told that it has unsubscribed, it gets no
// more notifications, however slowly it reads.
func TestUnsubscribeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Duration
		start := time.Now()
		n, g := newNotifier(func(string) {
			time.Sleep(300 * time.Millisecond)
			sent = append(sent, time.Since(start))
		})
		sub := newSubscriber(n, g)
		heat := Topic{Device: "robot", URI: "heat"}
		if err := n.subscribe(t.Context(), gatewayPrincipal, sub, "heat", heat); err != nil {
			t.Fatal(err)
		}
		update := func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.deliver(delivery{group: g, session: sub.session, method: ResourceUpdated, uri: "heat"})
		}
		update()
		time.Sleep(100 * time.Millisecond)
		update() // is due again
		n.unsubscribe(sub, "heat", "taste")
		if took := time.Since(start); took != 300*time.Millisecond {
			t.Errorf("unsubscribed after %v", took)
		}
		update()
		time.Sleep(time.Second)
		synctest.Wait()
		if fmt.Sprint(sent) != "[300ms]" || len(n.deliveries) > 0 {
			t.Errorf("sent after %v", sent)
		}
	})
}

// TestSessionLimit: all streams of a session share one limit of subscriptions.
func TestSessionLimit(t *testing.T) {
	n, g := newNotifier(func(string) {})
	session := &mcp.ServerSession{}
	for i := range MaxSubscriptions + 1 {
		stream, err := n.open(g, ferrule.Principal{}, session)
		if err != nil {
			t.Fatal(err)
		}
		uri := fmt.Sprint(i)
		if err := n.subscribe(t.Context(), gatewayPrincipal, stream, uri, Topic{Device: uri}); (err == nil) != (i < MaxSubscriptions) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestOpenPanics checks that a stream which cannot be opened because of a panic leaves nothing behind.
func TestOpenPanics(t *testing.T) {
	n := New(Config{})
	g := n.Attach(mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil))
	func() {
		defer func() { recover() }()
		req := &mcp.SubscriptionsListenRequest{Session: new(mcp.ServerSession), Params: &mcp.SubscriptionsListenParams{Notifications: &mcp.NotificationSubscriptions{ResourceSubscriptions: []string{"x"}}}}
		g.Open(t.Context(), ferrule.Principal{}, req, func(context.Context, string) (Topic, error) { panic("broken") })
		t.Error("it did not panic")
	}()
	if g.Streams() != 0 || len(n.sessions) != 0 {
		t.Errorf("%d streams and %d sessions are left", g.Streams(), len(n.sessions))
	}
}
