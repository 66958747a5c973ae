package dock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// lane is the queue of one device. It lets one call through at a time, in order of
// arrival, urgent ones and the end of jobs first, and the gateway's own reads and polls of jobs last.
type lane struct {
	limit int // maximum number of waiting calls
	// crowded is called when callers begin to wait, and when none is left. It may be nil.
	crowded func(bool)

	mu      sync.Mutex
	taken   bool
	told    bool            // what crowded was called with last
	urgent  []chan struct{} // each is closed when it is its turn
	callers []chan struct{}
	reads   []chan struct{}
}

// enter waits until the lane is free. If it returns nil, the caller must call
// leave. An error means that nothing was sent.
func (l *lane) enter(ctx context.Context, call *ferrule.Call) error {
	turn, ahead, err := l.queue(call)
	if turn == nil {
		return err
	}
	call.Report(ferrule.Progress{Message: fmt.Sprintf("waiting for %s: %d ahead", call.Device, ahead)})
	select {
	case <-turn:
		if ctx.Err() == nil {
			return nil
		}
		l.leave()
	case <-ctx.Done():
		if !l.withdraw(turn) { // its turn came at the same moment
			l.leave()
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return ferrule.Errorf(ferrule.Cancelled, "cancelled while waiting for %s", call.Device)
	}
	return ferrule.Errorf(ferrule.Busy, "%s was busy with other calls for %v", call.Device, call.Timeout).
		WithHint("try again, or allow more time")
}

// queue takes the lane and returns a nil turn, or joins the queue.
func (l *lane) queue(call *ferrule.Call) (turn chan struct{}, ahead int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.taken {
		l.taken = true
		return nil, 0, nil
	}
	waiting := len(l.urgent) + len(l.callers) + len(l.reads)
	if call.Urgent || call.Operation == ferrule.CancelJob { // the gateway makes few of them; a stop waits for a cancel
		turn = make(chan struct{})
		l.urgent = append(l.urgent, turn)
		l.tell()
		return turn, len(l.urgent), nil
	}
	if waiting >= l.limit {
		return nil, 0, ferrule.Errorf(ferrule.Busy, "%d calls are already waiting for %s", waiting, call.Device).
			WithHint("try again in a moment")
	}
	turn = make(chan struct{})
	if call.Principal.Role == ferrule.Gateway || call.Operation == ferrule.PollJob {
		l.reads = append(l.reads, turn)
		return turn, waiting + 1, nil
	}
	l.callers = append(l.callers, turn)
	l.tell()
	return turn, len(l.urgent) + len(l.callers), nil
}

// withdraw leaves the queue. It returns false if it is already its turn.
func (l *lane) withdraw(turn chan struct{}) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines() {
		if i := slices.Index(*line, turn); i >= 0 {
			*line = slices.Delete(*line, i, i+1)
			l.tell()
			return true
		}
	}
	return false
}

// lines returns the queues, in the order in which they are served.
func (l *lane) lines() [3]*[]chan struct{} {
	return [3]*[]chan struct{}{&l.urgent, &l.callers, &l.reads}
}

// leave passes the lane to the next call.
func (l *lane) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines() {
		if len(*line) > 0 {
			close((*line)[0])
			*line = slices.Delete(*line, 0, 1)
			l.tell()
			return
		}
	}
	l.taken = false
}

// tell calls crowded if that has changed. It is called with mu held.
func (l *lane) tell() {
	if now := len(l.urgent)+len(l.callers) > 0; l.crowded != nil && now != l.told {
		l.told = now
		l.crowded(now)
	}
}

// count reports whether the lane is taken, and how many calls wait.
func (l *lane) count() (taken bool, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken, len(l.urgent) + len(l.callers) + len(l.reads)
}
