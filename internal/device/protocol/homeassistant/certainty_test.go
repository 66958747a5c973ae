package homeassistant

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

const (
	lamp = "light.lamp"
	door = "lock.door"
	hall = "cover.hall"
)

func lampOffer(assumed bool) home.Offer {
	return device([]home.Entity{{ID: lamp, Key: "light", Domain: "light", Name: "Lamp", Assumed: assumed}},
		home.Service{Domain: "light", Name: "turn_on", Targets: []home.Target{{Domains: []string{"light"}}}, Fields: []home.Field{
			{Name: "brightness", Selector: json.RawMessage(`{"number":{"min":0,"max":255}}`)}, {Name: "effect", Selector: json.RawMessage(`{"text":null}`)},
		}}, service("light", "turn_off"), service("light", "toggle"))
}

func doorOffer() home.Offer {
	return device([]home.Entity{{ID: door, Key: "lock", Domain: "lock"}}, service("lock", "lock", "code"), service("lock", "unlock", "code"))
}

func hallOffer() home.Offer {
	return device([]home.Entity{{ID: hall, Key: "cover", Domain: "cover", Features: 15}},
		service("cover", "open_cover"), service("cover", "close_cover"), service("cover", "stop_cover"),
		home.Service{Domain: "cover", Name: "set_cover_position", Targets: []home.Target{{Domains: []string{"cover"}}}, Fields: []home.Field{
			{Name: "position", Required: true, Selector: json.RawMessage(`{"number":{"min":0,"max":100}}`)},
		}})
}

// TestLamp checks what becomes of a call that turns a light on.
func TestLamp(t *testing.T) {
	for name, test := range map[string]struct {
		before  string
		args    string
		assumed bool
		device  func(l *testLink, c call)
		want    bool
		already bool
		note    string
		takes   time.Duration
	}{
		"the state comes before the answer": {
			device: func(l *testLink, c call) { l.is(lamp, "on", ""); l.answers(c) }, want: true,
		},
		"the state comes after the answer": {
			device: func(l *testLink, c call) {
				l.answers(c)
				time.AfterFunc(2*time.Second, func() { l.is(lamp, "on", "") })
			},
			want: true, takes: 2 * time.Second,
		},
		"nothing happens": {
			device: func(l *testLink, c call) { l.answers(c) }, note: "no new state within 5s; still missing: state on", takes: 5 * time.Second,
		},
		"the state comes too late": {
			device: func(l *testLink, c call) {
				l.answers(c)
				time.AfterFunc(5100*time.Millisecond, func() { l.is(lamp, "on", "") })
			},
			note: "no new state", takes: 5 * time.Second,
		},
		"already so": {before: "on", device: func(l *testLink, c call) { l.answers(c) }, want: true, already: true},
		"already so, with an unrelated change": {
			before: "on", device: func(l *testLink, c call) { l.is(lamp, "on", `{"rssi":3}`); l.answers(c) }, want: true, already: true,
		},
		"another brightness": {
			args: `{"brightness":200}`, device: func(l *testLink, c call) { l.is(lamp, "on", `{"brightness":80}`); l.answers(c) },
			note: "the state is another one; still missing: brightness 200", takes: 5 * time.Second,
		},
		"a rounded brightness": {
			args: `{"brightness":200}`, device: func(l *testLink, c call) { l.is(lamp, "on", `{"brightness":199}`); l.answers(c) }, want: true,
		},
		"a brightness on the way": {
			args: `{"brightness":200}`,
			device: func(l *testLink, c call) {
				l.is(lamp, "on", `{"brightness":80}`)
				l.answers(c)
				time.AfterFunc(time.Second, func() { l.is(lamp, "on", `{"brightness":200}`) })
			},
			want: true, takes: time.Second,
		},
		"somebody else turns it off": {
			device: func(l *testLink, c call) {
				l.isUnder("ours", lamp, "on", "")
				l.isUnder("theirs", lamp, "off", "")
				l.answers(c)
			},
			note: "something else changed it last", takes: 5 * time.Second,
		},
		"somebody else turns it on": {
			device: func(l *testLink, c call) { l.answers(c); l.isUnder("theirs", lamp, "on", "") }, want: true,
		},
		"an assumed state": {
			assumed: true, device: func(l *testLink, c call) { l.is(lamp, "on", ""); l.answers(c) }, note: "assumes this state",
		},
		"an assumed state in the attributes": {
			device: func(l *testLink, c call) { l.is(lamp, "on", `{"assumed_state":true}`); l.answers(c) }, note: "assumes this state",
		},
		"it becomes unavailable": {
			device: func(l *testLink, c call) { l.is(lamp, "unavailable", ""); l.answers(c) }, note: "became unavailable", takes: 5 * time.Second,
		},
		"it is removed": {
			device: func(l *testLink, c call) {
				l.pass(channelStates, map[string]any{lamp: nil}, false)
				l.answers(c)
			},
			note: "became unavailable", takes: 5 * time.Second,
		},
		"Home Assistant does not answer": {
			device: func(l *testLink, c call) { l.is(lamp, "on", "") }, want: true, note: "has not answered", takes: 5 * time.Second,
		},
		"the answer to another call": {
			device: func(l *testLink, c call) {
				c.ID++
				l.answers(c)
				l.is(lamp, "on", "")
			},
			want: true, note: "has not answered", takes: 5 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, lampOffer(test.assumed), func(t *testing.T, b *bench) {
				before := test.before
				if before == "" {
					before = "off"
				}
				b.link.is(lamp, before, "")
				b.link.onSend = func(c call) error { test.device(b.link, c); return nil }
				start := time.Now()
				args := test.args
				if args == "" {
					args = "{}"
				}
				got := b.ok("turn_on", args)
				if got.Confirmed == nil || *got.Confirmed != test.want || got.Already != test.already || !strings.Contains(got.Note, test.note) || test.note == "" && got.Note != "" {
					t.Errorf("confirmed %t, already %t, note %q", got.confirmed(), got.Already, got.Note)
				}
				if took := time.Since(start); took != test.takes {
					t.Errorf("it took %v, want %v", took, test.takes)
				}
				b.sends("light.turn_on light.lamp")
				time.Sleep(10 * time.Second)
			})
		})
	}
}

