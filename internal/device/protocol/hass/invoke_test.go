package hass

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// plug is a device with a switch, a number without state, and a sensor.
var plug = offer{Configs: []config{
	{"number", "plug1", "timer", `{"cmd_t":"acme/1/timer","dev":{"ids":"plug1"},"o":{"name":"acme-fw"}}`},
	{"sensor", "plug1", "power", `{"stat_t":"acme/1/power","unit_of_meas":"W","stat_cla":"measurement","exp_aft":120,"dev":{"ids":"plug1"}}`},
	{"switch", "plug1", "relay", `{"cmd_t":"acme/1/set","stat_t":"acme/1/relay","dev":{"ids":"plug1","name":"Kettle","mf":"Acme","mdl":"Meter plug","mdl_id":"AP-1","sw":"2.1.0"},"o":{"name":"acme-fw"}}`},
}}

const relay = "acme/1/relay"

func TestEcho(t *testing.T) {
	for name, test := range map[string]struct {
		before func(l *testLink) // the call
		onSend func(l *testLink)
		want   answer
		takes  time.Duration
		code   ferrule.Code
	}{
		"in time": {
			onSend: func(l *testLink) { l.later(20*time.Millisecond, relay, "ON") },
			want:   answer{Confirmed: true, State: map[string]any{"relay": true}}, takes: 20 * time.Millisecond,
		},
		"before the broker confirms": {
			onSend: func(l *testLink) { l.hear(relay, "ON"); time.Sleep(time.Second) },
			want:   answer{Confirmed: true, State: map[string]any{"relay": true}}, takes: time.Second,
		},
		"late": {
			onSend: func(l *testLink) { l.later(4900*time.Millisecond, relay, "ON") },
			want:   answer{Confirmed: true, State: map[string]any{"relay": true}}, takes: 4900 * time.Millisecond,
		},
		"none":       {takes: 5 * time.Second, code: ferrule.Unanswered},
		"too late":   {onSend: func(l *testLink) { l.later(5001*time.Millisecond, relay, "ON") }, takes: 5 * time.Second, code: ferrule.Unanswered},
		"before it":  {before: func(l *testLink) { l.hear(relay, "OFF") }, takes: 5 * time.Second, code: ferrule.Unanswered},
		"retained":   {onSend: func(l *testLink) { l.retain(relay, "ON") }, takes: 5 * time.Second, code: ferrule.Unanswered},
		"of another": {onSend: func(l *testLink) { l.hear("acme/1/power", "3"); l.hear("acme/2/relay", "ON") }, takes: 5 * time.Second, code: ferrule.Unanswered},
		"other value": {
			onSend: func(l *testLink) { l.hear(relay, "OFF") },
			want:   answer{State: map[string]any{"relay": false}, Note: "still reports"}, takes: 5 * time.Second,
		},
		"old value first": {
			before: func(l *testLink) { l.hear(relay, "OFF") },
			onSend: func(l *testLink) { l.hear(relay, "OFF"); l.later(3*time.Second, relay, "ON") },
			want:   answer{Confirmed: true, State: map[string]any{"relay": true}}, takes: 3 * time.Second,
		},
		"changed to other value": {
			before: func(l *testLink) { l.hear(relay, "ON") },
			onSend: func(l *testLink) { l.later(time.Second, relay, "OFF") },
			want:   answer{State: map[string]any{"relay": false}, Note: "somebody else"}, takes: 5 * time.Second,
		},
		"already so": {
			before: func(l *testLink) { l.hear(relay, "ON") },
			want:   answer{Confirmed: true, State: map[string]any{"relay": true}, Note: "already so"}, takes: settle,
		},
		"already so, retained": {before: func(l *testLink) { l.retain(relay, "ON") }, takes: 5 * time.Second, code: ferrule.Unanswered},
		"unknown": {
			before: func(l *testLink) { l.hear(relay, "ON"); l.hear(relay, "None") }, takes: 5 * time.Second, code: ferrule.Unanswered,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, plug, nil, func(t *testing.T, r *rig) {
				if test.before != nil {
					test.before(r.link)
				}
				synctest.Wait()
				if test.onSend != nil {
					r.link.onSend = func(context.Context, transport.Message) error { test.onSend(r.link); return nil }
				}
				start := time.Now()
				if test.code != "" {
					e := r.fails("relay", `{"on":true}`, test.code, true)
					if !strings.Contains(e.Message, "may yet run") || !strings.Contains(e.Hint, "state") {
						t.Errorf("got %s; %s", e.Message, e.Hint)
					}
				} else {
					got := r.result("relay", `{"on":true}`)
					if got.Confirmed != test.want.Confirmed || got.State["relay"] != test.want.State["relay"] || !strings.Contains(got.Note, test.want.Note) {
						t.Errorf("got %+v, want %+v", got, test.want)
					}
					if got.Confirmed != strings.Contains(got.By, "acme-fw reports it; that is not proof") {
						t.Errorf("confirmed %t by %q", got.Confirmed, got.By)
					}
				}
				if took := time.Since(start); took != test.takes {
					t.Errorf("it took %v, want %v", took, test.takes)
				}
				r.published("acme/1/set ON")
				time.Sleep(10 * time.Second)
			})
		})
	}
}

