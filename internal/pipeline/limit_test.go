package pipeline_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/pipeline"
)

func withLimits(inFlight, perMinute int, cache time.Duration, end ferrule.Handler) *pipeline.Pipeline {
	return pipeline.New(pipeline.Parts{
		Config:  pipeline.Config{Deadline: time.Hour, Cache: cache, InFlight: inFlight, PerMinute: perMinute},
		Journal: nowhere{}, Fleet: testFleet{&shop{}, end}, Log: slog.New(slog.DiscardHandler),
	})
}

// look makes a call, and returns its error.
func look(t *testing.T, p *pipeline.Pipeline, who ferrule.Principal, tool string) *ferrule.Error {
	_, err := p.Handle(t.Context(), &ferrule.Call{Principal: who, Device: "a", Tool: tool})
	if err == nil {
		return nil
	}
	return ferrule.AsError(err)
}

// itself is the gateway.
var itself = ferrule.Principal{Role: ferrule.Gateway, Name: "poller"}

func TestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		p := withLimits(2, 0, 0, func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			<-gate
			return &ferrule.Result{}, nil
		})
		begin := func(who ferrule.Principal) {
			go func() {
				if err := look(t, p, who, "look"); err != nil {
					t.Errorf("%s: %v", who, err)
				}
			}()
			synctest.Wait()
		}
		begin(robby)
		begin(robby)
		err := look(t, p, robby, "look")
		if err == nil || err.Code != ferrule.Limited || err.MayHaveRun() ||
			!strings.Contains(err.Message, "too many calls in flight: limit is 2 per caller") || !strings.Contains(err.Hint, "when one of them has ended") {
			t.Errorf("got %+v", err)
		}
		begin(anna) // another caller has room
		for range 5 {
			begin(itself)
		}
		gate <- struct{}{}
		gate <- struct{}{}
		gate <- struct{}{}
		synctest.Wait()
		close(gate)
		synctest.Wait()
		for range 3 { // they come one after the other
			begin(robby)
		}
		if n := p.Stats().Limited; n != 1 {
			t.Errorf("%d were refused", n)
		}
	})
}

// TestInFlightPanics checks that a call that panics is no longer in flight.
func TestInFlightPanics(t *testing.T) {
	p := withLimits(1, 0, 0, func(context.Context, *ferrule.Call) (*ferrule.Result, error) { panic("short circuit") })
	for range 3 {
		if err := look(t, p, robby, "look"); err == nil || err.Code != ferrule.Internal {
			t.Errorf("got %v", err)
		}
	}
}

func TestPerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := withLimits(10, 6, 0, new(counter).handle)
		calls := func(n int) {
			t.Helper()
			for i := range n {
				if err := look(t, p, robby, "look"); err != nil {
					t.Errorf("call %d of %d: %v", i+1, n, err)
				}
			}
		}
		refused := func(hint string) {
			t.Helper()
			err := look(t, p, robby, "look")
			if err == nil || err.Code != ferrule.Limited || err.MayHaveRun() ||
				!strings.Contains(err.Message, "too many calls: limit is 6 per minute and caller") || err.Hint != hint {
				t.Errorf("got %+v", err)
			}
		}
		calls(6)
		refused("try again in 10s")
		time.Sleep(9500 * time.Millisecond)
		refused("try again in 1s")
		if err := look(t, p, anna, "look"); err != nil {
			t.Errorf("another caller: %v", err)
		}
		for range 20 {
			if err := look(t, p, itself, "look"); err != nil {
				t.Errorf("the gateway: %v", err)
			}
		}
		time.Sleep(time.Second)
		calls(1) // what was refused did not count
		refused("try again in 10s")
		time.Sleep(time.Hour)
		calls(6) // and no more are saved up
		refused("try again in 10s")
		if n := p.Stats().Limited; n != 4 {
			t.Errorf("%d were refused", n)
		}
	})
}

// TestCachedIsLimited checks that cached answers count towards the limit: each is
// recorded.
func TestCachedIsLimited(t *testing.T) {
	p := withLimits(1, 3, time.Minute, new(counter).handle)
	for i := range 3 {
		if err := look(t, p, robby, "look"); err != nil {
			t.Errorf("call %d: %v", i+1, err)
		}
	}
	if err := look(t, p, robby, "look"); err == nil || err.Code != ferrule.Limited {
		t.Errorf("got %v", err)
	}
}

