package stdio

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
)

// robot returns a board that is online.
func robot() (*ferrule.Device, *ferrule.Manifest) {
	return &ferrule.Device{ID: "robot", Kind: "k", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, &ferrule.Manifest{Tools: []ferrule.Tool{
		{Name: "look", Effect: ferrule.Reads}, {Name: "move", Effect: ferrule.Changes},
	}}
}

// newProxy returns a proxy without a gateway and devices.
func newProxy() *Proxy {
	return New(Parts{Catalog: catalog.DefaultConfig(), Agents: server.DefaultConfig(), Log: slog.New(slog.DiscardHandler)})
}

// newProxyWithRobot returns a proxy that knows one board.
func newProxyWithRobot() *Proxy {
	p := newProxy()
	p.beginSync()
	p.Put(robot())
	p.Synced()
	p.setReady()
	return p
}

// outcomesOf returns a handler that returns one outcome after the other, and counts calls.
func outcomesOf(calls *int, outcomes ...error) ferrule.Handler {
	return func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		err := outcomes[min(*calls, len(outcomes)-1)]
		*calls++
		if err != nil {
			return nil, err
		}
		return &ferrule.Result{Value: json.RawMessage(`{}`)}, nil
	}
}

// TestHandover checks the outcome of a call when the gateway changes.
func TestHandover(t *testing.T) {
	lost := ferrule.Errorf(ferrule.Unanswered, "the gateway went away during the call")
	offline := ferrule.Errorf(ferrule.Offline, "it is being connected to")
	cancelled := ferrule.Errorf(ferrule.Cancelled, "cancelled while waiting for robot")
	for name, test := range map[string]struct {
		tool   string
		first  []error // outcomes of the first gateway, before it ends
		second []error // outcomes of the next one, half a second later; nil if there is none
		code   ferrule.Code
		ran    bool   // it may have run
		calls  [2]int // calls to each gateway
	}{
		"nothing was sent":                      {"move", []error{control.ErrNoGateway}, []error{nil}, "", false, [2]int{1, 1}},
		"it ended while the call waited":        {"move", []error{cancelled}, []error{nil}, "", false, [2]int{1, 1}},
		"it ended during the call":              {"move", []error{ferrule.Errorf(ferrule.Cancelled, "").AfterSend()}, []error{nil}, ferrule.Unanswered, true, [2]int{1, 0}},
		"it ended during a call that reads":     {"look", []error{ferrule.Errorf(ferrule.Cancelled, "").AfterSend()}, []error{nil}, "", false, [2]int{1, 1}},
		"it may have run, and changes":          {"move", []error{lost}, []error{nil}, ferrule.Unanswered, true, [2]int{1, 0}},
		"it may have run, and reads":            {"look", []error{lost}, []error{nil}, "", false, [2]int{1, 1}},
		"it may have run twice, and reads":      {"look", []error{lost}, []error{lost}, ferrule.Unanswered, true, [2]int{1, 1}},
		"it may have run, and then is refused":  {"look", []error{lost}, []error{ferrule.Errorf(ferrule.Busy, "")}, ferrule.Unanswered, true, [2]int{1, 1}},
		"it may have run, and there is no next": {"look", []error{lost}, nil, ferrule.Unanswered, true, [2]int{1, 0}},
		"it may have run, and never comes back": {"look", []error{lost}, []error{offline}, ferrule.Unanswered, true, [2]int{1, 3}},
		"the next is still connecting":          {"move", []error{control.ErrNoGateway}, []error{offline, nil}, "", false, [2]int{1, 2}},
		"the next refuses":                      {"move", []error{control.ErrNoGateway}, []error{ferrule.Errorf(ferrule.Denied, "no")}, ferrule.Denied, false, [2]int{1, 1}},
		"it never comes back":                   {"move", []error{control.ErrNoGateway}, []error{offline}, ferrule.Offline, false, [2]int{1, 3}},
		"there is no next":                      {"move", []error{control.ErrNoGateway}, nil, ferrule.Offline, false, [2]int{1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProxyWithRobot()
				var calls [2]int
				first := outcomesOf(&calls[0], test.first...)
				p.connect("", func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
					time.AfterFunc(50*time.Millisecond, func() { p.disconnect() }) // noticed after the call has failed
					if test.second != nil {
						time.AfterFunc(500*time.Millisecond, func() { p.connect("", outcomesOf(&calls[1], test.second...)) })
						time.AfterFunc(900*time.Millisecond, func() { p.Put(robot()) })
					}
					return first(ctx, call)
				})
				reports := 0
				_, err := p.handle(t.Context(), &ferrule.Call{Device: "robot", Tool: test.tool, Progress: func(ferrule.Progress) { reports++ }})
				if got := codeOf(err); got != test.code || err != nil && ferrule.AsError(err).MayHaveRun() != test.ran {
					t.Errorf("got %v, %v", got, err)
				}
				if calls != test.calls || reports > 1 {
					t.Errorf("calls to the gateways: %v, progress reports: %d", calls, reports)
				}
				time.Sleep(time.Minute) // let all timers fire
			})
		})
	}
}

