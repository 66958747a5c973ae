package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// onSerial configures a board on a serial port.
func onSerial(name string, board *uno.Board, baud int) func(*config.Config) {
	return func(c *config.Config) {
		c.Devices.Serial = append(c.Devices.Serial, config.SerialDevice{Name: name, Port: board.Path(), Baud: baud})
	}
}

// must makes a call that must succeed, and returns a member of its result.
func (g *testGateway) must(device, tool, args, member string) any {
	g.t.Helper()
	got, err := g.call(device, tool, args, ample)
	if err != nil {
		g.t.Fatalf("%s %s: %v", tool, args, err)
	}
	var result map[string]any
	if err := json.Unmarshal([]byte(got), &result); err != nil {
		g.t.Fatalf("%s returned %s", tool, got)
	}
	return result[member]
}

// TestUno has the gateway use an emulated microcontroller over a serial port with
// true bit timing, and looks at its pins.
func TestUno(t *testing.T) {
	board := uno.Start(t, uno.Options{Strict: true, Link: filepath.Join(t.TempDir(), "uno")})
	g := startGateway(t, nil, onSerial("uno", board, 0))
	g.online("uno")
	if dev := g.device("uno"); dev.Model != "rig-uno" || dev.Restarted.IsZero() || dev.Transport != "serial" {
		t.Errorf("got %+v", dev)
	}

	// A thousand calls and their effect on the chip.
	start := time.Now()
	for i := range 250 {
		on, duty, millivolts := i%2 == 0, i%256, 20*i
		g.must("uno", "gpio_write", fmt.Sprintf(`{"pin":13,"value":%t}`, on), "value")
		if board.Pin("B5") != on {
			t.Fatalf("call %d: the LED is not %t", i, on)
		}
		g.must("uno", "pwm_write", fmt.Sprintf(`{"pin":9,"duty":%d}`, duty), "duty")
		if got := board.PWM(); got != duty {
			t.Fatalf("call %d: the duty is %d, want %d", i, got, duty)
		}
		board.ADC(0, millivolts)
		want := float64(millivolts * 1023 / 5000)
		if got := g.must("uno", "adc_read", `{"pin":14}`, "value"); got.(float64) < want-1 || got.(float64) > want+1 {
			t.Fatalf("call %d: %v was measured at %d mV, want %v", i, got, millivolts, want)
		}
		if got := g.must("uno", "gpio_read", `{"pin":13}`, "value"); got != on {
			t.Fatalf("call %d: the LED reads %v", i, got)
		}
	}
	t.Logf("1000 calls in %v", time.Since(start).Round(time.Millisecond))

	// The watchdog resets the board: its outputs are low, and it can be used again.
	g.must("uno", "gpio_write", `{"pin":13,"value":true}`, "value")
	g.must("uno", "reboot", `{}`, "ok")
	board.WaitPin("B5", false)
	wait.For(t, "the board answers after its reset", func() bool {
		_, err := g.call("uno", "uptime", `{}`, short)
		return err == nil
	})
	if n := board.Resets(); n != 1 {
		t.Errorf("there were %d resets", n)
	}

	// The cable is pulled, and put back.
	before := g.device("uno").Restarted
	board.Hangup()
	wait.For(t, "the board is offline", func() bool { return g.device("uno").State == ferrule.StateOffline })
	if _, err := g.call("uno", "gpio_read", `{"pin":13}`, short); ferrule.AsError(err).Code != ferrule.Offline {
		t.Errorf("got %v", err)
	}
	board.Replug()
	g.online("uno")
	if dev := g.device("uno"); !dev.Restarted.After(before) {
		t.Errorf("restarted at %v, and before that at %v", dev.Restarted, before)
	}
	g.must("uno", "gpio_write", `{"pin":13,"value":true}`, "value")
	board.WaitPin("B5", true)
}

