package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/measure/waits"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// waitLater calls wait_for, and returns its result when it has one.
func (a *testAgent) waitLater(args string) <-chan waited {
	a.t.Helper()
	results := make(chan waited, 1)
	go func() {
		told, err := a.use(a.t.Context(), "gateway__wait_for", args)
		w := waited{at: time.Now(), err: err}
		if err == nil && told.isError {
			w.err = fmt.Errorf("%s: %s", told.code, told.text)
		} else if err == nil {
			w.err = json.Unmarshal([]byte(told.text), &w.Output)
		}
		results <- w
	}()
	return results
}

type waited struct {
	waits.Output
	at  time.Time
	err error
}

// TestWaitUno waits for the light at an emulated Uno, over HTTP and stdio.
func TestWaitUno(t *testing.T) {
	const dark, bright = 1000, 4500 // millivolts
	board := uno.Start(t, uno.Options{})
	overlays := t.TempDir()
	const often = `
match: {device: uno}
polls:
  light:
    tool: get_pin_buffer
    args: {pin: 14, limit: 20}
    every: 250ms
    ring: {interval: 100ms, size: 20}
`
	if err := os.WriteFile(filepath.Join(overlays, "uno.yaml"), []byte(often), 0o600); err != nil {
		t.Fatal(err)
	}
	board.ADC(0, dark)
	g := startGateway(t, nil, onSerial("uno", board, 0), func(c *config.Config) { c.Overlays = overlays })
	g.online("uno")
	latest := func() (l ferrule.Latest) {
		known, err := g.History.Latest(t.Context(), "uno")
		if err == nil && len(known) > 0 {
			l = known[0]
		}
		return l
	}
	var slowest, earliest, slowestMet time.Duration
	agents := []*testAgent{dialAgent(t, g, modern, "/mcp"), dialAgent(t, g, legacy, "/mcp"), pipeAgent(t, g, modern)}
	for _, a := range agents {
		board.ADC(0, dark)
		wait.For(t, "it is dark", func() bool { l := latest(); return !l.Time.IsZero() && l.Value < 300 })
		results := a.waitLater(`{"conditions":[{"device":"uno","signal":"light","above":700}],"deadline":"2m"}`)
		wait.For(t, "the call waits", func() bool { return g.Conditions.Len() == 1 })
		asked := time.Now()
		wait.For(t, "it is measured in the dark", func() bool { return latest().Time.After(asked) })
		if g.Conditions.Len() != 1 {
			t.Fatalf("%s: ended in the dark: %+v", a.name, <-results)
		}
		switched := time.Now()
		board.ADC(0, bright)
		w := <-results
		if w.err != nil || !w.Met || len(w.Hits) != 1 || w.Hits[0].Value == nil || *w.Hits[0].Value <= 700 {
			t.Fatalf("%s: %+v", a.name, w)
		}
		delay := w.at.Sub(w.Hits[0].Time)
		t.Logf("%s: switched, %v later the sample, %v later the result", a.name, w.Hits[0].Time.Sub(switched), delay)
		slowest, earliest = max(slowest, delay), max(earliest, switched.Sub(w.Hits[0].Time))
		if g.Conditions.Len() != 0 {
			t.Errorf("%s: %d conditions are left", a.name, g.Conditions.Len())
		}
		// It is bright already, and has been for a while then.
		begin := time.Now()
		if w = <-a.waitLater(`{"conditions":[{"device":"uno","signal":"light","above":700}]}`); w.err != nil || !w.Met || w.Hits[0].Time.After(w.at) {
			t.Errorf("%s: %+v", a.name, w)
		}
		slowestMet = max(slowestMet, w.at.Sub(begin))
		// The hold begins with the present value, which was measured before the call.
		seen := w.Hits[0].Time
		if w = <-a.waitLater(`{"conditions":[{"device":"un*","signal":"light","above":700,"for":"1s"}]}`); w.err != nil || !w.Met || w.Hits[0].Time.Sub(seen) < time.Second {
			t.Errorf("%s: after %v: %+v", a.name, seen, w)
		}
		if w = <-a.waitLater(`{"conditions":[{"device":"uno","signal":"light","below":300}],"deadline":"1s"}`); w.err != nil || w.Met || len(w.Hits) != 0 || time.Duration(w.Waited) < 900*time.Millisecond {
			t.Errorf("%s: %+v", a.name, w)
		}
		for args, code := range map[string]ferrule.Code{
			`{"conditions":[{"device":"uno","signal":"lihgt","above":1}]}`:     ferrule.NotFound,
			`{"conditions":[{"device":"nothing","signal":"light","above":1}]}`: ferrule.NotFound,
			`{"conditions":[{"device":"no-*","signal":"light","above":1}]}`:    ferrule.NotFound,
			`{"conditions":[{"device":"uno","signal":"light"}]}`:               ferrule.Invalid,
			`{"conditions":[]}`: ferrule.Invalid,
			`{"conditions":[{"device":"uno","event":"gone"}],"deadline":"25h"}`: ferrule.Invalid,
		} {
			if told, err := a.use(t.Context(), "gateway__wait_for", args); err != nil || told.code != code {
				t.Errorf("%s: %s: %+v, %v", a.name, args, told, err)
			}
		}
	}
	figure.AtMost(t, "time from a sample to the result", slowest, time.Second)
	figure.AtMost(t, "time by which a hit is early", earliest, time.Second)
	figure.AtMost(t, "time until a wait for what holds already ends", slowestMet, 2*time.Second)

	// The board is unplugged: an event, and a time in which nothing is seen.
	gone := agents[0].waitLater(`{"conditions":[{"device":"uno","event":"gone"}]}`)
	blind := agents[1].waitLater(`{"conditions":[{"device":"uno","signal":"light","below":300}],"deadline":"4s"}`)
	wait.For(t, "both wait", func() bool { return g.Conditions.Len() == 2 || len(blind) == 1 })
	board.Close()
	w := <-gone
	if w.err != nil || !w.Met || w.Hits[0].Event == nil || w.Hits[0].Event.Type != ferrule.Gone {
		t.Errorf("%+v", w)
	}
	away := w.Hits[0].Time
	if w = <-blind; w.at.Before(away) { // a busy machine was slower than its deadline
		w = <-agents[1].waitLater(`{"conditions":[{"device":"uno","signal":"light","below":300}],"deadline":"1s"}`)
	}
	if w.err != nil || w.Met || len(w.Missed) == 0 || w.Missed[0].Device != "uno" {
		t.Errorf("%+v", w)
	}
}

