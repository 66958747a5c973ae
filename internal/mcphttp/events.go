package mcphttp

import (
	"bytes"
	"container/list"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// EventLimits limit what an EventStore keeps.
//
// Notifications are dropped first: later ones say the same, and a call has only one
// response. In a session, answered calls are dropped next, oldest first.
type EventLimits struct {
	// Total is the limit for all sessions, in bytes, Session the one for each.
	Total, Session int
	// Age is how long events are kept; 0 to keep them within the other limits.
	Age time.Duration
}

const (
	maxSessionStreams = 64 // of one session
	eventCost         = 96 // roughly what an event takes in addition to its bytes
)

// EventStore implements the SDK's EventStore. It keeps what clients of versions with
// sessions were sent, so that a client whose connection breaks in the middle of a call
// reconnects and gets the response, and the call is not made again. The SDK's own
// store does not limit the number of streams, and each request is a stream.
//
// The stream without a name is for notifications. Events are numbered from 0 in each
// stream; in that of notifications, event 0 is the opening event.
type EventStore struct {
	limits EventLimits

	mu       sync.Mutex
	sessions map[string]*storedSession
	size     int

	// Streams with stored events, the last used at the back.
	notifications, calls *list.List // of *storedStream
}

type storedSession struct {
	streams map[string]*storedStream
	size    int
}

type storedStream struct {
	session  *storedSession
	name     string
	first    int      // number of the first stored event, or of the next one
	events   [][]byte // shared and read-only
	size     int
	used     time.Time     // when the last event was added
	answered bool          // nothing follows
	sent     int           // number of the last notification that a client was sent
	place    *list.Element // in notifications or calls; nil without events
}

// NewEventStore returns an empty store.
func NewEventStore(limits EventLimits) *EventStore {
	return &EventStore{limits: limits, sessions: make(map[string]*storedSession), notifications: list.New(), calls: list.New()}
}

// Open begins a stream. A session begins with its stream of notifications.
func (e *EventStore) Open(_ context.Context, session, stream string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sessions[session]
	if s == nil {
		if stream != "" {
			return nil // the session has just ended
		}
		s = &storedSession{streams: make(map[string]*storedStream)}
		e.sessions[session] = s
	}
	if s.streams[stream] == nil {
		opened := &storedStream{session: s, name: stream, used: time.Now()}
		if stream == "" {
			opened.first = 1
		}
		s.streams[stream] = opened
		e.limit(s)
	}
	return nil
}

// Append stores an event, and takes its bytes over.
func (e *EventStore) Append(_ context.Context, session, stream string, event []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.find(session, stream)
	if s == nil {
		return fmt.Errorf("events of stream %q are no longer kept", stream)
	}
	s.used = time.Now()
	if len(event) == 0 && len(s.events) == 0 { // the opening event has only a number
		s.first++
		return nil
	}
	s.events = append(s.events, event)
	s.answered = stream != "" && isResponse(event)
	e.grow(s, len(event)+eventCost)
	if s.place == nil {
		s.place = e.order(s).PushBack(s)
	} else {
		e.order(s).MoveToBack(s.place)
	}
	e.limit(s.session)
	for e.size > e.limits.Total {
		first := e.notifications.Front()
		if first == nil {
			first = e.calls.Front()
		}
		e.dropOldest(first.Value.(*storedStream))
	}
	return nil
}

// order returns the list that a stream is in.
func (e *EventStore) order(s *storedStream) *list.List {
	if s.name == "" {
		return e.notifications
	}
	return e.calls
}

// After yields the events of a stream after a number.
func (e *EventStore) After(_ context.Context, session, stream string, last int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		events, err := e.after(session, stream, last)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, event := range events {
			if !yield(event, nil) {
				return
			}
		}
	}
}

// after returns an error if events are missing, except for the stream of notifications:
// there the client gets the events that are left. An error would end its session, or
// leave it without notifications.
func (e *EventStore) after(session, stream string, last int) ([][]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.find(session, stream)
	if s == nil || last > math.MaxInt32 {
		return nil, fmt.Errorf("stream %q: %w", stream, mcp.ErrEventsPurged)
	}
	from := last + 1 - s.first
	if from < 0 || from > len(s.events) {
		if stream != "" {
			return nil, fmt.Errorf("stream %q after %d: %w", stream, last, mcp.ErrEventsPurged)
		}
		s.first, from = last+1, 0 // the SDK numbers them from there
	}
	return slices.Clone(s.events[from:]), nil
}

