package main

import (
	"bufio"
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// How long calls may take: to boards that behave, and to those that
// never answer.
const (
	ample = wait.Ample
	short = 2 * time.Second
)

// TestMisbehaviors has the gateway meet every way in which a simulated board
// misbehaves, over TCP, and checks what comes of it: the device is admitted or
// its reason is told, each call has an outcome that is true, and the board next
// to it is not disturbed.
func TestMisbehaviors(t *testing.T) {
	const ok = ferrule.Code("")
	both := func(codes ...ferrule.Code) reception { return reception{write: codes, read: codes} }
	fine := both(ok)
	fineAnd := func(more func(t *testing.T, g *testGateway)) reception {
		return reception{write: fine.write, read: fine.read, more: more}
	}
	mute := func(codes ...ferrule.Code) reception { return reception{mute: true, write: codes, read: codes} }
	cases := map[string]reception{
		"boot-noise": fine, "glued": fine, "chatter": fine, "pieces": fine, "wrong-id": fine, "twice": fine,
		"slow-line": fine, "int16": fine, "flood": fine, "short-list-once": fine, "cut-list": fine,
		"shrinking": fine, "changing": fine, // these two have a test of their own

		// Reads are repeated.
		"fragments":       {write: []ferrule.Code{ok, ferrule.Unanswered}, read: []ferrule.Code{ok}},
		"invalid-request": {write: []ferrule.Code{ok, ferrule.Unanswered}, read: []ferrule.Code{ok}},
		"missing-method":  both(ok, ferrule.Refused),
		"small-buffer":    both(ferrule.Unanswered),
		"library":         fine,
		"fifo": fineAnd(func(t *testing.T, g *testGateway) { // 120 bytes are whole, and a longer request runs not at all
			g.wants("pulse", `{"token":"`+strings.Repeat("x", 50)+`"}`, ok, `"runs":1`)
			g.wants("pulse", `{"token":"`+strings.Repeat("y", 100)+`"}`, ferrule.Unanswered, "could not parse a request")
			g.wants("pulse", `{"token":"short"}`, ok, `"runs":1`)
			g.wants("pulse", `{"token":"short"}`, ok, `"runs":2`)
		}),
		"late":      mute(ferrule.Unanswered),
		"silent":    mute(ferrule.Unanswered),
		"half-open": mute(ok, ferrule.Unanswered),
		// Offline, if the call comes before the board is seen to be gone.
		"hang-up": {write: []ferrule.Code{ok, ferrule.Unanswered, ferrule.Offline}, read: []ferrule.Code{ok, ferrule.Offline}},
		"reboot":  {write: []ferrule.Code{ok, ferrule.Unanswered, ferrule.Offline}, read: []ferrule.Code{ok, ferrule.Offline}},

		"failing":      both(ferrule.Failed),
		"huge-answer":  both(ferrule.Unanswered),
		"endless-line": mute(ferrule.Unanswered),
		"deaf":         {offline: "no answer to get_info"},
		"byte-reads":   {offline: "the board could not parse the request"},
		"not-mcpu":     {offline: "the device closed the connection"},
		"short-list":   {write: []ferrule.Code{ferrule.NotFound}, read: []ferrule.Code{ferrule.Invalid}, note: "the tool list was incomplete in 3 tries"},
		"bad-tools":    fine, // testdata/script/quarantine.txtar has more

		// TestHostile has more.
		"hostile": {write: fine.write, read: fine.read, note: "the tool list was incomplete in 3 tries"},

		"no-schema": fineAnd(func(t *testing.T, g *testGateway) {
			g.wants("gpio_write", `{"pin":258,"value":1}`, ferrule.Invalid, "")
			g.wants("pulse", `{"token":"`+strings.Repeat("x", 300)+`"}`, ferrule.Invalid, "limit for robot is 255")
			g.wants("adc_read", `{"pin":34}`, ok, `"mv":`)
			g.wants("get_pin_buffer", `{"pin":34}`, ok, `"values":`)
			g.wants("get_pin_buffer", `{"pin":35}`, ferrule.Refused, "no buffer")
		}),
		"conservative": fineAnd(func(t *testing.T, g *testGateway) {
			g.wants("pulse", `{"token":"`+strings.Repeat("x", 300)+`"}`, ferrule.Invalid, "limit for robot is 255")
			if got := g.wants("adc_read", `{"pin":34}`, ok, `"value":`); strings.Contains(got, "mv") || strings.Contains(got, "volts") {
				t.Errorf("it has a voltage: %s", got)
			}
		}),
		"string-pin": fineAnd(func(t *testing.T, g *testGateway) {
			g.wants("get_pin_buffer", `{"pin":35}`, ok, `"values":`)
		}),
		"v1.0": fineAnd(func(t *testing.T, g *testGateway) {
			_, m, _ := g.Fleet.Lookup("robot")
			if m.Tool("i2c_scan").Effect != ferrule.Reads {
				t.Error("i2c_scan does not read")
			}
			if m.Tool("get_pin_buffer") != nil {
				t.Error("it has samples")
			}
			g.wants("i2c_scan", `{}`, ok, `"devices":[72]`)
			g.wants("i2c_write_reg", `{"address":72,"reg":255,"value":7}`, ok, `"value":7`)
			g.wants("i2c_read_reg", `{"address":72,"reg":255,"length":2}`, ok, `"hex":"0700"`)
			g.wants("i2c_read_reg", `{"address":9,"reg":0,"length":1}`, ferrule.Failed, "I2C error 2")
			g.wants("pulse", `{"token":"`+strings.Repeat("x", 2000)+`"}`, ok, `"runs":1`)
		}),
		"no-buffer": fineAnd(func(t *testing.T, g *testGateway) {
			g.wants("get_pin_buffer", `{"pin":35}`, ferrule.Refused, "Pool exhausted")
		}),
		"long-list": fineAnd(func(t *testing.T, g *testGateway) {
			if _, m, _ := g.Fleet.Lookup("robot"); len(m.Tools) != 32 || len(m.Pins) != 16 {
				t.Errorf("it has %d tools and %d pins", len(m.Tools), len(m.Pins))
			}
			g.wants("routine_24", `{}`, ok, `{}`)
		}),
		"bare-tools": fineAnd(func(t *testing.T, g *testGateway) {
			g.wants("set_servo", `{"angle":90}`, ok, `"angle":90`)
			g.wants("set_servo", `{"angle":"up"}`, ferrule.Refused, "angle must be an integer, got a string")
		}),
		"gone-tools": fineAnd(func(t *testing.T, g *testGateway) {
			g.wants("i2c_scan", `{}`, ferrule.Refused, "Method not found")
		}),
		"saturated": fineAnd(func(t *testing.T, g *testGateway) {
			g.wants("get_pin_summary", `{"pin":35}`, ok, `"samples":65535`)
		}),
		"polled-buffer": fineAnd(func(t *testing.T, g *testGateway) {
			g.wants("read_climate", `{}`, ok, `"type":"buffer"`)
		}),
	}
	if n := len(sim.Behaviors()); n != len(cases) {
		t.Errorf("boards misbehave in %d ways, and here are %d", n, len(cases))
	}
	// They mostly wait, so there are more at a time than processors, and those that wait
	// longest come first. The flood takes all the time it can get, so it comes last and
	// alone.
	var wg sync.WaitGroup
	defer t.Run("flood", func(t *testing.T) { cases["flood"].judge(t, "flood") })
	defer wg.Wait()
	room := make(chan struct{}, 6)
	behaviors := slices.SortedStableFunc(slices.Values(sim.Behaviors()), func(a, b sim.Behavior) int {
		return cmp.Compare(cases[b.Name].wait(), cases[a.Name].wait())
	})
	for _, behavior := range behaviors {
		want, known := cases[behavior.Name]
		if !known {
			t.Errorf("nothing is said here about boards that are %s", behavior.Name)
			continue
		}
		if behavior.Name == "flood" {
			continue
		}
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			t.Run(behavior.Name, func(t *testing.T) { want.judge(t, behavior.Name) })
		})
	}
}

