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

var blind = offer{Configs: []config{{"cover", "x", "blind", `{"cmd_t":"b/set","pos_t":"b","set_pos_t":"b/set","pos_tpl":"{{ value_json.position }}","set_pos_tpl":"{\"position\": {{ position }} }","dev":{"ids":"x"}}`}}}

// TestMove: a blind has arrived when its position rests, whatever it says at first.
func TestMove(t *testing.T) {
	type report struct {
		after    time.Duration
		position int
	}
	s := time.Second
	for name, test := range map[string]struct {
		reports   []report
		confirmed bool
		position  float64
		note      string
		takes     time.Duration
	}{
		"echo, then the way": {[]report{{20 * time.Millisecond, 60}, {1 * s, 90}, {2 * s, 80}, {3 * s, 70}, {4 * s, 60}}, true, 60, "", 4*s + settle},
		"at once":            {[]report{{s, 60}}, true, 60, "", s + settle},
		"almost":             {[]report{{s, 80}, {2 * s, 61}}, true, 61, "", 2*s + settle},
		"stuck":              {[]report{{s, 90}, {2 * s, 80}}, false, 80, "another value", 2*s + stuck},
		"back":               {[]report{{s, 60}, {2 * s, 100}}, false, 100, "another value", 2*s + stuck},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, blind, nil, func(t *testing.T, r *rig) {
				r.link.hear("b", `{"position":100}`)
				synctest.Wait()
				for _, p := range test.reports {
					r.link.later(p.after, "b", fmt.Sprintf(`{"position":%d}`, p.position))
				}
				start := time.Now()
				got := r.result("blind_position", `{"position":60}`)
				if got.Confirmed != test.confirmed || got.State["blind"] != test.position && got.State["blind_position"] != test.position || !strings.Contains(got.Note, test.note) {
					t.Errorf("got %+v", got)
				}
				if took := time.Since(start); took != test.takes {
					t.Errorf("it took %v, want %v", took, test.takes)
				}
				r.published(`b/set {"position": 60 }`)
			})
		})
	}
	t.Run("moving at the deadline", func(t *testing.T) {
		bubble(t, blind, nil, func(t *testing.T, r *rig) {
			for i := range 10 {
				r.link.later(time.Duration(i)*s, "b", fmt.Sprintf(`{"position":%d}`, 69-i))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 9*s+s/2)
			defer cancel()
			result, err := r.call(ctx, "blind_position", `{"position":60}`)
			if err != nil || !strings.Contains(string(result.Value), "still changing") || !strings.Contains(string(result.Value), `"confirmed":false`) {
				t.Errorf("got %v, %v", result, err)
			}
		})
	})
}

// TestYield: a call that only watches a blind ends when another call waits, which may be
// the one that stops it.
func TestYield(t *testing.T) {
	bubble(t, blind, nil, func(t *testing.T, r *rig) {
		time.AfterFunc(3*time.Second, func() { r.session.Yield(true) })
		start := time.Now()
		if got := r.result("blind_open", `{}`); got.Confirmed || !strings.Contains(got.Note, "another call") || time.Since(start) != 3*time.Second {
			t.Errorf("got %+v after %v", got, time.Since(start))
		}
		if got := r.result("blind_close", `{}`); got.Confirmed || time.Since(start) != 3*time.Second {
			t.Errorf("got %+v after %v", got, time.Since(start))
		}
		r.session.Yield(false)
		r.link.later(time.Second, "b", `{"position":50}`)
		if got := r.result("blind_stop", `{}`); !got.Confirmed {
			t.Errorf("got %+v", got)
		}
		r.published("b/set OPEN", "b/set CLOSE", "b/set STOP")
	})
	bubble(t, plug, nil, func(t *testing.T, r *rig) {
		r.session.Yield(true)
		r.link.later(time.Second, relay, "ON")
		if got := r.result("relay", `{"on":true}`); !got.Confirmed {
			t.Errorf("a short call did not wait: %+v", got)
		}
	})
}

// TestSteps: a state on the way to the one asked for does not end the call.
func TestSteps(t *testing.T) {
	o := offer{Configs: []config{{"lock", "x", "front", `{"cmd_t":"l/set","stat_t":"l","dev":{"ids":"x"}}`}}}
	bubble(t, o, nil, func(t *testing.T, r *rig) {
		r.link.hear("l", "LOCKED")
		synctest.Wait()
		r.link.later(100*time.Millisecond, "l", "UNLOCKING")
		r.link.later(4*time.Second, "l", "UNLOCKED")
		if got := r.result("front_unlock", `{}`); !got.Confirmed || got.State["front"] != "unlocked" {
			t.Errorf("got %+v", got)
		}
		r.published("l/set UNLOCK")
	})
}

// several is a light with one topic for each property.
var several = offer{Configs: []config{{"light", "x", "lamp", `{"cmd_t":"l/set","stat_t":"l","bri_cmd_t":"l/bri/set","bri_stat_t":"l/bri","dev":{"ids":"x"}}`}}}

// TestPart: if the first of several messages was sent, the call may have run in part.
func TestPart(t *testing.T) {
	for name, test := range map[string]struct {
		err error
		at  int
	}{
		"undelivered": {&transport.Undelivered{Reason: "no subscriber"}, 2},
		"denied":      {&transport.Undelivered{Denied: true, Reason: "not authorized"}, 2},
		"unsent":      {transport.ErrUnsent, 2},
		"lost":        {errors.New("lost"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, several, nil, func(t *testing.T, r *rig) {
				sent := 0
				r.link.onSend = func(context.Context, transport.Message) error {
					if sent++; sent == test.at {
						return test.err
					}
					return nil
				}
				if e := r.fails("lamp", `{"on":true,"brightness":7}`, ferrule.Unanswered, true); !e.MayHaveRun() {
					t.Error("it may have run")
				}
				r.published([]string{"l/bri/set 7", "l/set ON"}[:test.at]...)
			})
		})
	}
	t.Run("all", func(t *testing.T) {
		bubble(t, several, nil, func(t *testing.T, r *rig) {
			r.link.onSend = func(_ context.Context, m transport.Message) error {
				r.link.hear(strings.TrimSuffix(m.Channel, "/set"), string(m.Data))
				return nil
			}
			if got := r.result("lamp", `{"on":true,"brightness":7}`); !got.Confirmed || len(got.State) != 2 {
				t.Errorf("got %+v", got)
			}
			r.published("l/bri/set 7", "l/set ON")
		})
	})
	t.Run("one is silent", func(t *testing.T) {
		bubble(t, several, nil, func(t *testing.T, r *rig) {
			r.link.later(time.Second, "l", "ON")
			if got := r.result("lamp", `{"on":true,"brightness":7}`); got.Confirmed || !strings.Contains(got.Note, "nothing was reported about lamp_brightness") {
				t.Errorf("got %+v", got)
			}
		})
	})
}
