package dock

import (
	"context"
	"runtime"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestLaneGoneAsItComes: whose turn comes as they go away has sent nothing, and leaves the
// lane to others. When a gateway ends, all of its callers do so at once.
func TestLaneGoneAsItComes(t *testing.T) {
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