// reception is the expected outcome for a board that misbehaves.
type reception struct {
	offline string         // reason if it is not admitted
	mute    bool           // short deadlines, because no answer will come
	write   []ferrule.Code // the outcomes of gpio_write
	read    []ferrule.Code // and of gpio_read
	note    string         // in the device's notes
	more    func(t *testing.T, g *testGateway)
}

// wait returns how long each call waits for an answer that does not come.
func (want reception) wait() time.Duration {
	if want.mute {
		return short
	}
	return 0
}

// judge runs a gateway with a board that misbehaves, and a good one.
func (want reception) judge(t *testing.T, behavior string) {
	boards := startSim(t, sim.Config{Misbehave: behavior})
	good := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0], "good": good.Addrs()[0]}, unmeasured)
	g.online("good")
	switch {
	case want.offline != "":
		wait.For(t, "robot is offline because "+want.offline, func() bool {
			return strings.Contains(g.device("robot").Reason, want.offline)
		})
	case want.mute:
		meet(t, g, short, want.write, want.read)
	default:
		meet(t, g, ample, want.write, want.read)
	}
	if notes := fmt.Sprint(g.device("robot").Notes); want.note == "" && notes != "[]" || !strings.Contains(notes, want.note) {
		t.Errorf("the notes are %s, want %q", notes, want.note)
	}
	if want.more != nil {
		g.online("robot")
		want.more(t, g)
	}
	start := time.Now()
	if _, err := g.call("good", "gpio_write", `{"pin":2,"value":true}`, ample); err != nil {
		t.Errorf("the board next to it: %v after %v", err, time.Since(start))
	}
}