// lampSignal waits until the poll called lamp has measured, and returns the name of its signal.
func (g *testGateway) lampSignal(device string) (signal string) {
	g.t.Helper()
	wait.For(g.t, "the lamp of "+device+" is measured", func() bool {
		known, err := g.History.Latest(g.t.Context(), device)
		for _, l := range known {
			if strings.HasPrefix(l.Signal, "lamp") {
				signal = l.Signal
			}
		}
		return err == nil && signal != ""
	})
	return signal
}

// TestWaitNodes waits at one node for a board of another: by its ID, which that node evaluates,
// and by a pattern, for which its readings pass here. A state that must hold is proven by time.
func TestWaitNodes(t *testing.T) {
	servers := natscluster.Start(t, natscluster.Options{Size: 1})
	overlays := t.TempDir()
	const often = `
match: {device: robot}
tools:
  gpio_read: {effect: reads}
polls:
  lamp:
    tool: gpio_read
    args: {pin: 2}
    every: 200ms
`
	if err := os.WriteFile(filepath.Join(overlays, "robot.yaml"), []byte(often), 0o600); err != nil {
		t.Fatal(err)
	}
	join := func(name string) func(c *config.Config) {
		return func(c *config.Config) {
			joins(c, name, servers)
			c.Overlays, c.Listen = overlays, "127.0.0.1:0"
		}
	}
	a := startGateway(t, nil, join("a"))
	b := startGateway(t, map[string]string{"robot": startSim(t, sim.Config{}).Addrs()[0]}, join("b"))
	b.online("robot")
	a.online("robot")
	lamp := b.lampSignal("robot")
	set := func(on bool) {
		if _, err := b.call("robot", "gpio_write", fmt.Sprintf(`{"pin":2,"value":%v}`, on), ample); err != nil {
			t.Fatal(err)
		}
	}
	agent := dialAgent(t, a, modern, "/mcp")
	var slowest time.Duration
	for device, at := range map[string]*testGateway{"robot": b, "rob*": a} {
		for _, hold := range []string{"", `,"for":"1s"`} {
			set(false)
			if w := <-agent.waitLater(fmt.Sprintf(`{"conditions":[{"device":"robot","signal":%q,"equals":0}]}`, lamp)); w.err != nil || !w.Met {
				t.Fatalf("%s: %+v", device, w)
			}
			results := agent.waitLater(fmt.Sprintf(`{"conditions":[{"device":%q,"signal":%q,"equals":1%s}]}`, device, lamp, hold))
			wait.For(t, "it waits at the right node", func() bool { return at.Conditions.Len() == 1 })
			switched := time.Now()
			set(true)
			w := <-results
			if w.err != nil || !w.Met || w.Hits[0].Device != "robot" || w.Hits[0].Time.Before(switched) {
				t.Fatalf("%s%s: %+v", device, hold, w)
			}
			slowest = max(slowest, w.at.Sub(w.Hits[0].Time))
		}
	}
	figure.AtMost(t, "time from a hit to the result", slowest, time.Second)
	// A caller that leaves ends the wait at the other node.
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := agent.use(ctx, "gateway__wait_for", fmt.Sprintf(`{"conditions":[{"device":"robot","signal":%q,"equals":5}],"deadline":"1h"}`, lamp))
		ended <- err
	}()
	wait.For(t, "it waits", func() bool { return b.Conditions.Len() == 1 })
	cancel()
	<-ended
	wait.For(t, "the wait ends", func() bool { return b.Conditions.Len() == 0 })
}