// TestBroker checks what the answers of the broker mean.
func TestBroker(t *testing.T) {
	lost := errors.New("the broker did not confirm")
	for name, test := range map[string]struct {
		err   error
		echo  bool
		code  ferrule.Code
		final bool
	}{
		"no subscriber":             {err: &transport.Undelivered{Reason: "no subscriber"}, code: ferrule.Offline, final: true},
		"no permission":             {err: &transport.Undelivered{Denied: true, Reason: "not authorized"}, code: ferrule.Denied, final: true},
		"not sent":                  {err: transport.ErrUnsent, code: ferrule.Offline},
		"lost":                      {err: lost, code: ferrule.Unanswered, final: true},
		"lost, but the state comes": {err: lost, echo: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, plug, nil, func(t *testing.T, r *rig) {
				r.link.onSend = func(context.Context, transport.Message) error {
					if test.echo {
						r.link.hear(relay, "ON")
						synctest.Wait()
					}
					if test.err == lost {
						r.link.fail(lost)
					}
					return test.err
				}
				if test.code == "" {
					if got := r.result("relay", `{"on":true}`); !got.Confirmed {
						t.Errorf("got %+v", got)
					}
				} else if e := r.fails("relay", `{"on":true}`, test.code, test.final); e.MayHaveRun() != (test.code == ferrule.Unanswered) {
					t.Errorf("may have run: %t", e.MayHaveRun())
				}
				r.published("acme/1/set ON")
			})
		})
	}
}

// TestAssumed: if nothing reports a state, the result says so at once.
func TestAssumed(t *testing.T) {
	bubble(t, plug, nil, func(t *testing.T, r *rig) {
		start := time.Now()
		if got := r.result("timer", `{"value":5}`); got.Confirmed || got.Note == "" || time.Since(start) > 0 {
			t.Errorf("got %+v after %v", got, time.Since(start))
		}
		r.published("acme/1/timer 5")
	})
}

// TestExpiry: a message expires when the call stops waiting, or at the deadline.
func TestExpiry(t *testing.T) {
	bubble(t, plug, nil, func(t *testing.T, r *rig) {
		r.fails("relay", `{"on":true}`, ferrule.Unanswered, true)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		_, err := r.call(ctx, "relay", `{"on":true}`)
		wantError(t, err, ferrule.Unanswered, true)
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("it took %v", took)
		}
		if got := r.link.deadlines; len(got) != 2 || got[0] != 5*time.Second || got[1] != 2*time.Second {
			t.Errorf("expiry after %v", got)
		}
	})
}

func TestCancelled(t *testing.T) {
	bubble(t, plug, nil, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := r.call(ctx, "relay", `{"on":true}`)
		if e := wantError(t, err, ferrule.Cancelled, true); !e.MayHaveRun() {
			t.Error("it may have run")
		}
		_, err = r.call(ctx, "relay", `{"on":true}`)
		if e := wantError(t, err, ferrule.Cancelled, false); e.MayHaveRun() {
			t.Error("nothing was sent")
		}
		r.published("acme/1/set ON")
	})
}

func TestLinkEnds(t *testing.T) {
	bubble(t, plug, nil, func(t *testing.T, r *rig) {
		// A broker that is too slow is the end, too, although its error is a deadline.
		broken := fmt.Errorf("the broker has not confirmed the message: %w", context.DeadlineExceeded)
		time.AfterFunc(time.Second, func() { r.link.fail(broken) })
		r.fails("relay", `{"on":true}`, ferrule.Unanswered, true)
		if err := <-r.ran; !errors.Is(err, broken) {
			t.Errorf("Run returned %v", err)
		}
		r.fails("relay", `{"on":true}`, ferrule.Offline, false)
		r.fails(toolState, `{}`, ferrule.Offline, false)
		r.published("acme/1/set ON")
		r.ran <- nil
	})
	bubble(t, plug, nil, func(t *testing.T, r *rig) {
		time.AfterFunc(time.Second, r.stop)
		r.fails("relay", `{"on":true}`, ferrule.Unanswered, true)
		if err := <-r.ran; err != nil {
			t.Errorf("Run returned %v", err)
		}
		r.ran <- nil
	})
}

func TestRefused(t *testing.T) {
	bubble(t, plug, func(s *Session) { s.tool("timer").refusal = "its topic is that of another device" }, func(t *testing.T, r *rig) {
		r.fails("nonsense", `{}`, ferrule.Refused, false)
		r.fails("timer", `{"value":5}`, ferrule.Denied, false)
		r.fails("relay", `[]`, ferrule.Invalid, false)
		r.published()
	})
}