// TestInvalidIsLimited checks that calls which would be refused anyway are limited first:
// unknown devices and tools, and wrong arguments.
func TestInvalidIsLimited(t *testing.T) {
	for name, call := range map[string]ferrule.Call{
		"no such device":  {Principal: robby, Device: "toaster", Tool: "look"},
		"no such tool":    {Principal: robby, Device: "robot", Tool: "fly"},
		"wrong arguments": {Principal: robby, Device: "robot", Tool: "move"},
		"offline":         {Principal: robby, Device: "offline", Tool: "look"},
	} {
		for what, cfg := range map[string]pipeline.Config{
			"per minute":         {Deadline: time.Second, InFlight: 9, PerMinute: 3},
			"refused per minute": {Deadline: time.Second, InFlight: 9, RefusedPerMinute: 3},
		} {
			p := pipeline.New(pipeline.Parts{Config: cfg, Journal: nowhere{}, Fleet: testFleet{oneBoard{}, new(counter).handle}, Log: slog.New(slog.DiscardHandler)})
			for i := range 5 {
				again := call
				_, err := p.Handle(t.Context(), &again)
				limited := i >= 3 && !(name == "offline" && cfg.PerMinute == 0) // which is not a mistake
				if e := ferrule.AsError(err); (e.Code == ferrule.Limited) != limited || e.MayHaveRun() {
					t.Errorf("%s, %s: call %d ended with %v", name, what, i+1, err)
				}
			}
			look := ferrule.Call{Principal: anna, Device: "robot", Tool: "look"}
			if _, err := p.Handle(t.Context(), &look); err != nil {
				t.Errorf("%s, %s: another caller: %v", name, what, err)
			}
		}
	}
}

// TestRefusedPerMinute checks that calls that are sent do not count as refused, and that
// a caller recovers.
func TestRefusedPerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipeline.New(pipeline.Parts{
			Config: pipeline.Config{Deadline: time.Second, InFlight: 9, RefusedPerMinute: 6}, Journal: nowhere{},
			Fleet: testFleet{oneBoard{}, func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
				return nil, ferrule.Errorf(ferrule.Refused, "no")
			}}, Log: slog.New(slog.DiscardHandler),
		})
		do := func(tool string) *ferrule.Error {
			_, err := p.Handle(t.Context(), &ferrule.Call{Principal: robby, Device: "robot", Tool: tool})
			return ferrule.AsError(err)
		}
		for range 20 { // the device refused, not the gateway
			if err := do("look"); err.Code != ferrule.Refused {
				t.Fatalf("got %v", err)
			}
		}
		for range 6 {
			do("fly")
		}
		if err := do("look"); err.Code != ferrule.Limited || !strings.Contains(err.Message, "limit is 6 per minute and caller (calls.refused_per_minute)") || err.Hint != "correct the calls, then try again in 10s" {
			t.Errorf("got %v, %s", err, err.Hint)
		}
		time.Sleep(10 * time.Second)
		if err := do("look"); err.Code != ferrule.Refused {
			t.Errorf("got %v", err)
		}
	})
}

// TestRefusedRecords checks that refused calls take little space in the journal, however
// long their arguments are and however many there are.
func TestRefusedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		p := pipeline.New(pipeline.Parts{
			Config: pipeline.Config{Deadline: time.Second, InFlight: 9, PerMinute: 4}, Journal: &l, Fleet: testFleet{oneBoard{}, new(counter).handle}, Log: slog.New(slog.DiscardHandler),
		})
		long := `["` + strings.Repeat("x", 100<<10) + `"]`
		short := `["` + strings.Repeat("x", 4<<10-4) + `"]`
		for range 2 {
			for _, args := range []string{long, short} {
				p.Handle(t.Context(), &ferrule.Call{Principal: robby, Device: "robot", Tool: "move", Args: json.RawMessage(args)})
			}
		}
		want := fmt.Sprintf(`outcome robot move "%d bytes, SHA-256 %x" invalid`, len(long), sha256.Sum256([]byte(long)))
		if len(l.entries) != 4 || l.entries[0] != want || l.entries[1] != "outcome robot move "+short+" invalid" {
			t.Fatalf("got %.300q", l.entries)
		}
		for range 1000 {
			p.Handle(t.Context(), &ferrule.Call{Principal: robby, Device: "robot", Tool: "move", Args: json.RawMessage(long)})
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if n := len(l.entries); n != 6 || !strings.HasSuffix(l.entries[4], " limited") || !strings.HasPrefix(l.entries[5], "gap") || !strings.Contains(l.gaps, "999 more calls by agent:robby were refused: too many calls: ") {
			t.Errorf("%d records, %.300q, %q", n, l.entries[4:], l.gaps)
		}
		p.Handle(t.Context(), &ferrule.Call{Principal: robby, Device: "robot", Tool: "move", Args: json.RawMessage(long)})
		p.Flush() // the gateway stops
		closed := len(l.entries)
		time.Sleep(time.Minute)
		if closed != 7 || len(l.entries) != closed || !strings.Contains(l.gaps, "1 more calls by agent:robby") {
			t.Errorf("%d records at the stop, then %d: %q", closed, len(l.entries), l.gaps)
		}
	})
}