// meet writes and reads the LED a few times. Each outcome must be allowed, and each
// allowed one must occur, except Offline, which depends on timing. Boards that do not
// answer are not called again once each outcome has occurred.
func meet(t *testing.T, g *testGateway, timeout time.Duration, write, read []ferrule.Code) {
	t.Helper()
	wrote, was := make(map[ferrule.Code]bool), make(map[ferrule.Code]bool)
	missing := func() (all []string) {
		for _, code := range write {
			if !wrote[code] && code != ferrule.Offline {
				all = append(all, fmt.Sprintf("gpio_write never ended in %q", code))
			}
		}
		for _, code := range read {
			if !was[code] && code != ferrule.Offline {
				all = append(all, fmt.Sprintf("gpio_read never ended in %q", code))
			}
		}
		return all
	}
	for i := 0; i < 4 && (i < 2 || timeout != short || len(missing()) > 0); i++ {
		g.online("robot")
		value := i%2 == 0
		got, err := g.call("robot", "gpio_write", fmt.Sprintf(`{"pin":2,"value":%t}`, value), timeout)
		wrote[check(t, "gpio_write", fmt.Sprintf(`"value":%t`, value), got, err, write)] = true
		g.online("robot")
		got, err = g.call("robot", "gpio_read", `{"pin":2}`, timeout)
		was[check(t, "gpio_read", `"name":"led"`, got, err, read)] = true
	}
	for _, what := range missing() {
		t.Error(what)
	}
}

// check returns the code of a call, which must be one of these.
func check(t testing.TB, tool, part, got string, err error, codes []ferrule.Code) ferrule.Code {
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
	return code
}

