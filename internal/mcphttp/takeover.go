package mcphttp

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// A connection may break without notice, for example when a laptop changes its
// network. The client then resumes its stream while its old request still owns it, and
// the SDK answers 409 Conflict. Here a request that resumes a stream takes it over. One
// without Last-Event-Id asks for a stream of its own, and gets the 409: some clients send
// it besides the stream that they have, and the two would displace each other for ever.

// streamOwners records which requests own a stream of a session, or wait for it.
type streamOwners struct {
	mu       sync.Mutex
	byStream map[string][]*streamOwner // by session and stream
}

type streamOwner struct {
	handler *Handler
	session string
	use     *sessionUse        // nil if there is no such session
	stream  string             // with its session; empty if there is none yet
	leave   context.CancelFunc // ends the request
	ended   chan struct{}      // closed when the request has ended
}

func newStreamOwners() streamOwners {
	return streamOwners{byStream: make(map[string][]*streamOwner)}
}

// takeoverTime is how long a request may take to give up its stream.
const takeoverTime = time.Second

// streamOf returns the stream of an event ID; empty for the stream of notifications.
func streamOf(event string) string {
	name, _, _ := strings.Cut(event, "_")
	return name
}

// add records the stream that a request owns or waits for.
func (s *streamOwners) add(owner *streamOwner, session, event string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	owner.stream = session + " " + streamOf(event)
	s.byStream[owner.stream] = append(s.byStream[owner.stream], owner)
}

// remove records that a request has ended.
func (s *streamOwners) remove(owner *streamOwner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(owner.ended)
	if owner.stream == "" {
		return
	}
	left := slices.DeleteFunc(s.byStream[owner.stream], func(other *streamOwner) bool { return other == owner })
	if len(left) == 0 {
		delete(s.byStream, owner.stream)
		return
	}
	s.byStream[owner.stream] = left
}

// takeOver ends all other requests that own the stream, and waits until they have ended.
func (s *streamOwners) takeOver(ctx context.Context, owner *streamOwner) {
	ctx, cancel := context.WithTimeout(ctx, takeoverTime)
	defer cancel()
	s.mu.Lock()
	others := slices.Clone(s.byStream[owner.stream])
	s.mu.Unlock()
	for _, other := range others {
		if other == owner {
			continue
		}
		other.leave()
		select {
		case <-other.ended:
		case <-ctx.Done():
		}
	}
}

// begin records a request of a session. The caller must call end of its owner.
func (h *Handler) begin(r *http.Request) (*streamOwner, *http.Request) {
	session := r.Header.Get(SessionHeader)
	ctx, leave := context.WithCancel(r.Context())
	owner := &streamOwner{handler: h, session: session, leave: leave, ended: make(chan struct{})}
	if h.events.hasSession(session) { // the header may name any session
		owner.use = h.sessions.begin(session)
	}
	return owner, r.WithContext(ctx)
}

// end records that a request has ended.
func (o *streamOwner) end() {
	o.handler.owners.remove(o)
	o.leave()
	o.use.end()
}

// serveCall serves a POST of a version with sessions. A client that disconnects does not cancel
// its call: it may reconnect.
func (h *Handler) serveCall(w *deadlineWriter, r *http.Request, request *posted) {
	owner, r := h.begin(r)
	defer owner.end()
	reply := &replyWriter{deadlineWriter: w, request: request, opened: func(event string) {
		h.owners.add(owner, cmp.Or(owner.session, w.Header().Get(SessionHeader)), event)
	}}
	defer reply.finish()
	h.sessionful.ServeHTTP(reply, r)
}

// serveStream serves a GET: a client resumes a stream, or opens the one of notifications.
func (h *Handler) serveStream(w *deadlineWriter, r *http.Request) {
	owner, r := h.begin(r)
	defer owner.end()
	defer h.sessions.open(owner.session, h.config.Left)()
	event := r.Header.Get(eventHeader)
	h.owners.add(owner, owner.session, event)
	if event != "" {
		h.resume(w, r, owner, event)
		return
	}
	stream := h.newStream(w, r, owner.session)
	h.sessionful.ServeHTTP(stream, r)
	h.events.sent(owner.session, stream.last)
}

// resume continues a stream after an event.
func (h *Handler) resume(w *deadlineWriter, r *http.Request, owner *streamOwner, event string) {
	first := &streamWriter{deadlineWriter: w, resumes: true}
	h.sessionful.ServeHTTP(first, r)
	if first.conflict {
		h.owners.takeOver(r.Context(), owner)
		first = &streamWriter{deadlineWriter: w}
		h.sessionful.ServeHTTP(first, r)
	}
	h.events.sent(owner.session, first.last)
	if !first.begun && streamOf(event) != "" && r.Context().Err() == nil && h.events.hasSession(owner.session) {
		// The client has the whole stream. To an empty one it would reconnect; this status
		// tells it not to.
		w.Header().Del("Content-Type")
		w.WriteHeader(http.StatusNoContent)
	}
}

// newStream returns the stream of notifications, and makes the request continue after the last
// event that was sent: a client that does not say what it has seen gets what nobody was sent yet.
func (h *Handler) newStream(w *deadlineWriter, r *http.Request, session string) *streamWriter {
	stream := &streamWriter{deadlineWriter: w}
	if last, ok := h.events.lastSent(session); ok {
		r.Header = r.Header.Clone()
		r.Header.Set(eventHeader, last)
		if r.Header.Get(VersionHeader) >= SessionVersion {
			stream.opening = fmt.Appendf(nil, "retry: %d\n%s%s\n%s\n\n", reconnectDelay.Milliseconds(), openingEvent, last, eventData)
		}
	}
	return stream
}

// streamWriter answers a GET.
type streamWriter struct {
	*deadlineWriter
	// resumes discards a response that says that another request owns the stream.
	resumes bool
	// opening is an event that follows the first write. With its ID, a client can take its
	// stream over before there was any other event.
	opening []byte

	conflict bool   // the response was discarded
	begun    bool   // there is a response
	last     string // ID of the last event that was written
}

func (w *streamWriter) WriteHeader(status int) {
	if status == http.StatusConflict && w.resumes {
		w.conflict = true
		return
	}
	if status != http.StatusOK {
		w.opening = nil
	}
	w.begun = true
	w.deadlineWriter.WriteHeader(status)
}

func (w *streamWriter) Write(p []byte) (int, error) {
	if w.conflict {
		return len(p), nil
	}
	w.begun = true
	n, err := w.deadlineWriter.Write(slices.Concat(p, w.opening))
	w.opening = nil
	if id := idOf(p); id != "" && err == nil {
		w.last = id
	}
	return min(n, len(p)), err
}
