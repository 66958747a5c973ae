package mcphttp

import (
	"bytes"
	"fmt"
	"sync"
	"time"
)

const (
	// openingDelay is how long the first event of a stream is held back.
	openingDelay = 20 * time.Millisecond
	// reconnectDelay is how long a client should wait before it reconnects to a stream.
	reconnectDelay = time.Second
)

// How events begin. With 2025-11-25 the SDK opens a stream with an event that has only
// an ID, so that a client can reconnect to it. Before, each message has an ID.
const (
	openingEvent = "event: prime\nid: "
	messageEvent = "event: message\nid: "
)

// openingWriter holds the opening event back until the next event, or for openingDelay:
// most calls are answered by then, and two packets become one. It adds the reconnect
// delay, which the SDK sends only when it closes a stream itself.
type openingWriter struct {
	*deadlineWriter
	opened func(id string) // called once, with the ID of the first event

	mu         sync.Mutex
	identified bool // opened was called
	held       []byte
	timer      *time.Timer
}

func (w *openingWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.identify(p)
	if bytes.HasPrefix(p, []byte(openingEvent)) && w.timer == nil {
		w.held = fmt.Appendf(nil, "retry: %d\n%s", reconnectDelay.Milliseconds(), p)
		w.timer = time.AfterFunc(openingDelay, w.release)
		return len(p), nil
	}
	if w.held == nil {
		return w.deadlineWriter.Write(p)
	}
	w.timer.Stop()
	first := len(w.held)
	n, err := w.deadlineWriter.Write(append(w.held, p...))
	w.held = nil
	return max(0, n-first), err
}

// identify reports the ID of the first event. It is called with mu held.
func (w *openingWriter) identify(event []byte) {
	if w.identified {
		return
	}
	for _, start := range []string{openingEvent, messageEvent} {
		if rest, ok := bytes.CutPrefix(event, []byte(start)); ok {
			id, _, _ := bytes.Cut(rest, []byte("\n"))
			w.identified = true
			w.opened(string(id))
			return
		}
	}
}

// FlushError implements flushing for http.ResponseController.
func (w *openingWriter) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held != nil {
		return nil
	}
	return w.deadlineWriter.FlushError()
}

// release sends the opening event if it is still held back.
func (w *openingWriter) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held != nil {
		w.deadlineWriter.Write(w.held) // if it fails, the client is gone
		w.held = nil
		w.deadlineWriter.FlushError()
	}
}
