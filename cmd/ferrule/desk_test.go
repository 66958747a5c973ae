package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/config"
	"github.com/ferrulehq/ferrule/front/control"
)

// newTestDesk makes a desk that knows of one board.
func newTestDesk() *desk {
	d := newDesk(config.Default(), slog.New(slog.DiscardHandler))
	d.begin()
	d.Put(&ferrule.Device{ID: "robot", Kind: "k", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, &ferrule.Manifest{Tools: []ferrule.Tool{
		{Name: "look", Effect: ferrule.Reads}, {Name: "move", Effect: ferrule.Changes},
	}})
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
	for name, test := range map[string]struct {
		tool   string
		first  []error // what the first gateway does, before it goes away
		second []error // what the next one does, half a second later
		code   ferrule.Code
		calls  [2]int // how often each was asked
	}{
		"nothing was sent":                  {"move", []error{control.ErrNoGateway}, []error{nil}, "", [2]int{1, 1}},
		"it may have run, and changes":      {"move", []error{lost}, []error{nil}, ferrule.Unanswered, [2]int{1, 0}},
		"it may have run, and reads":        {"look", []error{lost}, []error{nil}, "", [2]int{1, 1}},
		"it may have run twice, and reads":  {"look", []error{lost}, []error{lost}, ferrule.Unanswered, [2]int{1, 1}},
		"the next is still connecting":      {"move", []error{control.ErrNoGateway}, []error{offline, offline, offline, nil}, "", [2]int{1, 4}},
		"the next refuses":                  {"move", []error{control.ErrNoGateway}, []error{ferrule.Errorf(ferrule.Denied, "no")}, ferrule.Denied, [2]int{1, 1}},
		"it never comes back":               {"move", []error{control.ErrNoGateway}, []error{offline}, ferrule.Offline, [2]int{1, -1}},
		"the first has no way to it either": {"move", []error{offline}, nil, ferrule.Offline, [2]int{1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newTestDesk()
				var calls [2]int
				first := roadOf(&calls[0], test.first...)
				d.open(func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
					result, err := first(ctx, call)
					if test.second != nil {
						d.close()
						time.AfterFunc(500*time.Millisecond, func() { d.open(roadOf(&calls[1], test.second...)) })
					}
					return result, err
				})
				start := time.Now()
				_, err := d.handle(t.Context(), &ferrule.Call{Device: "robot", Tool: test.tool})
				if got := codeOf(err); got != test.code {
					t.Errorf("got %v", err)
				}
				if calls[0] != test.calls[0] || test.calls[1] >= 0 && calls[1] != test.calls[1] {
					t.Errorf("the gateways were asked %v times", calls)
				}
				if took := time.Since(start); took > patience+time.Second {
					t.Errorf("it took %v", took)
				}
				time.Sleep(time.Second) // the next gateway comes, needed or not
			})
		})
	}
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
