package server

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Where a connection breaks without a word, say because a laptop has changed its
// network, the agent is back before it is noticed here: the request that it had still has
// the stream, and the SDK refuses the new one. Here the newest wins.

// claims knows which requests have a stream of an agent of the older era, or want it.
type claims struct {
	mu  sync.Mutex
	all map[string][]*claim // by session and stream
}

type claim struct {
	stream string             // with its session; empty if it has none yet
	leave  context.CancelFunc // ends the request
	over   chan struct{}      // closed when it has ended
}

// leaveTime is how long a request may take to end that has to leave its stream.
const leaveTime = time.Second

// streamOf is the name of the stream that an event belongs to; empty for the one on
// which agents are told of changes.
func streamOf(event string) string {
	name, _, _ := strings.Cut(event, "_")
	return name
}

// put notes which stream a request has, or wants.
func (c *claims) put(one *claim, session, event string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one.stream = session + " " + streamOf(event)
	c.all[one.stream] = append(c.all[one.stream], one)
}

// end notes that a request has ended.
func (c *claims) end(one *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(one.over)
	if one.stream == "" {
		return
	}
	left := slices.DeleteFunc(c.all[one.stream], func(other *claim) bool { return other == one })
	if len(left) == 0 {
		delete(c.all, one.stream)
		return
	}
	c.all[one.stream] = left
}

// clear has all other requests leave a stream, and waits until they have.
func (c *claims) clear(ctx context.Context, mine *claim) {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	c.mu.Lock()
	others := slices.Clone(c.all[mine.stream])
	c.mu.Unlock()
	for _, other := range others {
		if other == mine {
			continue
		}
		other.leave()
		select {
		case <-other.over:
		case <-ctx.Done():
		}
	}
}

// serveLegacy serves a request of the older era. That its agent goes away ends no call:
// it may come back.
func (f *Server) serveLegacy(legacy http.Handler, w *timedWriter, r *http.Request) {
	session := r.Header.Get(sessionHeader)
	if f.replays.knows(session) { // anybody can name another
		defer f.sessions.use(session)()
	}
	ctx, leave := context.WithCancel(r.Context())
	defer leave()
	r = r.WithContext(ctx)
	mine := &claim{leave: leave, over: make(chan struct{})}
	defer f.claims.end(mine)
	if r.Method != http.MethodGet {
		opening := &openingWriter{timedWriter: w, opened: func(event string) {
			f.claims.put(mine, cmp.Or(session, w.Header().Get(sessionHeader)), event)
		}}
		defer opening.let()
		legacy.ServeHTTP(opening, r)
		return
	}
	f.claims.put(mine, session, r.Header.Get(eventHeader))
	first := &refusedWriter{timedWriter: w}
	if legacy.ServeHTTP(first, r); first.refused {
		f.claims.clear(ctx, mine)
		legacy.ServeHTTP(w, r)
	}
}

// refusedWriter keeps to itself that a stream belongs to another request.
type refusedWriter struct {
	*timedWriter
	refused bool
}

func (w *refusedWriter) WriteHeader(status int) {
	if status == http.StatusConflict {
		w.refused = true
		return
	}
	w.timedWriter.WriteHeader(status)
}

func (w *refusedWriter) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	return w.timedWriter.Write(p)
}
