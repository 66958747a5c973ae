package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/sim"
)

// TestMisbehaviours has the gateway meet every way in which a simulated board
// misbehaves, over TCP, and checks what comes of it: the device is admitted or
// its reason is told, each call has an outcome that is true, and the board next
// to it is not disturbed.
func TestMisbehaviours(t *testing.T) {
	const ok = ferrule.Code("")
	type want struct {
		offline string         // why it is not admitted; empty if it is
		patient bool           // calls are given more than a second
		write   []ferrule.Code // the outcomes that gpio_write may have
		read    []ferrule.Code // and gpio_read
		note    string         // in the device's notes
		more    func(t *testing.T, g *testGateway)
	}
	both := func(codes ...ferrule.Code) want { return want{write: codes, read: codes} }
	fine := both(ok)
	cases := map[string]want{
		"boot-noise": fine, "glued": fine, "chatter": fine, "pieces": fine, "wrong-id": fine, "twice": fine,
		"slow-line": fine, "int16": fine, "flood": fine, "short-list-once": fine, "cut-list": fine,
		"shrinking": fine, "changing": fine, // these two have a test of their own

		"fragments":    {write: []ferrule.Code{ok, ferrule.Unanswered}, read: []ferrule.Code{ok}},
		"small-buffer": both(ferrule.Unanswered),
		"late":         both(ferrule.Unanswered),
		"silent":       both(ferrule.Unanswered),
		// Offline, if the call comes before the board is seen to be gone.
		"hang-up": {patient: true, write: []ferrule.Code{ok, ferrule.Unanswered, ferrule.Offline}, read: []ferrule.Code{ok, ferrule.Offline}},
		"reboot":  {patient: true, write: []ferrule.Code{ok, ferrule.Unanswered, ferrule.Offline}, read: []ferrule.Code{ok, ferrule.Offline}},

		"failing":      both(ferrule.Failed),
		"huge-answer":  both(ferrule.Unanswered),
		"endless-line": both(ferrule.Unanswered),
		"deaf":         {offline: "no answer to get_info"},
		"not-mcpu":     {offline: "the device closed the connection"},
		"short-list":   {write: []ferrule.Code{ferrule.NotFound}, read: []ferrule.Code{ferrule.Invalid}, note: "its list came incomplete 3 times"},
		"bad-tools":    fine, // testdata/script/quarantine.txtar has more

		"no-schema": {write: []ferrule.Code{ok}, read: []ferrule.Code{ok}, more: func(t *testing.T, g *testGateway) {
			if _, err := g.call("robot", "gpio_write", `{"pin":258,"value":1}`, 0); ferrule.AsError(err).Code != ferrule.Invalid {
				t.Errorf("got %v", err)
			}
			if _, err := g.call("robot", "pulse", `{"token":"`+strings.Repeat("x", 300)+`"}`, 0); err == nil || !strings.Contains(err.Error(), "robot reads 255") {
				t.Errorf("got %v", err)
			}
		}},
		"string-pin": {write: []ferrule.Code{ok}, read: []ferrule.Code{ok}, more: func(t *testing.T, g *testGateway) {
			if _, err := g.call("robot", "get_pin_buffer", `{"pin":35}`, 0); err != nil {
				t.Errorf("got %v", err)
			}
		}},
		"v1.0": {write: []ferrule.Code{ok}, read: []ferrule.Code{ok}, more: func(t *testing.T, g *testGateway) {
			if _, m, _ := g.fleet.Lookup("robot"); m.Tool("i2c_scan").Effect != ferrule.Reads {
				t.Error("i2c_scan does not read")
			}
		}},
		"no-buffer": {write: []ferrule.Code{ok}, read: []ferrule.Code{ok}, more: func(t *testing.T, g *testGateway) {
			if _, err := g.call("robot", "get_pin_buffer", `{"pin":35}`, 0); ferrule.AsError(err).Code != ferrule.Refused {
				t.Errorf("got %v", err)
			}
		}},
	}
	for _, behaviour := range sim.Behaviours() {
		want, known := cases[behaviour.Name]
		if !known {
			t.Errorf("nothing is said here about boards that are %s", behaviour.Name)
			continue
		}
		t.Run(behaviour.Name, func(t *testing.T) {
			t.Parallel()
			boards := startSim(t, sim.Config{Misbehave: behaviour.Name})
			good := startSim(t, sim.Config{})
			g := startGateway(t, map[string]string{"robot": boards.Addrs()[0], "good": good.Addrs()[0]})
			g.online("good")
			if want.offline != "" {
				eventually(t, 30*time.Second, "robot is offline because "+want.offline, func() bool {
					return strings.Contains(g.device("robot").Reason, want.offline)
				})
			} else {
				timeout := time.Second
				if want.patient {
					timeout = 10 * time.Second
				}
				meet(t, g, timeout, want.write, want.read)
			}
			if notes := fmt.Sprint(g.device("robot").Notes); want.note == "" && notes != "[]" || !strings.Contains(notes, want.note) {
				t.Errorf("the notes are %s, want %q", notes, want.note)
			}
			if want.more != nil {
				g.online("robot")
				want.more(t, g)
			}
			start := time.Now()
			if _, err := g.call("good", "gpio_write", `{"pin":2,"value":true}`, 5*time.Second); err != nil {
				t.Errorf("the board next to it: %v after %v", err, time.Since(start))
			}
		})
	}
}