// SessionClosed drops a session.
func (e *EventStore) SessionClosed(_ context.Context, session string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.sessions[session]; s != nil {
		for _, stream := range s.streams {
			e.remove(stream)
		}
		delete(e.sessions, session)
	}
	return nil
}

// Expire drops the events of streams that were last used before a time.
func (e *EventStore) Expire(before time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, order := range []*list.List{e.notifications, e.calls} {
		for first := order.Front(); first != nil && first.Value.(*storedStream).used.Before(before); first = order.Front() {
			e.drop(first.Value.(*storedStream))
		}
	}
}

// sent records that a client was sent an event. Only notifications matter.
func (e *EventStore) sent(session, event string) {
	stream, number, _ := strings.Cut(event, "_")
	n, err := strconv.Atoi(number)
	if err != nil || stream != "" {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.find(session, ""); s != nil {
		s.sent = n
	}
}

// lastSent returns the ID of the last notification that a client was sent. Ok is false
// if there is no such session.
func (e *EventStore) lastSent(session string) (event string, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.find(session, "")
	if s == nil {
		return "", false
	}
	return "_" + strconv.Itoa(s.sent), true
}

// hasSession reports whether a session exists.
func (e *EventStore) hasSession(session string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sessions[session] != nil
}

func (e *EventStore) find(session, stream string) *storedStream {
	if s := e.sessions[session]; s != nil {
		return s.streams[stream]
	}
	return nil
}

// limit keeps a session within its limits.
func (e *EventStore) limit(s *storedSession) {
	for s.size > e.limits.Session {
		e.dropOldest(s.leastValuable(func(stream *storedStream) bool { return len(stream.events) > 0 }))
	}
	for len(s.streams) > maxSessionStreams {
		e.remove(s.leastValuable(func(stream *storedStream) bool { return stream.name != "" }))
	}
}

// leastValuable returns the stream with the lowest value of those that match, and of
// several the least recently used.
func (s *storedSession) leastValuable(match func(*storedStream) bool) (found *storedStream) {
	for _, stream := range s.streams {
		if match(stream) && (found == nil || stream.value() < found.value() || stream.value() == found.value() && stream.used.Before(found.used)) {
			found = stream
		}
	}
	return found
}

// value ranks streams by what a client loses with them: notifications, a response that
// it most likely has, a request that it cannot reconnect to because it got no event, a
// call under way.
func (s *storedStream) value() int {
	switch {
	case s.name == "":
		return 0
	case s.answered:
		return 1
	case s.first == 0 && len(s.events) == 0:
		return 2
	}
	return 3
}

// dropOldest drops the oldest event of a stream, or all events of an answered one,
// which are useless without the first.
func (e *EventStore) dropOldest(s *storedStream) {
	if s.answered || len(s.events) == 1 {
		e.drop(s)
		return
	}
	e.grow(s, -len(s.events[0])-eventCost)
	s.events[0] = nil
	s.events = s.events[1:]
	s.first++
}

// drop drops all events of a stream. The stream itself stays unless it was answered,
// so that a client learns that events are missing.
func (e *EventStore) drop(s *storedStream) {
	if s.answered {
		e.remove(s)
		return
	}
	s.first += len(s.events)
	e.empty(s)
}

func (e *EventStore) remove(s *storedStream) {
	e.empty(s)
	delete(s.session.streams, s.name)
}

func (e *EventStore) empty(s *storedStream) {
	e.grow(s, -s.size)
	s.events = nil
	if s.place != nil {
		e.order(s).Remove(s.place)
		s.place = nil
	}
}

func (e *EventStore) grow(s *storedStream, by int) {
	s.size += by
	s.session.size += by
	e.size += by
}

// isResponse reports whether a message is a response. The SDK writes the ID first, and
// its own requests to clients have numbers as IDs.
func isResponse(message []byte) bool {
	rest, ok := bytes.CutPrefix(message, []byte(`{"jsonrpc":"2.0","id":`))
	return ok && !bytes.HasPrefix(bytes.TrimLeft(rest, "0123456789"), []byte(`,"method":`))
}