// wants calls a tool of robot and checks its code, and a part of its result or error.
func (g *testGateway) wants(tool, args string, code ferrule.Code, part string) string {
	g.t.Helper()
	got, err := g.call("robot", tool, args, ample)
	check(g.t, tool, part, got, err, []ferrule.Code{code})
	if err != nil && !strings.Contains(err.Error(), part) {
		g.t.Errorf("%s: %v, want %q", tool, err, part)
	}
	return got
}

// TestChangingFirmware checks that a board that comes back with another Kind is noticed,
// and that a shorter tool list is noted.
func TestChangingFirmware(t *testing.T) {
	for _, test := range []struct{ behavior, note string }{
		{"changing", ""},
		{"shrinking", "the list shrank from 12 tools and 5 pins to 11 and 5"},
	} {
		boards := startSim(t, sim.Config{Misbehave: test.behavior})
		link := newCutter(t, boards.Addrs()[0])
		g := startGateway(t, map[string]string{"robot": link.Addr().String()})
		g.online("robot")
		before := g.device("robot").Kind
		link.cut(false)
		wait.For(t, "robot is another Kind", func() bool {
			dev := g.device("robot")
			return dev.State == ferrule.StateOnline && dev.Says() != before
		})
		dev := g.device("robot")
		if dev.Previous != before || dev.Changed.IsZero() || (test.note == "") != (dev.Waiting > 0) || !strings.Contains(fmt.Sprint(dev.Notes), test.note) {
			t.Errorf("got %+v", dev)
		}
	}
}

// TestOccupiedBoard checks a board that another program uses: it accepts connections of the
// gateway and reads nothing from them. No call runs meanwhile, and afterwards each runs once.
func TestOccupiedBoard(t *testing.T) {
	boards := startSim(t, sim.Config{})
	other, err := net.Dial("tcp", boards.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	fmt.Fprintln(other, `{"jsonrpc":"2.0","id":1,"method":"get_info"}`)
	if _, err := bufio.NewReader(other).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, unmeasured)
	wait.For(t, "robot does not answer", func() bool {
		return strings.Contains(g.device("robot").Reason, "no answer to get_info")
	})
	if _, err := g.call("robot", "pulse", `{"token":"a"}`, short); err == nil || ferrule.AsError(err).MayHaveRun() {
		t.Errorf("a call meanwhile: %v", err)
	}
	other.Close()
	g.online("robot")
	for n := 1; n <= 3; n++ {
		g.wants("pulse", `{"token":"a"}`, "", fmt.Sprintf(`"runs":%d`, n))
	}
}

// TestOutputsReset checks a board that sets its outputs low at each connection, as firmware
// does: the gateway reports that, and does not write again by itself.
func TestOutputsReset(t *testing.T) {
	boards := startSim(t, sim.Config{})
	link := newCutter(t, boards.Addrs()[0])
	g := startGateway(t, map[string]string{"robot": link.Addr().String()}, unmeasured)
	g.online("robot")
	g.wants("gpio_write", `{"pin":2,"value":true}`, "", `"value":true`)
	link.cut(false)
	wait.For(t, "the LED is off", func() bool { return boards.Boards[0].Level(sim.PinLED) == 0 })
	g.online("robot")
	g.wants("gpio_read", `{"pin":2}`, "", `"value":false`)
	if boards.Boards[0].Level(sim.PinLED) != 0 {
		t.Error("the LED was switched on again")
	}
}

// TestSilentActuator checks the error for a board that acted and did not answer: it may
// have run.
func TestSilentActuator(t *testing.T) {
	boards := startSim(t, sim.Config{Misbehave: "silent"})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, unmeasured)
	g.online("robot")
	_, err := g.call("robot", "gpio_write", `{"pin":2,"value":true}`, 2*time.Second)
	if e := ferrule.AsError(err); e.Code != ferrule.Unanswered || !e.MayHaveRun() || boards.Boards[0].Level(sim.PinLED) != 1 {
		t.Errorf("got %v, and the LED is at %d", err, boards.Boards[0].Level(sim.PinLED))
	}
}
