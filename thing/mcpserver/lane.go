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
	waiting atomic.Int32
}

func newLane() *lane { return &lane{turn: make(chan struct{}, 1)} }

// enter waits for the turn of a call, until one of the two contexts ends. Who enters
// leaves.
func (l *lane) enter(ctx, stop context.Context) error {
	if l.waiting.Add(1) > maxWaiting {
		l.waiting.Add(-1)
		return &thing.RefusedError{Reason: "The device is busy and too many calls wait already: nothing was done; try again in a while"}
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
	return &thing.RefusedError{Reason: "It was over before the turn of this call came: nothing was done"}
}

func (l *lane) leave() { <-l.turn }

// empties waits until no call is under way, or ctx ends, and tells which. However many wait,
// there is room for this.
func (l *lane) empties(ctx context.Context) bool {
	select {
	case l.turn <- struct{}{}:
		l.leave()
		return true
	case <-ctx.Done():
		return false
	}
}

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

// current is the context that ends when serving does.
func (h *halt) current() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stop
}