// TestErrors checks what the errors of Home Assistant mean.
func TestErrors(t *testing.T) {
	for code, want := range map[string]ferrule.Code{
		"not_found": ferrule.Refused, "invalid_format": ferrule.Refused, "service_validation_error": ferrule.Refused,
		"unauthorized": ferrule.Refused, "not_allowed": ferrule.Refused, "not_supported": ferrule.Refused,
		"unknown_command": ferrule.Refused, "id_reuse": ferrule.Refused,
		"home_assistant_error": ferrule.Failed, "unknown_error": ferrule.Failed, "timeout": ferrule.Failed, "template_error": ferrule.Failed, "": ferrule.Failed,
	} {
		on(t, lampOffer(false), func(t *testing.T, b *bench) {
			b.link.is(lamp, "off", "")
			b.link.onSend = func(c call) error { b.link.fails(c, code, "no \x1b[31mway"); return nil }
			e := b.fails("turn_on", `{}`, want, want == ferrule.Failed)
			if !strings.Contains(e.Message, "no  [31mway") {
				t.Errorf("%s: got %q", code, e.Message)
			}
			b.sends("light.turn_on light.lamp")
		})
	}
}

// TestUnavailable: a service on an entity that is unavailable succeeds in Home Assistant, and
// nothing happens. So it is not called.
func TestUnavailable(t *testing.T) {
	on(t, lampOffer(false), func(t *testing.T, b *bench) {
		if e := b.fails("turn_on", `{}`, ferrule.Offline, false); !e.Final {
			t.Error("the dock waits for the device to connect")
		}
		b.link.is(lamp, "unavailable", `{"restored":true}`)
		b.fails("turn_on", `{}`, ferrule.Offline, false)
		b.sends()
		b.link.is(lamp, "unknown", "") // it can be reached
		b.link.onSend = func(c call) error { b.link.is(lamp, "on", ""); b.link.answers(c); return nil }
		if !b.ok("turn_on", `{}`).confirmed() {
			t.Error("not confirmed")
		}
	})
}

