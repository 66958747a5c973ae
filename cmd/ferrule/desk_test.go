package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// robot is a board that is online.
func robot() (*ferrule.Device, *ferrule.Manifest) {
	return &ferrule.Device{ID: "robot", Kind: "k", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, &ferrule.Manifest{Tools: []ferrule.Tool{
		{Name: "look", Effect: ferrule.Reads}, {Name: "move", Effect: ferrule.Changes},
	}}
}

// newTestDesk makes a desk that knows of one board.
func newTestDesk() *desk {
	d := newDesk(config.Default(), slog.New(slog.DiscardHandler))
	d.begin()
	d.Put(robot())
	d.Synced()
	d.settled()
	return d
}

// roadOf is a road that gives one outcome after the other, and counts.
func roadOf(calls *int, outcomes ...error) ferrule.Handler {
	return func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		err := outcomes[min(*calls, len(outcomes)-1)]
		*calls++
		if err != nil {
			return nil, err
		}
		return &ferrule.Result{Value: json.RawMessage(`{}`)}, nil
	}
}

// TestDesk: what becomes of a call when the gateway changes hands.
func TestDesk(t *testing.T) {
	lost := ferrule.Errorf(ferrule.Unanswered, "the gateway went away during the call")
	offline := ferrule.Errorf(ferrule.Offline, "it is being connected to")
	cancelled := ferrule.Errorf(ferrule.Cancelled, "cancelled while waiting for robot")
	for name, test := range map[string]struct {
		tool   string
		first  []error // what the first gateway does, before it goes away
		second []error // what the next one does, half a second later; none: there is none
		code   ferrule.Code
		ran    bool   // it may have
		calls  [2]int // how often each was asked
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
				d := newTestDesk()
				var calls [2]int
				first := roadOf(&calls[0], test.first...)
				d.open(func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
					time.AfterFunc(50*time.Millisecond, func() { d.close() }) // a moment after the call has failed
					if test.second != nil {
						time.AfterFunc(500*time.Millisecond, func() { d.open(roadOf(&calls[1], test.second...)) })
						time.AfterFunc(900*time.Millisecond, func() { d.Put(robot()) })
					}
					return first(ctx, call)
				})
				words := 0
				_, err := d.handle(t.Context(), &ferrule.Call{Device: "robot", Tool: test.tool, Progress: func(ferrule.Progress) { words++ }})
				if got := codeOf(err); got != test.code || err != nil && ferrule.AsError(err).MayHaveRun() != test.ran {
					t.Errorf("got %v, %v", got, err)
				}
				if calls != test.calls || words > 1 {
					t.Errorf("the gateways were asked %v times, and the agent told %d times", calls, words)
				}
				time.Sleep(time.Minute) // whatever comes, comes
			})
		})
	}
}

// TestDeskKeepsOn: a gateway that is there and cannot be reached is tried for as
// long as patience lasts; one that is there and has no way to a device is believed.
func TestDeskKeepsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDesk()
		var calls int
		d.open(roadOf(&calls, control.ErrNoGateway))
		start := time.Now()
		if _, err := d.handle(t.Context(), &ferrule.Call{Device: "robot", Tool: "move"}); codeOf(err) != ferrule.Offline {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took < patience || took > patience+time.Second || calls > 3 {
			t.Errorf("it was tried %d times in %v", calls, took)
		}
		calls = 0
		d.open(roadOf(&calls, ferrule.Errorf(ferrule.Offline, "unplugged")))
		start = time.Now()
		if _, err := d.handle(t.Context(), &ferrule.Call{Device: "robot", Tool: "move"}); codeOf(err) != ferrule.Offline || time.Since(start) > 0 || calls != 1 {
			t.Errorf("%d tries in %v: %v", calls, time.Since(start), err)
		}
	})
}

// TestDeskHoldsTheList: a device that the next gateway has yet to connect to stays in
// the agent's list, for a while.
func TestDeskHoldsTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDesk()
		d.open(nil)
		away := &ferrule.Device{ID: "robot", Kind: "k", State: ferrule.StateOffline, Trust: ferrule.TrustAdopted}
		state := func() ferrule.State {
			dev, _, _ := d.catalog.Lookup("robot")
			return dev.State
		}
		hand := func() {
			d.close()
			d.begin()
			d.Put(away, nil)
			d.Synced()
			d.open(nil)
		}
		hand()
		time.Sleep(grace / 2)
		if state() != ferrule.StateOnline {
			t.Error("it is away at once")
		}
		d.Put(robot())
		time.Sleep(2 * grace)
		if state() != ferrule.StateOnline {
			t.Error("it is away, and is back")
		}
		hand()
		time.Sleep(2 * grace)
		if state() != ferrule.StateOffline {
			t.Error("it never is away")
		}
		d.Put(robot())
		d.Put(away, nil)
		if state() != ferrule.StateOffline {
			t.Error("one that is unplugged is not away")
		}
	})
}

func codeOf(err error) ferrule.Code {
	if err == nil {
		return ""
	}
	return ferrule.AsError(err).Code
}

// TestDeskWaits: before there is a gateway, lists and calls wait for one, and not
// for ever.
func TestDeskWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(config.Default(), slog.New(slog.DiscardHandler))
		start := time.Now()
		d.await(t.Context())
		if took := time.Since(start); took != settleTime+time.Second {
			t.Errorf("a list waited %v", took)
		}
		_, err := d.handle(t.Context(), &ferrule.Call{Device: "robot", Tool: "look"})
		if codeOf(err) != ferrule.Offline {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := d.handle(ctx, &ferrule.Call{Device: "robot", Tool: "look"}); codeOf(err) != ferrule.Cancelled {
			t.Errorf("got %v", err)
		}
	})
}

// TestDeskForgets: what the next gateway does not tell of is not there.
func TestDeskForgets(t *testing.T) {
	d := newTestDesk()
	d.close()
	d.begin()
	d.Put(&ferrule.Device{ID: "arm", State: ferrule.StateOffline, Trust: ferrule.TrustAdopted}, nil)
	if _, _, ok := d.catalog.Lookup("robot"); !ok {
		t.Error("it is forgotten before all was told")
	}
	d.Synced()
	if _, _, ok := d.catalog.Lookup("robot"); ok {
		t.Error("it is remembered")
	}
	if _, _, ok := d.catalog.Lookup("arm"); !ok {
		t.Error("what was told is not there")
	}
}
