package server

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

// How events begin. The first of them is that with which the SDK opens a stream, from
// 2025-11-25 on: an ID, by which an agent can come back to it. Before that, each message
// has one.
const (
	openingEvent = "event: prime\nid: "
	messageEvent = "event: message\nid: "
)

// openingWriter holds the event that opens a stream back until the next comes, or a moment
// has passed: most calls are answered by then, and what would be two packets is one. It also
// tells the agent when to come back, which the SDK does only where it closes a stream itself.
type openingWriter struct {
	*timedWriter
	opened func(id string) // is called with the ID of the first event

	mu    sync.Mutex
	known bool // opened was called
	held  []byte
	timer *time.Timer
}

func (w *openingWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.identify(p)
	if bytes.HasPrefix(p, []byte(openingEvent)) && w.timer == nil {
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

// identify tells which stream it is, by the first event. It is called with mu held.
func (w *openingWriter) identify(event []byte) {
	for _, start := range []string{openingEvent, messageEvent} {
		if rest, ok := bytes.CutPrefix(event, []byte(start)); ok && !w.known {
			id, _, _ := bytes.Cut(rest, []byte("\n"))
			w.known = true
			w.opened(string(id))
		}
	}
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