// TestUnoInMidCall unplugs and pauses a board in the middle of a call.
func TestUnoInMidCall(t *testing.T) {
	board := uno.Start(t, uno.Options{Link: filepath.Join(t.TempDir(), "uno")})
	g := startGateway(t, nil, onSerial("uno", board, 0), unmeasured)
	g.online("uno")
	begin := func() (ended chan error) {
		g.must("uno", "gpio_read", `{"pin":13}`, "value") // nothing else is on the line then
		board.Pause(time.Minute)
		ended = make(chan error, 1)
		go func() {
			_, err := g.call("uno", "gpio_write", `{"pin":13,"value":true}`, ample)
			ended <- err
		}()
		wait.For(t, "the request waits in the line", func() bool { return board.Waiting() > 0 })
		return ended
	}
	ended := begin()
	board.Hangup()
	if e := ferrule.AsError(<-ended); e.Code != ferrule.Unanswered || !e.MayHaveRun() {
		t.Errorf("got %v", e)
	}
	board.Pause(0)
	board.Replug()
	g.online("uno")
	ended = begin()
	board.Pause(0)
	if err := <-ended; err != nil {
		t.Errorf("got %v", err)
	}
	board.WaitPin("B5", true)
}

// TestUnoSlow checks that a long list arrives at 9600 baud.
func TestUnoSlow(t *testing.T) {
	board := uno.Start(t, uno.Options{Baud: 9600, Large: true, Strict: true})
	g := startGateway(t, nil, onSerial("uno", board, 9600))
	g.online("uno")
	if _, m, _ := g.Fleet.Lookup("uno"); len(m.Tools) != 16 || len(g.device("uno").Notes) > 0 {
		t.Errorf("%d tools, %q", len(m.Tools), g.device("uno").Notes)
	}
	g.must("uno", "gpio_write", `{"pin":13,"value":true}`, "value")
	board.WaitPin("B5", true)
}

// TestUnoWrongBaud checks that a wrong bit rate is reported.
func TestUnoWrongBaud(t *testing.T) {
	board := uno.Start(t, uno.Options{Strict: true})
	g := startGateway(t, nil, onSerial("uno", board, 9600))
	wait.For(t, "the wrong bit rate is reported", func() bool {
		return strings.Contains(g.device("uno").Reason, "at 9600 baud: wrong baud rate?")
	})
}

var pulls = flag.Int("pulls", 40, "how many cables TestUnosPlugged pulls")

// TestUnosPlugged plugs and unplugs ten boards at random while they are called:
// each call has an outcome that agrees with what its board counted, nothing runs
// twice, names stay with their boards, and nothing is left behind.
func TestUnosPlugged(t *testing.T) {
	uno.Start(t, uno.Options{Fast: true}).Close() // warms up the build of the firmware
	goroutines, descriptors := runtime.NumGoroutine(), len(openFiles(t))
	t.Run("run", plugAndCall)
	wait.For(t, fmt.Sprintf("no more than %d goroutines and %d files", goroutines, descriptors), func() bool {
		return runtime.NumGoroutine() <= goroutines && len(openFiles(t)) <= descriptors
	})
}

