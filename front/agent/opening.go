package agent

import (
	"bytes"
	"fmt"
	"sync"
	"time"
)

const (
	// openingTime is how long the first event of a stream is held back.
	openingTime = 20 * time.Millisecond
	// comeBack is how long an agent is to wait before it comes back to a stream.
	comeBack = time.Second
)

// openingEvent is how the event begins with which the SDK opens a stream: an ID, by
// which an agent can come back to it.
const openingEvent = "event: prime\nid: "

// openingWriter holds that event back until the next comes, or a moment has passed: most
// calls are answered by then, and what would be two packets is one. It also tells the
// agent when to come back, which the SDK does only where it closes a stream itself.
type openingWriter struct {
	*timedWriter
	opened func(id string) // is called with the ID of that event

	mu    sync.Mutex
	held  []byte
	timer *time.Timer
}

func (w *openingWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if rest, ok := bytes.CutPrefix(p, []byte(openingEvent)); ok && w.timer == nil {
		id, _, _ := bytes.Cut(rest, []byte("\n"))
		w.opened(string(id))
		w.held = fmt.Appendf(nil, "retry: %d\n%s", comeBack.Milliseconds(), p)
		w.timer = time.AfterFunc(openingTime, w.let)
		return len(p), nil
	}
	if w.held == nil {
		return w.timedWriter.Write(p)
	}
	w.timer.Stop()
	first := len(w.held)
	n, err := w.timedWriter.Write(append(w.held, p...))
	w.held = nil
	return max(0, n-first), err
}

// FlushError is what the controller of a response looks for.
func (w *openingWriter) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held != nil {
		return nil
	}
	return w.timedWriter.FlushError()
}

// let sends what is held back, if anything is.
func (w *openingWriter) let() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held != nil {
		w.timedWriter.Write(w.held) // if it fails, the agent is gone
		w.held = nil
		w.timedWriter.FlushError()
	}
}
