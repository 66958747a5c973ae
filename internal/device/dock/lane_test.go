package dock

import (
	"context"
	"runtime"
	"slices"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestLaneCancelledAtItsTurn checks that a caller that leaves at the moment of its
// turn passes the lane on.
func TestLaneCancelledAtItsTurn(t *testing.T) {
	for range 200 {
		l := &lane{limit: 1, taken: true}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.enter(ctx, &ferrule.Call{Device: "robot"}) }()
		for waiting := 0; waiting == 0; _, waiting = l.count() {
			runtime.Gosched()
		}
		cancel()
		l.leave()
		if err := <-ended; err == nil || ferrule.AsError(err).Code != ferrule.Cancelled {
			t.Fatalf("it goes on: %v", err)
		}
		if taken, waiting := l.count(); taken || waiting > 0 {
			t.Fatalf("taken %t, %d wait", taken, waiting)
		}
	}
}

// TestCrowded: a session learns that callers wait, and that none is left. The gateway's own
// reads do not count.
func TestCrowded(t *testing.T) {
	var told []bool
	l := &lane{limit: 10, crowded: func(waiting bool) { told = append(told, waiting) }}
	agent := &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Agent}}
	gateway := &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Gateway}}
	l.queue(agent)
	l.queue(gateway)
	if len(told) != 0 {
		t.Errorf("told %v", told)
	}
	l.queue(agent)
	last, _, _ := l.queue(&ferrule.Call{Urgent: true})
	l.leave() // to the urgent one
	if !slices.Equal(told, []bool{true}) {
		t.Errorf("told %v", told)
	}
	<-last
	l.leave()
	if !slices.Equal(told, []bool{true, false}) {
		t.Errorf("told %v", told)
	}
}

// TestCancelJobPassesQueue: callers that fill the queue do not keep a stop from ending a job.
func TestCancelJobPassesQueue(t *testing.T) {
	l := &lane{limit: 3, taken: true}
	for range l.limit {
		if _, _, err := l.queue(&ferrule.Call{Device: "kiln"}); err != nil {
			t.Fatal(err)
		}
	}
	turn, _, err := l.queue(&ferrule.Call{Device: "kiln", Operation: ferrule.CancelJob})
	if err != nil {
		t.Fatal(err)
	}
	l.leave()
	select {
	case <-turn:
	default:
		t.Error("others come first")
	}
}