// TestBroken checks calls whose connection breaks. They are never sent again.
func TestBroken(t *testing.T) {
	lost := errors.New("connection reset")
	for name, test := range map[string]struct {
		onSend func(b *bench, c call) error
		code   ferrule.Code
		ran    bool
		final  bool
	}{
		"before it is sent": {func(*bench, call) error { return transport.ErrUnsent }, ferrule.Offline, false, false},
		"while it is sent":  {func(*bench, call) error { return lost }, ferrule.Unanswered, true, true},
		"after it was sent": {func(b *bench, _ call) error { b.link.fail(lost); return nil }, ferrule.Unanswered, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, lampOffer(false), func(t *testing.T, b *bench) {
				b.link.is(lamp, "off", "")
				b.link.onSend = func(c call) error { return test.onSend(b, c) }
				if e := b.fails("turn_on", `{}`, test.code, test.ran); e.Final != test.final {
					t.Errorf("final: %t", e.Final)
				}
				b.sends("light.turn_on light.lamp")
			})
		})
	}
	t.Run("after the state came", func(t *testing.T) {
		on(t, lampOffer(false), func(t *testing.T, b *bench) {
			b.link.is(lamp, "off", "")
			b.link.onSend = func(call) error {
				b.link.is(lamp, "on", "")
				synctest.Wait()
				b.link.fail(lost)
				return nil
			}
			if o := b.ok("turn_on", `{}`); !o.confirmed() || !strings.Contains(o.Note, "has not answered") {
				t.Errorf("got %+v", o)
			}
		})
	})
	t.Run("after the answer", func(t *testing.T) {
		on(t, lampOffer(false), func(t *testing.T, b *bench) {
			b.link.is(lamp, "off", "")
			b.link.onSend = func(c call) error {
				b.link.answers(c)
				synctest.Wait()
				b.link.fail(lost)
				return nil
			}
			if o := b.ok("turn_on", `{}`); o.confirmed() || !strings.Contains(o.Note, "connection") {
				t.Errorf("got %+v", o)
			}
		})
	})
}

// TestCancelled: a caller that goes away after the call was sent is told that it may have run.
func TestCancelled(t *testing.T) {
	on(t, lampOffer(false), func(t *testing.T, b *bench) {
		b.link.is(lamp, "off", "")
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		b.link.onSend = func(call) error { time.AfterFunc(time.Second, cancel); return nil }
		_, err := b.session.Invoke(ctx, &ferrule.Call{Device: "device", Tool: "turn_on", Args: json.RawMessage(`{}`)})
		if e := ferrule.AsError(err); e.Code != ferrule.Cancelled || !e.MayHaveRun() || !e.Final {
			t.Errorf("got %v", err)
		}
	})
}

// TestLock checks states on the way, and a lock that jams.
func TestLock(t *testing.T) {
	drive := func(b *bench, states ...string) {
		b.link.onSend = func(c call) error {
			go func() {
				for _, s := range states {
					b.link.is(door, s, "")
					time.Sleep(8 * time.Second)
				}
			}()
			b.link.answers(c)
			return nil
		}
	}
	on(t, doorOffer(), func(t *testing.T, b *bench) {
		b.link.is(door, "unlocked", "")
		drive(b, "locking", "locked")
		start := time.Now()
		o := b.ok("lock", `{}`)
		if !o.confirmed() || o.Already || o.States["lock"].State != "locked" || time.Since(start) != 8*time.Second {
			t.Errorf("after %v: %+v", time.Since(start), o)
		}
		time.Sleep(10 * time.Second)
		drive(b, "unlocking", "jammed")
		if o := b.ok("unlock", `{}`); o.confirmed() || o.Note != "the device gave up: jammed" || o.States["lock"].State != "jammed" {
			t.Errorf("got %+v", o)
		}
		time.Sleep(10 * time.Second)
		drive(b, "locking") // it was jammed before: that is not the outcome
		if o := b.ok("lock", `{}`); o.confirmed() || !strings.Contains(o.Note, "still locking after 1m0s") {
			t.Errorf("got %+v", o)
		}
	})
}

