package mcphttp

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// A connection may break without notice, for example when a laptop changes its
// network. The client then reconnects while its old request still owns the stream, and
// the SDK answers 409 Conflict. Here the newest request takes the stream over.

// streamOwners records which requests own a stream of a session, or wait for it.
type streamOwners struct {
	mu       sync.Mutex
	byStream map[string][]*streamOwner // by session and stream
}

type streamOwner struct {
	stream string             // with its session; empty if there is none yet
	leave  context.CancelFunc // ends the request
	ended  chan struct{}      // closed when the request has ended
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

// serveSession serves a request of a version with sessions. A client that disconnects
// does not cancel its call: it may reconnect.
func (h *Handler) serveSession(w *deadlineWriter, r *http.Request) {
	session := r.Header.Get(SessionHeader)
	if h.events.hasSession(session) { // the header may name any session
		defer h.sessions.begin(session).end()
	}
	ctx, leave := context.WithCancel(r.Context())
	defer leave()
	r = r.WithContext(ctx)
	owner := &streamOwner{leave: leave, ended: make(chan struct{})}
	defer h.owners.remove(owner)
	if r.Method != http.MethodGet {
		opening := &openingWriter{deadlineWriter: w, opened: func(event string) {
			h.owners.add(owner, cmp.Or(session, w.Header().Get(SessionHeader)), event)
		}}
		defer opening.release()
		h.sessionful.ServeHTTP(opening, r)
		return
	}
	h.owners.add(owner, session, r.Header.Get(eventHeader))
	first := &conflictWriter{deadlineWriter: w}
	if h.sessionful.ServeHTTP(first, r); first.conflict {
		h.owners.takeOver(ctx, owner)
		h.sessionful.ServeHTTP(w, r)
	}
}

// conflictWriter discards a response that says that another request owns the stream.
type conflictWriter struct {
	*deadlineWriter
	conflict bool
}

func (w *conflictWriter) WriteHeader(status int) {
	if status == http.StatusConflict {
		w.conflict = true
		return
	}
	w.deadlineWriter.WriteHeader(status)
}

func (w *conflictWriter) Write(p []byte) (int, error) {
	if w.conflict {
		return len(p), nil
	}
	return w.deadlineWriter.Write(p)
}
