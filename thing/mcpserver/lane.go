package mcpserver

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/ferrulehq/ferrule/thing"
)

// maxWaiting is the limit of calls that wait for the lane.
const maxWaiting = 64

// lane lets one call through at a time.
type lane struct {
	turn    chan struct{} // holds one while a call is under way
	waiting atomic.Int32
}

func newLane() *lane { return &lane{turn: make(chan struct{}, 1)} }

// enter waits until the lane is free, or one of the contexts ends. The caller must
// call leave after it.
func (l *lane) enter(ctx, stop context.Context) error {
	if l.waiting.Add(1) > maxWaiting {
		l.waiting.Add(-1)
		return &thing.RefusedError{Reason: "The device is busy and too many calls are waiting: nothing was done; try again later"}
	}
	defer l.waiting.Add(-1)
	select {
	case l.turn <- struct{}{}:
		if ctx.Err() == nil && stop.Err() == nil {
			return nil
		}
		l.leave()
	case <-ctx.Done():
	case <-stop.Done():
	}
	return &thing.RefusedError{Reason: "The call was cancelled while it was waiting: nothing was done"}
}

func (l *lane) leave() { <-l.turn }

// empties waits until no call is under way, and reports whether that was before ctx
// ended. The limit of waiting calls does not apply.
func (l *lane) empties(ctx context.Context) bool {
	select {
	case l.turn <- struct{}{}:
		l.leave()
		return true
	case <-ctx.Done():
		return false
	}
}

// halt cancels calls when serving ends: the SDK's contexts outlive that.
type halt struct {
	mu   sync.Mutex
	stop context.Context // ends, and is replaced, when serving ends
	end  context.CancelFunc
}

func newHalt() *halt {
	h := &halt{}
	h.stop, h.end = context.WithCancel(context.Background())
	return h
}

// now cancels the calls under way.
func (h *halt) now() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end()
	h.stop, h.end = context.WithCancel(context.Background())
}

// current returns the context that ends with serving.
func (h *halt) current() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stop
}