// TestCover: a cover is confirmed when it rests where it should, whatever context it ends
// under.
func TestCover(t *testing.T) {
	at := func(b *bench, context, state, position string) {
		b.link.isUnder(context, hall, state, `{"current_position":`+position+`}`)
	}
	on(t, hallOffer(), func(t *testing.T, b *bench) {
		at(b, "", "open", "10")
		b.link.onSend = func(c call) error {
			b.link.answers(c)
			go func() {
				for _, position := range []string{"10", "40", "70", "95"} {
					at(b, "ours", "opening", position)
					time.Sleep(6 * time.Second)
				}
				at(b, "theirs", "open", "100")
			}()
			return nil
		}
		start := time.Now()
		if o := b.ok("open_cover", `{}`); !o.confirmed() || o.Already || time.Since(start) != 24*time.Second {
			t.Errorf("after %v: %+v", time.Since(start), o)
		}
		b.link.onSend = func(c call) error { b.link.answers(c); return nil }
		if o := b.ok("open_cover", `{}`); !o.confirmed() || !o.Already {
			t.Errorf("got %+v", o)
		}
		time.Sleep(time.Minute)
	})
}

// TestStuckCover stops short without a state on its way.
func TestStuckCover(t *testing.T) {
	on(t, hallOffer(), func(t *testing.T, b *bench) {
		b.link.is(hall, "closed", `{"current_position":0}`)
		b.link.onSend = func(c call) error {
			b.link.answers(c)
			time.AfterFunc(4*time.Second, func() { b.link.is(hall, "open", `{"current_position":20}`) })
			time.AfterFunc(8*time.Second, func() { b.link.is(hall, "open", `{"current_position":40}`) })
			return nil
		}
		start := time.Now()
		o := b.ok("set_cover_position", `{"position":80}`)
		if o.confirmed() || !strings.Contains(o.Note, "current_position 80") || time.Since(start) != 13*time.Second {
			t.Errorf("after %v: %+v", time.Since(start), o)
		}
	})
}

// TestYield: a call that only watches ends when another one waits.
func TestYield(t *testing.T) {
	on(t, hallOffer(), func(t *testing.T, b *bench) {
		b.link.is(hall, "closed", `{"current_position":0}`)
		b.link.onSend = func(c call) error {
			b.link.answers(c)
			b.link.is(hall, "opening", `{"current_position":0}`)
			time.AfterFunc(7*time.Second, func() { b.session.Yield(true) })
			return nil
		}
		start := time.Now()
		o := b.ok("open_cover", `{}`)
		if o.confirmed() || !strings.Contains(o.Note, "still opening when another call came") || time.Since(start) != 7*time.Second {
			t.Errorf("after %v: %+v", time.Since(start), o)
		}
	})
}

// TestStop: a cover that is told to stop and goes on does not get a minute for that.
func TestStop(t *testing.T) {
	on(t, hallOffer(), func(t *testing.T, b *bench) {
		b.link.is(hall, "opening", `{"current_position":0}`)
		b.link.onSend = func(c call) error { b.link.answers(c); return nil }
		start := time.Now()
		if o := b.ok("stop_cover", `{}`); o.confirmed() || !strings.Contains(o.Note, "still missing: rest") || time.Since(start) != 5*time.Second {
			t.Errorf("after %v: %+v", time.Since(start), o)
		}
		b.link.onSend = func(c call) error { b.link.is(hall, "open", `{"current_position":30}`); b.link.answers(c); return nil }
		if o := b.ok("stop_cover", `{}`); !o.confirmed() || o.Already {
			t.Errorf("got %+v", o)
		}
		b.link.onSend = func(c call) error { b.link.answers(c); return nil }
		if o := b.ok("stop_cover", `{}`); !o.confirmed() || !o.Already {
			t.Errorf("got %+v", o)
		}
	})
}
