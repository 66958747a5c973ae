package mcpserver

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/ferrulehq/ferrule/thing"
)

// maxWaiting is how many calls may wait for their turn.
const maxWaiting = 64

// lane lets one call at a time through, and few wait.
type lane struct {
	turn    chan struct{} // holds one while a call is under way
	waiting *atomic.Int32
}

func newLane() lane { return lane{make(chan struct{}, 1), new(atomic.Int32)} }

// enter waits for the turn of a call. Who enters leaves.
func (l lane) enter(ctx context.Context) error {
	if l.waiting.Add(1) > maxWaiting {
		l.waiting.Add(-1)
		return errBusy
	}
	defer l.waiting.Add(-1)
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return &thing.RefusedError{Reason: "The caller had gone before its turn came: nothing was done"}
	}
}

func (l lane) leave() { <-l.turn }

// halt ends what is under way when serving ends: the SDK's contexts outlive that.
type halt struct {
	mu   sync.Mutex
	stop context.Context // ends, and is made anew, when serving ends
	end  context.CancelFunc
}

func newHalt() *halt {
	h := &halt{}
	h.stop, h.end = context.WithCancel(context.Background())
	return h
}

// now ends what is under way.
func (h *halt) now() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end()
	h.stop, h.end = context.WithCancel(context.Background())
}

// bind makes a context that ends with ctx or with serving.
func (h *halt) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	unbind := context.AfterFunc(h.stop, cancel)
	return ctx, func() { unbind(); cancel() }
}