// TestRefusedRecordsOfInventedNames checks that an agent above its limit cannot fill the
// journal by giving itself another name for each call.
func TestRefusedRecordsOfInventedNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		p := pipeline.New(pipeline.Parts{
			Config: pipeline.Config{Deadline: time.Second, InFlight: 9, PerMinute: 4}, Journal: &l, Fleet: testFleet{oneBoard{}, new(counter).handle}, Log: slog.New(slog.DiscardHandler),
		})
		for i := range 1000 {
			who := ferrule.Principal{Role: ferrule.Agent, Name: fmt.Sprint("local/agent-", i), Auth: ferrule.AuthLoopback}
			p.Handle(t.Context(), &ferrule.Call{Principal: who, Device: "robot", Tool: "look"})
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if n := len(l.entries); n != 6 || !strings.Contains(l.gaps, "995 more calls by agent:local were refused: too many calls: ") {
			t.Errorf("%d records, %q", n, l.gaps)
		}
	})
}

// TestLongReads checks that a read leaves a short record, whatever its arguments are.
func TestLongReads(t *testing.T) {
	var l ledger
	p := pipeline.New(pipeline.Parts{
		Config: pipeline.Config{Deadline: time.Second, InFlight: 9}, Journal: &l, Fleet: testFleet{oneBoard{}, new(counter).handle}, Log: slog.New(slog.DiscardHandler),
	})
	long := `{"note":"` + strings.Repeat("x", 60<<10) + `"}`
	for _, tool := range []string{"look", "move"} {
		if _, err := p.Handle(t.Context(), &ferrule.Call{Principal: robby, Device: "robot", Tool: tool, Args: json.RawMessage(long)}); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.entries) != 3 || len(l.entries[0]) > 1000 || len(l.entries[1]) < len(long) || len(l.entries[2]) < len(long) {
		t.Errorf("%d records: %.200q", len(l.entries), l.entries)
	}
}

// askAboutMoves is a policy that lets only look pass without a person.
func askAboutMoves(call *ferrule.Call) ferrule.Verdict {
	if call.Tool == "look" {
		return ferrule.Verdict{Ruling: ferrule.Permit}
	}
	return ferrule.Verdict{Ruling: ferrule.Ask}
}

// asker has nobody who answers.
type asker struct{}

func (asker) Await(context.Context, *ferrule.Call) error {
	return ferrule.Errorf(ferrule.Pending, "wait")
}

// TestReadsWhileStopped checks that who retries changes while they are stopped, or while
// a person is asked, can still read, and does not fill the disk.
func TestReadsWhileStopped(t *testing.T) {
	for name, parts := range map[string]pipeline.Parts{
		"stopped": {Stop: &brake{denied: ferrule.Errorf(ferrule.Denied, "stopped")}},
		"asked":   {Policy: askAboutMoves, Approvals: asker{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l ledger
				parts.Config = pipeline.Config{Deadline: time.Second, InFlight: 9, RefusedPerMinute: 10}
				parts.Journal, parts.Log = &l, slog.New(slog.DiscardHandler)
				parts.Fleet = testFleet{oneBoard{}, new(counter).handle}
				p := pipeline.New(parts)
				for range 1000 {
					_, err := p.Handle(t.Context(), &ferrule.Call{Principal: robby, Device: "robot", Tool: "burn"})
					if code := ferrule.AsError(err).Code; code != ferrule.Denied && code != ferrule.Pending {
						t.Fatal(err)
					}
				}
				if _, err := p.Handle(t.Context(), &ferrule.Call{Principal: robby, Device: "robot", Tool: "look"}); err != nil {
					t.Error(err)
				}
				time.Sleep(11 * time.Second)
				synctest.Wait()
				if n := len(l.entries); n > 25 {
					t.Errorf("%d records", n)
				}
			})
		})
	}
}

// TestOfflineRecords checks that calls to a device that is offline do not fill the disk.
func TestOfflineRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		p := pipeline.New(pipeline.Parts{
			Config: pipeline.Config{Deadline: time.Second, InFlight: 9, RefusedPerMinute: 10}, Journal: &l, Log: slog.New(slog.DiscardHandler),
			Fleet: testFleet{oneBoard{}, nil},
		})
		for range 1000 {
			_, err := p.Handle(t.Context(), &ferrule.Call{Principal: robby, Device: "offline", Tool: "look"})
			if ferrule.AsError(err).Code != ferrule.Offline {
				t.Fatal(err)
			}
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if n := len(l.entries); n > 20 || !strings.Contains(l.gaps, "more calls by agent:robby") {
			t.Errorf("%d records, %q", n, l.gaps)
		}
	})
}

func TestManyCallers(t *testing.T) {
	p := withLimits(1, 1, 0, new(counter).handle)
	for i := range 5000 {
		who := ferrule.Principal{Role: ferrule.Agent, Name: fmt.Sprint(i)}
		if err := look(t, p, who, "look"); err != nil {
			t.Fatal(err)
		}
		if err := look(t, p, who, "look"); err == nil || err.Code != ferrule.Limited {
			t.Fatalf("%s is not limited: %v", who, err)
		}
	}
}
