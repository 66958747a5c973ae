package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestCancel checks that a canceled call leaves the queue or the device before the device
// answers, that the journal says whether it may have run, and that the next call is served.
func TestCancel(t *testing.T) {
	for _, mcpVersion := range mcpVersions {
		t.Run(mcpVersion+" http", func(t *testing.T) {
			testCancel(t, func(g *testGateway) *testAgent { return dialAgent(t, g, mcpVersion, "/mcp") })
		})
		t.Run(mcpVersion+" stdio", func(t *testing.T) {
			testCancel(t, func(g *testGateway) *testAgent { return pipeAgent(t, g, mcpVersion) })
		})
	}
}

func testCancel(t *testing.T, connect func(*testGateway) *testAgent) {
	t.Parallel()
	const sweep = 5 * time.Second
	boards := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, unmeasured)
	g.online("robot")
	first, second, third := connect(g), connect(g), connect(g)

	// begin calls sweep until it is cancelled.
	begin := func(a *testAgent, milliseconds int) (cancel func(), ended chan error) {
		ctx, cancel := context.WithCancel(context.Background())
		ended = make(chan error, 1)
		go func() {
			_, err := a.use(ctx, "robot__sweep", fmt.Sprintf(`{"milliseconds":%d}`, milliseconds))
			ended <- err
		}()
		return cancel, ended
	}
	// cancelled waits for the record of the call that was cancelled.
	cancelled := func(milliseconds int, mayHaveRun bool) {
		t.Helper()
		args := fmt.Sprintf(`{"milliseconds":%d}`, milliseconds)
		wait.For(t, "the journal has "+args, func() bool {
			for _, e := range g.outcomes("robot", "sweep") {
				if string(e.Args) == args {
					if e.Code != ferrule.Cancelled || e.MayHaveRun != mayHaveRun {
						t.Errorf("the journal has %+v", e)
					}
					return true
				}
			}
			return false
		})
	}

	stopFirst, firstEnded := begin(first, int(sweep.Milliseconds()))
	wait.For(t, "the first is in flight", boards.Boards[0].Sweeping)
	stopSecond, secondEnded := begin(second, 1)
	select {
	case p := <-second.progress:
		if p.ProgressToken != "about robot__sweep" || p.Message != "waiting for robot: 1 ahead" {
			t.Errorf("progress of the waiting call: %+v", p)
		}
	case <-time.After(ample):
		t.Fatal("no progress of the waiting call")
	}
	stopSecond()
	cancelled(1, false)
	if err := <-secondEnded; err == nil {
		t.Error("what was cancelled has a result")
	}
	stopFirst()
	cancelled(int(sweep.Milliseconds()), true)
	if err := <-firstEnded; err == nil {
		t.Error("what was cancelled has a result")
	}

	// The lane is free; the board finishes its sweep and answers.
	third.mustUse("robot__pulse", `{"token":"next"}`, nil)
	if n := boards.Boards[0].Runs()["next"]; n != 1 {
		t.Errorf("what came next ran %d times", n)
	}
	for len(third.progress) > 0 {
		if p := <-third.progress; strings.Contains(p.Message, "ahead") {
			t.Errorf("the next had to wait: %+v", p)
		}
	}
	// The agent that canceled is still served.
	first.mustUse("gateway__status", `{}`, nil)
	second.mustUse("gateway__status", `{}`, nil)
}