func plugAndCall(t *testing.T) {
	const count = 10
	dir := t.TempDir()
	boards := make([]*uno.Board, count)
	addresses := make([]string, count)
	var devices []func(*config.Config)
	for i := range boards {
		boards[i] = uno.Start(t, uno.Options{Fast: true, Link: filepath.Join(dir, fmt.Sprint("uno", i))})
		addresses[i] = "serial:" + boards[i].Path()
		name := ""
		if i%2 == 0 {
			name = fmt.Sprint("uno", i) // the others get an ID from their own name
		}
		devices = append(devices, onSerial(name, boards[i], 0))
	}
	g := startGateway(t, nil, devices...)
	ids := make([]string, count)
	for i := range boards {
		wait.For(t, "all are online", func() bool { return g.at(addresses[i]).State == ferrule.StateOnline })
		ids[i] = g.at(addresses[i]).ID
	}

	tallies := make([]tally, count)
	done := make(chan struct{})
	var callers sync.WaitGroup
	for i := range boards {
		callers.Go(func() { tallies[i].call(g, ids[i], done) })
	}
	plugged := slices.Repeat([]bool{true}, count)
	for pull := range *pulls {
		wait.For(t, fmt.Sprintf("cable %d is pulled", pull), func() bool {
			time.Sleep(rand.N(100 * time.Millisecond))
			switch i := rand.IntN(count); {
			case !plugged[i]:
				boards[i].Replug()
				plugged[i] = true
			case g.device(ids[i]).State == ferrule.StateOnline:
				boards[i].Hangup()
				plugged[i] = false
				return true
			}
			return false
		})
	}
	for i, b := range boards {
		if !plugged[i] {
			b.Replug()
		}
		g.online(ids[i])
	}
	close(done)
	callers.Wait()
	unanswered, longest := 0, time.Duration(0)
	for i, b := range boards {
		g.online(ids[i])
		if got := g.at(addresses[i]).ID; got != ids[i] {
			t.Errorf("%s has become %s", ids[i], got)
		}
		tallies[i].judge(t, ids[i], int(g.must(ids[i], "runs", `{}`, "total").(float64)), int(g.must(ids[i], "runs", `{}`, "repeats").(float64)))
		unanswered += tallies[i].codes[ferrule.Unanswered]
		longest = max(longest, tallies[i].longest)
		for _, on := range []bool{true, false} {
			g.must(ids[i], "gpio_write", fmt.Sprintf(`{"pin":13,"value":%t}`, on), "value")
			b.WaitPin("B5", on)
		}
	}
	t.Logf("%d cables were pulled, %d calls went unanswered", *pulls, unanswered)
	if unanswered == 0 {
		t.Error("no cable was pulled during a call")
	}
	figure.AtMost(t, "a call to a board that is plugged and unplugged", longest, 31*time.Second)
}

// at returns the device at an address.
func (g *testGateway) at(address string) ferrule.Device {
	for _, dev := range g.Fleet.Devices() {
		if dev.Address == address {
			return *dev
		}
	}
	return ferrule.Device{}
}

// tally is the outcomes of the calls to one board.
type tally struct {
	codes   map[ferrule.Code]int
	longest time.Duration
	wrong   []string
}

// call calls a board with a new token each time, until done.
func (c *tally) call(g *testGateway, device string, done chan struct{}) {
	c.codes = make(map[ferrule.Code]int)
	for i := 0; ; i++ {
		select {
		case <-done:
			return
		default:
		}
		start := time.Now()
		token := fmt.Sprintf(`"token":"%s %d"`, device, i)
		got, err := g.call(device, "count", "{"+token+"}", ample)
		if err == nil && !strings.Contains(got, token) {
			c.wrong = append(c.wrong, fmt.Sprintf("call %d, with %s, was answered %s", i, token, got))
		}
		var code ferrule.Code
		if err != nil {
			code = ferrule.AsError(err).Code
		}
		c.codes[code]++
		c.longest = max(c.longest, time.Since(start))
		if code != "" && code != ferrule.Offline && code != ferrule.Unanswered {
			c.wrong = append(c.wrong, err.Error())
		}
		time.Sleep(20 * time.Millisecond) // leave the machine some time for other tests
	}
}

// judge compares outcomes with the count of the board.
func (c *tally) judge(t *testing.T, device string, total, repeats int) {
	t.Helper()
	t.Logf("%s counted %d; calls ended in %v", device, total, c.codes)
	if len(c.wrong) > 0 {
		t.Errorf("%s: %d outcomes are wrong, such as %s", device, len(c.wrong), c.wrong[0])
	}
	if repeats > 0 {
		t.Errorf("%s: %d ran twice", device, repeats)
	}
	if total < c.codes[""] || total > c.codes[""]+c.codes[ferrule.Unanswered] {
		t.Errorf("%s: %d ran, outcomes %v", device, total, c.codes)
	}
	if c.codes[""] == 0 {
		t.Errorf("%s: no call succeeded", device)
	}
}
