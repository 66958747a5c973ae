package dock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// lane is the way into one device, one call wide. Whoever waits is served in
// the order of coming, the gateway's own reads after everybody else.
type lane struct {
	most int // how many may wait

	mu      sync.Mutex
	taken   bool
	callers []chan struct{} // each is closed when its turn comes
	reads   []chan struct{}
}

// enter waits until the lane is free. What it returns means that nothing was
// sent; without an error, the caller must leave.
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
		if !l.withdraw(turn) { // the turn came at the same moment
			l.leave()
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return ferrule.Errorf(ferrule.Cancelled, "cancelled while waiting for %s", call.Device)
	}
	return ferrule.Errorf(ferrule.Busy, "%s was busy with other calls for %v", call.Device, call.Timeout).
		WithHint("try again, or allow more time")
}

// queue takes the lane, and returns no turn to wait for; or it lines up.
func (l *lane) queue(call *ferrule.Call) (turn chan struct{}, ahead int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.taken {
		l.taken = true
		return nil, 0, nil
	}
	waiting := len(l.callers) + len(l.reads)
	if waiting >= l.most {
		return nil, 0, ferrule.Errorf(ferrule.Busy, "%d calls are waiting for %s already", waiting, call.Device).
			WithHint("try again in a moment")
	}
	turn = make(chan struct{})
	if call.Principal.Role == ferrule.Gateway {
		l.reads = append(l.reads, turn)
		return turn, waiting + 1, nil
	}
	l.callers = append(l.callers, turn)
	return turn, len(l.callers), nil
}

// withdraw leaves the line; it is false if the turn has come.
func (l *lane) withdraw(turn chan struct{}) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range []*[]chan struct{}{&l.callers, &l.reads} {
		if i := slices.Index(*line, turn); i >= 0 {
			*line = slices.Delete(*line, i, i+1)
			return true
		}
	}
	return false
}

// leave gives the lane to the next in line.
func (l *lane) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range []*[]chan struct{}{&l.callers, &l.reads} {
		if len(*line) > 0 {
			close((*line)[0])
			*line = slices.Delete(*line, 0, 1)
			return
		}
	}
	l.taken = false
}

// count tells whether the lane is taken, and how many wait for it.
func (l *lane) count() (taken bool, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken, len(l.callers) + len(l.reads)
}
