package dock

import (
	"context"
	"runtime"
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
