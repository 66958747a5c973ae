package pipeline_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/pipeline"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// brake is a Stop whose calls can be stopped.
type brake struct {
	entered, left int
	denied        error
	stop          context.CancelCauseFunc
}

func (b *brake) Enter(ctx context.Context, _ *ferrule.Call) (context.Context, func(), error) {
	if b.denied != nil {
		return nil, nil, b.denied
	}
	b.entered++
	ctx, b.stop = context.WithCancelCause(ctx)
	return ctx, func() { b.left++ }, nil
}

// gatewayTools has the gateway's tools beside a board.
type gatewayTools struct{ oneBoard }

func (g gatewayTools) Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool) {
	if id != ferrule.GatewayID {
		return g.oneBoard.Lookup(id)
	}
	return &ferrule.Device{ID: id, State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, &ferrule.Manifest{Tools: []ferrule.Tool{
		{Name: ferrule.StopTool, Effect: ferrule.Changes}, {Name: "adopt_device", Effect: ferrule.Changes},
	}}, true
}

func withStop(l *ledger, b *brake, cfg pipeline.Config, policy pipeline.Policy, end ferrule.Handler) ferrule.Handler {
	return pipeline.New(pipeline.Parts{
		Config: cfg, Journal: l, Fleet: testFleet{gatewayTools{}, end}, Policy: policy, Stop: b, Log: slog.New(slog.DiscardHandler),
	}).Handle
}

// TestStop: changes enter and leave, reads do not, and a call that a stop ended says so,
// and whether it may have run.
func TestStop(t *testing.T) {
	b, l := &brake{}, &ledger{}
	var sent bool
	why := ferrule.Errorf(ferrule.Denied, "everything is stopped by agent:x").WithHint("resume it")
	handle := withStop(l, b, pipeline.DefaultConfig(), nil, func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		if call.Tool == "look" {
			return &ferrule.Result{}, nil
		}
		b.stop(why)
		<-ctx.Done()
		e := ferrule.Errorf(ferrule.Cancelled, "cancelled while waiting")
		e.Sent = sent
		return nil, e
	})
	if _, err := handle(t.Context(), &ferrule.Call{Device: "robot", Tool: "look", Principal: robby}); err != nil || b.entered != 0 {
		t.Errorf("a read: %v, %d entered", err, b.entered)
	}
	_, err := handle(t.Context(), &ferrule.Call{Device: "robot", Tool: "burn", Principal: robby})
	if e := ferrule.AsError(err); e.Code != ferrule.Denied || e.MayHaveRun() || e.Message != why.Message || e.Hint != why.Hint {
		t.Errorf("unsent: %+v", e)
	}
	sent = true
	_, err = handle(t.Context(), &ferrule.Call{Device: "robot", Tool: "burn", Principal: robby})
	if e := ferrule.AsError(err); e.Code != ferrule.Unanswered || !e.MayHaveRun() || !strings.Contains(e.Message, why.Message) {
		t.Errorf("sent: %+v", e)
	}
	if b.entered != 2 || b.left != 2 {
		t.Errorf("%d entered, %d left", b.entered, b.left)
	}
	if !slices.Contains(l.entries, "outcome robot burn {} unanswered may have run durable") {
		t.Errorf("journal %q", l.entries)
	}
	b.denied = why
	if _, err = handle(t.Context(), &ferrule.Call{Device: "robot", Tool: "burn", Principal: robby}); !errors.Is(err, why) {
		t.Errorf("stopped: %v", err)
	}
}

// TestStoppingIsAlwaysAllowed: neither the policy nor limits nor a full disk keeps a caller
// from stopping devices, and they do apply to other tools.
func TestStoppingIsAlwaysAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := pipeline.DefaultConfig()
		cfg.InFlight, cfg.PerMinute, cfg.RefusedPerMinute = 1, 1, 1
		l := &ledger{full: errors.New("full")}
		done := make(chan struct{})
		forbid := func(*ferrule.Call) ferrule.Verdict { return ferrule.Verdict{Ruling: ferrule.Forbid, Reason: "no"} }
		handle := withStop(l, &brake{}, cfg, forbid, func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			<-done
			return &ferrule.Result{}, nil
		})
		for _, device := range []string{"robot", ferrule.GatewayID} {
			call := &ferrule.Call{Device: device, Tool: "adopt_device", Principal: robby}
			if _, err := handle(t.Context(), call); err == nil {
				t.Errorf("%s: not refused", device)
			}
		}
		stopped := make(chan error, 1)
		go func() {
			_, err := handle(t.Context(), &ferrule.Call{Device: ferrule.GatewayID, Tool: ferrule.StopTool, Principal: robby})
			stopped <- err
		}()
		synctest.Wait()
		close(done)
		if err := <-stopped; err != nil {
			t.Errorf("stop: %v", err)
		}
		if _, err := handle(t.Context(), &ferrule.Call{Device: "robot", Operation: ferrule.GetPrompt, Tool: ferrule.StopTool, Principal: robby}); err == nil {
			t.Error("a prompt of that name was not refused")
		}
	})
}

// TestUrgent: an urgent call of the gateway is recorded like that of a caller, and runs
// even if it cannot be.
func TestUrgent(t *testing.T) { synctest.Test(t, testUrgent) } // no timer runs out

func testUrgent(t *testing.T) {
	l := &ledger{}
	ran := 0
	handle := withStop(l, &brake{}, pipeline.DefaultConfig(), nil, func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		ran++
		return &ferrule.Result{}, nil
	})
	off := func(urgent bool) error {
		_, err := handle(t.Context(), &ferrule.Call{Device: "robot", Tool: "burn", Principal: ferrule.Principal{Role: ferrule.Gateway, Name: "stop"}, Urgent: urgent})
		return err
	}
	if err := off(false); err != nil || len(l.entries) != 0 {
		t.Errorf("a poll: %v, %q", err, l.entries)
	}
	if err := off(true); err != nil || len(l.entries) != 2 || !strings.HasPrefix(l.entries[0], "intent robot burn") {
		t.Errorf("%v, %q", err, l.entries)
	}
	l.full = errors.New("full")
	if err := off(true); err != nil || ran != 3 {
		t.Errorf("with a full disk: %v, ran %d times", err, ran)
	}
}

// slowDisk is a journal whose disk does not answer.
type slowDisk struct{ answer chan struct{} }

func (s *slowDisk) Append(ferrule.Entry, bool) error {
	<-s.answer
	return nil
}

// TestUrgentSlowDisk: neither an urgent call nor a stop waits for a disk that hangs.
func TestUrgentSlowDisk(t *testing.T) {
	l := &slowDisk{answer: make(chan struct{})}
	handle := pipeline.New(pipeline.Parts{
		Config: pipeline.DefaultConfig(), Journal: l, Log: slog.New(slog.DiscardHandler),
		Fleet: testFleet{gatewayTools{}, func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			return &ferrule.Result{}, nil
		}},
	}).Handle
	for _, call := range []*ferrule.Call{
		{Device: "robot", Tool: "burn", Principal: ferrule.Principal{Role: ferrule.Gateway, Name: "stop"}, Urgent: true},
		{Device: ferrule.GatewayID, Operation: ferrule.CallTool, Tool: ferrule.StopTool, Principal: ferrule.Principal{Role: ferrule.Agent, Name: "robby"}},
	} {
		done := make(chan error, 1)
		go func() {
			_, err := handle(context.Background(), call)
			done <- err
		}()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(wait.Ample):
			t.Error(call.Tool, "waits for the disk")
		}
	}
	close(l.answer)
}