// meet writes and reads the LED a few times, and checks each outcome.
func meet(t *testing.T, g *testGateway, timeout time.Duration, write, read []ferrule.Code) {
	t.Helper()
	for i := range 4 {
		g.online("robot")
		value := i%2 == 0
		got, err := g.call("robot", "gpio_write", fmt.Sprintf(`{"pin":2,"value":%t}`, value), timeout)
		check(t, "gpio_write", fmt.Sprintf(`"value":%t`, value), got, err, write)
		g.online("robot")
		got, err = g.call("robot", "gpio_read", `{"pin":2}`, timeout)
		check(t, "gpio_read", `"name":"led"`, got, err, read)
	}
}

func check(t *testing.T, tool, part, got string, err error, codes []ferrule.Code) {
	t.Helper()
	var code ferrule.Code
	if err != nil {
		code = ferrule.AsError(err).Code
	}
	if !slices.Contains(codes, code) {
		t.Errorf("%s: %v, want one of %q", tool, err, codes)
	}
	if err == nil && !strings.Contains(got, part) {
		t.Errorf("%s returned %s", tool, got)
	}
}

// TestChangingFirmware: a board that comes back as another Kind is noticed, and
// one whose list has shrunk is noted.
func TestChangingFirmware(t *testing.T) {
	for _, test := range []struct{ behaviour, note string }{
		{"changing", ""},
		{"shrinking", "its list has shrunk from 12 tools and 5 pins to 11 and 5"},
	} {
		boards := startSim(t, sim.Config{Misbehave: test.behaviour})
		wire := newCutter(t, boards.Addrs()[0])
		g := startGateway(t, map[string]string{"robot": wire.Addr().String()})
		g.online("robot")
		before := g.device("robot").Kind
		wire.cut(false)
		eventually(t, 10*time.Second, "robot is another Kind", func() bool {
			dev := g.device("robot")
			return dev.State == ferrule.StateOnline && dev.Kind != before
		})
		dev := g.device("robot")
		if dev.Previous != before || dev.Changed.IsZero() || !strings.Contains(fmt.Sprint(dev.Notes), test.note) {
			t.Errorf("got %+v", dev)
		}
	}
}

// TestAnActuatorThatWasSilent: a board did what it was told and did not say so;
// the error says that it may have.
func TestAnActuatorThatWasSilent(t *testing.T) {
	boards := startSim(t, sim.Config{Misbehave: "silent"})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]})
	g.online("robot")
	_, err := g.call("robot", "gpio_write", `{"pin":2,"value":true}`, 300*time.Millisecond)
	if e := ferrule.AsError(err); e.Code != ferrule.Unanswered || !e.MayHaveRun() || boards.Boards[0].Level(sim.PinLED) != 1 {
		t.Errorf("got %v, and the LED is at %d", err, boards.Boards[0].Level(sim.PinLED))
	}
}