// TestPatience checks that a gateway that does not answer is tried for as long as patience
// lasts, and that a gateway that reports a device offline is believed at once.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProxyWithRobot()
		var calls int
		p.connect("", outcomesOf(&calls, control.ErrNoGateway))
		start := time.Now()
		if _, err := p.handle(t.Context(), &ferrule.Call{Device: "robot", Tool: "move"}); codeOf(err) != ferrule.Offline {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took < patience || took > patience+time.Second || calls > 3 {
			t.Errorf("%d tries in %v", calls, took)
		}
		calls = 0
		p.connect("", outcomesOf(&calls, ferrule.Errorf(ferrule.Offline, "unplugged")))
		start = time.Now()
		if _, err := p.handle(t.Context(), &ferrule.Call{Device: "robot", Tool: "move"}); codeOf(err) != ferrule.Offline || time.Since(start) > 0 || calls != 1 {
			t.Errorf("%d tries in %v: %v", calls, time.Since(start), err)
		}
	})
}

// TestLongWait checks that a call which waited long, for example for approval, is sent to
// the next gateway when the first ends.
func TestLongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProxyWithRobot()
		p.connect("", func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			time.Sleep(4 * time.Minute)
			return nil, ferrule.Errorf(ferrule.Cancelled, "cancelled while it waited for approval")
		})
		var calls int
		time.AfterFunc(4*time.Minute, func() {
			p.disconnect()
			time.Sleep(5 * time.Second)
			p.connect("", outcomesOf(&calls, nil))
		})
		if _, err := p.handle(t.Context(), &ferrule.Call{Device: "robot", Tool: "move"}); err != nil || calls != 1 {
			t.Errorf("%d tries: %v", calls, err)
		}
	})
}

// TestGrace checks that a device which the next gateway has yet to connect to stays online
// for the agent, for a while.
func TestGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProxyWithRobot()
		p.connect("", nil)
		away := &ferrule.Device{ID: "robot", Kind: "k", State: ferrule.StateOffline, Trust: ferrule.TrustAdopted}
		state := func() ferrule.State {
			dev, _, _ := p.catalog.Lookup("robot")
			return dev.State
		}
		change := func() {
			p.disconnect()
			p.beginSync()
			p.Put(away, nil)
			p.Synced()
			p.connect("", nil)
		}
		change()
		time.Sleep(grace / 2)
		if state() != ferrule.StateOnline {
			t.Error("offline at once")
		}
		p.Put(robot())
		time.Sleep(2 * grace)
		if state() != ferrule.StateOnline {
			t.Error("offline although it came back")
		}
		change()
		time.Sleep(2 * grace)
		if state() != ferrule.StateOffline {
			t.Error("never offline")
		}
		p.Put(robot())
		p.Put(away, nil)
		if state() != ferrule.StateOffline {
			t.Error("an unplugged device is not offline")
		}
	})
}

func codeOf(err error) ferrule.Code {
	if err == nil {
		return ""
	}
	return ferrule.AsError(err).Code
}

// TestNoGateway checks that lists and calls wait for the first gateway, but not forever.
func TestNoGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProxy()
		start := time.Now()
		p.awaitReady(t.Context())
		if took := time.Since(start); took != control.SettleTime+time.Second {
			t.Errorf("a list waited %v", took)
		}
		_, err := p.handle(t.Context(), &ferrule.Call{Device: "robot", Tool: "look"})
		if codeOf(err) != ferrule.Offline {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.handle(ctx, &ferrule.Call{Device: "robot", Tool: "look"}); codeOf(err) != ferrule.Cancelled {
			t.Errorf("got %v", err)
		}
	})
}

// TestSync checks that devices which the next gateway does not report are removed.
func TestSync(t *testing.T) {
	p := newProxyWithRobot()
	p.disconnect()
	p.beginSync()
	p.Put(&ferrule.Device{ID: "arm", State: ferrule.StateOffline, Trust: ferrule.TrustAdopted}, nil)
	if _, _, ok := p.catalog.Lookup("robot"); !ok {
		t.Error("removed before the sync has ended")
	}
	p.Synced()
	if _, _, ok := p.catalog.Lookup("robot"); ok {
		t.Error("not removed")
	}
	if _, _, ok := p.catalog.Lookup("arm"); !ok {
		t.Error("a reported device is missing")
	}
}
