package pipeline_test

import (
	"context"
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

// TestCachedIsNotLimited checks that cached answers do not count towards the limit.
func TestCachedIsNotLimited(t *testing.T) {
	p := withLimits(1, 1, time.Minute, new(counter).handle)
	for i := range 10 {
		if err := look(t, p, robby, "look"); err != nil {
			t.Errorf("call %d: %v", i+1, err)
		}
	}
	if err := look(t, p, robby, "watch"); err == nil || err.Code != ferrule.Limited {
		t.Errorf("got %v", err)
	}
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
