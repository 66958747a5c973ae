package homeassistant

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/api"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
)

// homeOf returns the session of a home with entities, and a function that changes the state of
// one.
func homeOf(t *testing.T, states map[string]string) (s *homeSession, is func(id, state, attributes string)) {
	t.Helper()
	hub := NewHub(HubConfig{Home: "home"}, nil, slog.New(slog.NewTextHandler(io.Discard, nil)))
	hub.inventory.Places = make(map[string]home.Place)
	is = func(id, state, attributes string) {
		hub.mu.Lock()
		defer hub.mu.Unlock()
		data := fmt.Sprintf(`{"a":{%q:{"s":%q,"a":%s,"lc":1743500000}}}`, id, state, attributes)
		if _, err := hub.states.Apply(json.RawMessage(data)); err != nil {
			t.Error(err)
		}
	}
	for id, state := range states {
		hub.inventory.Places[id] = home.Place{}
		is(id, state, `{}`)
	}
	return &homeSession{hub: hub, conn: &api.Conn{}}, is
}

// TestPerformed: a service that the home itself performs is judged as that of a device is.
func TestPerformed(t *testing.T) {
	const lamp2 = "light.second"
	type change struct {
		after          time.Duration
		id, state, now string // now has the attributes
	}
	for name, test := range map[string]struct {
		order   order
		before  string // of the first entity
		changes []change
		crowded time.Duration // when others begin to wait; never if it is zero
		want    bool
		already bool
		note    string
		takes   time.Duration
	}{
		"a slow cover": {
			order: order{domain: "cover", service: "close_cover", entities: []string{hall}}, before: "open",
			changes: []change{{time.Second, hall, "closing", ""}, {21 * time.Second, hall, "closed", ""}}, want: true, takes: 21 * time.Second,
		},
		"a cover that never arrives": {
			order: order{domain: "cover", service: "close_cover", entities: []string{hall}}, before: "open",
			changes: []change{{time.Second, hall, "closing", ""}}, note: "it was still closing after 1m0s; call find_entities for the end", takes: time.Minute,
		},
		"a slow cover while others wait": {
			order: order{domain: "cover", service: "close_cover", entities: []string{hall}}, before: "open",
			changes: []change{{time.Second, hall, "closing", ""}}, crowded: 3 * time.Second, note: "it was still closing when another call came", takes: 3 * time.Second,
		},
		"a lock that jams": {
			order: order{domain: "lock", service: "lock", entities: []string{door}}, before: "unlocked",
			changes: []change{{time.Second, door, "locking", ""}, {9 * time.Second, door, "jammed", ""}}, note: "the device gave up: jammed", takes: 9 * time.Second,
		},
		"an argument that no state shows": {
			order: order{domain: "light", service: "turn_on", entities: []string{lamp}, data: map[string]any{"shine": 7}}, before: "off",
			changes: []change{{0, lamp, "on", ""}}, note: "no state shows shine",
		},
		"already so": {
			order: order{domain: "light", service: "turn_on", entities: []string{lamp}}, before: "on", want: true, already: true,
		},
		"one of two": {
			order: order{domain: "light", service: "turn_on", entities: []string{lamp, lamp2}}, before: "off",
			changes: []change{{0, lamp, "on", ""}}, note: lamp2 + ": no new state within 5s; still missing: state on", takes: 5 * time.Second,
		},
		"one that is assumed, and a slow one": {
			order: order{domain: "light", service: "turn_on", entities: []string{lamp, lamp2}}, before: "off",
			changes: []change{{0, lamp, "on", `{"assumed_state":true}`}, {2 * time.Second, lamp2, "on", ""}}, note: lamp + ": Home Assistant assumes this state", takes: 2 * time.Second,
		},
		"no entity": {order: order{domain: "persistent_notification", service: "create"}, note: noteUnseen},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				states := map[string]string{lamp2: "off"}
				for _, id := range test.order.entities[:min(1, len(test.order.entities))] {
					states[id] = test.before
				}
				s, is := homeOf(t, states)
				waits, err := s.expect(test.order)
				if err != nil {
					t.Fatal(err)
				}
				for _, w := range waits {
					w.result, w.answered = &result{}, time.Now()
				}
				for _, c := range test.changes {
					if c.now == "" {
						c.now = `{}`
					}
					if c.after == 0 {
						is(c.id, c.state, c.now)
					} else {
						time.AfterFunc(c.after, func() { is(c.id, c.state, c.now) })
					}
				}
				if test.crowded > 0 {
					time.AfterFunc(test.crowded, func() { s.Yield(true) })
				}
				began := time.Now()
				var out outcome
				s.judge(&out, waits, s.settle(context.Background(), waits))
				if *out.Confirmed != test.want || out.Already != test.already || !strings.Contains(out.Note, test.note) || test.note == "" && out.Note != "" {
					t.Errorf("confirmed %v, already %v, note %q", *out.Confirmed, out.Already, out.Note)
				}
				if took := time.Since(began); took < test.takes || took > test.takes+2*lookPause {
					t.Errorf("took %v, want %v", took, test.takes)
				}
			})
		})
	}
}

// TestShownResponse: the service ran, so a response that is too long does not make it fail.
func TestShownResponse(t *testing.T) {
	for response, want := range map[string]string{
		`null`:                              ``,
		`{"a":1,"access_token":"x"}`:        `{"a":1}`,
		strings.Repeat(" ", maxResponse+1):  `"not shown: the response has 1048577 bytes; the limit is 1048576"`,
		`{"url":"/api/image?authSig=abcd"}`: `{"url":"(hidden)"}`,
		`{"slots":[{"name":"Anna","code":"1234"},{"Password":"x"}]}`: `{"slots":[{"name":"Anna"},{}]}`,
	} {
		if got := shownResponse(json.RawMessage(response)); string(got) != want {
			t.Errorf("%.40s: got %s", response, got)
		}
	}
}
