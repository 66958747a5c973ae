package mcphttp

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

const (
	// openingDelay is how long the first event of a stream is held back.
	openingDelay = 20 * time.Millisecond
	// reconnectDelay is how long a client should wait before it reconnects to a stream. A
	// client that does not come back counts as gone soon after.
	reconnectDelay = 300 * time.Millisecond
	// waitingEvery is how often a client that waits for a response gets a comment. Some give
	// up after five seconds without a byte.
	waitingEvery = 2 * time.Second
)

// How events begin. With 2025-11-25 the SDK opens a stream with an event that has only
// an ID, so that a client can reconnect to it. Before, each message has an ID. From
// 2026-07-28 on, none has.
const (
	openingEvent = "event: prime\nid: "
	messageEvent = "event: message\n"
	eventID      = "id: "
	eventData    = "data: "
)

// The SDK's content type of a stream, and that of http.Error.
const (
	streamType = "text/event-stream"
	textType   = "text/plain"
	jsonType   = "application/json"
)

// replyWriter answers a POST. The SDK always answers with a stream. If the first message
// on it is the response, nothing else follows, and the client gets the response as JSON:
// some clients cannot read streams, and others try to resume a stream that ended with
// an error.
//
// It holds the opening event back until the next event, or for openingDelay: most calls
// are answered by then. It adds the reconnect delay, which the SDK sends only when it
// closes a stream itself.
//
// A stream that was opened gets a comment now and then, until its response.
//
// Errors of the SDK in plain text become JSON-RPC errors.
type replyWriter struct {
	*deadlineWriter
	request *posted
	opened  func(id string) // called once, with the ID of the first event

	mu         sync.Mutex
	rewrite    func(message []byte) []byte // changes the first message; nil if nothing does
	identified bool                        // opened was called
	decided    bool                        // the header is sent, or is about to be
	held       []byte
	timer      *time.Timer
	waiting    *time.Timer
	finished   bool
	refused    int    // status of an error in plain text; 0 if there is none
	reason     []byte // its text
}

// commentLater sends comments from some time on. It is called with mu held.
func (w *replyWriter) commentLater() {
	w.waiting = time.AfterFunc(waitingEvery, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.finished {
			io.WriteString(w.deadlineWriter, comment) // if it fails, the client is gone
			w.deadlineWriter.FlushError()
			w.commentLater()
		}
	})
}

// WriteHeader implements http.ResponseWriter.
func (w *replyWriter) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if status >= http.StatusBadRequest && w.contentIs(textType) && !w.decided {
		w.refused = status
		return
	}
	w.decided = true
	w.deadlineWriter.WriteHeader(status)
}

func (w *replyWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refused != 0 {
		w.reason = append(w.reason, p...)
		return len(p), nil
	}
	w.identify(p)
	if w.rewrite != nil {
		if other := w.rewritten(p); !bytes.Equal(other, p) {
			w.decided = true
			if _, err := w.deadlineWriter.Write(other); err != nil {
				return 0, err
			}
			w.commentLater()
			return len(p), nil
		}
	}
	if w.decided {
		return w.deadlineWriter.Write(p)
	}
	if bytes.HasPrefix(p, []byte(openingEvent)) && w.held == nil {
		w.held = fmt.Appendf(nil, "retry: %d\n%s", reconnectDelay.Milliseconds(), p)
		if w.request.method != "initialize" { // without its response, a client has no session to reconnect to
			w.timer = time.AfterFunc(openingDelay, w.release)
		}
		return len(p), nil
	}
	w.decided = true
	if response, ok := w.onlyResponse(p); ok {
		w.held = nil
		w.Header().Set("Content-Type", jsonType)
		w.Header().Set("Content-Length", strconv.Itoa(len(response)))
		if _, err := w.deadlineWriter.Write(response); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	first := len(w.held)
	n, err := w.deadlineWriter.Write(append(w.held, p...))
	w.held = nil
	w.commentLater()
	return max(0, n-first), err
}

// onlyResponse returns the message of an event, if it is the only one of its stream.
func (w *replyWriter) onlyResponse(event []byte) (response []byte, ok bool) {
	rest, ok := bytes.CutPrefix(event, []byte(messageEvent))
	if !ok || w.request.batch || !w.contentIs(streamType) {
		return nil, false
	}
	if bytes.HasPrefix(rest, []byte(eventID)) {
		_, rest, _ = bytes.Cut(rest, []byte("\n"))
	}
	rest, ok = bytes.CutPrefix(rest, []byte(eventData))
	response = bytes.TrimSuffix(rest, []byte("\n\n"))
	return response, ok && isResponse(response)
}

// contentIs reports whether the header has a content type.
func (w *replyWriter) contentIs(kind string) bool {
	return strings.HasPrefix(w.Header().Get("Content-Type"), kind)
}

// identify reports the ID of the first event. It is called with mu held.
func (w *replyWriter) identify(event []byte) {
	if id := idOf(event); id != "" && !w.identified {
		w.identified = true
		w.opened(id)
	}
}

// idOf returns the ID of an event, or "".
func idOf(event []byte) string {
	for _, start := range []string{openingEvent, messageEvent + eventID} {
		if rest, ok := bytes.CutPrefix(event, []byte(start)); ok {
			id, _, _ := bytes.Cut(rest, []byte("\n"))
			return string(id)
		}
	}
	return ""
}

// FlushError implements flushing for http.ResponseController.
func (w *replyWriter) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.decided {
		return nil
	}
	return w.deadlineWriter.FlushError()
}

// release sends the opening event if it is still held back.
func (w *replyWriter) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held != nil {
		w.decided = true
		w.deadlineWriter.Write(w.held) // if it fails, the client is gone
		w.held = nil
		w.deadlineWriter.FlushError()
		w.commentLater()
	}
}

// notHandled is how the SDK's error for an unknown method begins.
const notHandled = "JSON RPC not handled"

// finish must be called when the SDK is done with the request.
func (w *replyWriter) finish() {
	w.release()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finished = true
	if w.waiting != nil {
		w.waiting.Stop()
	}
	if w.refused == 0 {
		return
	}
	status, code, text := w.refused, int64(jsonrpc.CodeInvalidRequest), strings.TrimSpace(string(w.reason))
	switch {
	case strings.HasPrefix(text, notHandled):
		code, text = jsonrpc.CodeMethodNotFound, fmt.Sprintf("method not found: %.100q", w.request.method)
		if w.request.id != nil {
			status = http.StatusOK // to clients, another status is an error of the connection
		}
	case status >= http.StatusInternalServerError:
		code = jsonrpc.CodeInternalError
	}
	refuse(w.deadlineWriter, status, w.request.id, code, text)
}
