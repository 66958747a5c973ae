package server

import (
	"bytes"
	"container/list"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The bounds of what is kept for agents that come back. News of changes go first: there are
// more where they came from, and there is no second answer to a call. In a session, what was
// answered goes next, and of that what is oldest.
const (
	maxKept        = 8 << 20 // bytes of all sessions
	maxKeptSession = 2 << 20 // of one
	maxKeptStreams = 64      // of one
	keptCost       = 96      // what an event takes beside its bytes, roughly
	keptTime       = 2 * time.Minute
)

// replays keeps what agents of the older era were told, so that one whose connection
// breaks in the middle of a call comes back for the answer, and the call is not made
// again. It is the SDK's EventStore; the SDK's own has no bound for the number of
// streams, and each request is one.
//
// A stream is that of a request, or has no name: on that one an agent is told of
// changes. Events are numbered from 0 in each.
type replays struct {
	mu       sync.Mutex
	sessions map[string]*keptSession
	size     int

	// Of *keptStream: those of which something is kept, the one told last at the back.
	news, calls *list.List
}

type keptSession struct {
	streams map[string]*keptStream
	size    int
}

type keptStream struct {
	session *keptSession
	name    string
	first   int      // the number of the first event that is kept, or will be
	events  [][]byte // shared, and read only
	size    int
	told    time.Time     // last
	done    bool          // it was answered: nothing more will follow
	place   *list.Element // among the news or the calls
}

func newReplays() *replays {
	return &replays{sessions: make(map[string]*keptSession), news: list.New(), calls: list.New()}
}

// Open begins a stream. A session begins with the one that has no name.
func (k *replays) Open(_ context.Context, session, stream string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.sessions[session]
	if s == nil {
		if stream != "" {
			return nil // the session ends at this moment
		}
		s = &keptSession{streams: make(map[string]*keptStream)}
		k.sessions[session] = s
	}
	if s.streams[stream] == nil {
		s.streams[stream] = &keptStream{session: s, name: stream, told: time.Now()}
		k.bound(s)
	}
	return nil
}

// Append keeps one event of a stream, which it takes over.
func (k *replays) Append(_ context.Context, session, stream string, event []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	one := k.find(session, stream)
	if one == nil {
		return fmt.Errorf("what is told on stream %q is not kept any more", stream)
	}
	one.told = time.Now()
	if len(event) == 0 && len(one.events) == 0 { // the first event is a number and nothing else
		one.first++
		return nil
	}
	one.events = append(one.events, event)
	one.done = stream != "" && isAnswer(event)
	k.grow(one, len(event)+keptCost)
	if one.place == nil {
		one.place = k.order(one).PushBack(one)
	} else {
		k.order(one).MoveToBack(one.place)
	}
	k.bound(one.session)
	for k.size > maxKept {
		first := k.news.Front()
		if first == nil {
			first = k.calls.Front()
		}
		k.reduce(first.Value.(*keptStream))
	}
	return nil
}

// order is where a stream has its place.
func (k *replays) order(one *keptStream) *list.List {
	if one.name == "" {
		return k.news
	}
	return k.calls
}

// After is what was told on a stream after an event.
func (k *replays) After(_ context.Context, session, stream string, last int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		events, err := k.after(session, stream, last)
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

// after is an error where something is missing, but for the stream on which an agent is
// told of changes: there it hears what is left, as it did when nothing was kept. To be
// refused would end its session, or leave it without news.
func (k *replays) after(session, stream string, last int) ([][]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	one := k.find(session, stream)
	if one == nil || last > math.MaxInt32 {
		return nil, fmt.Errorf("stream %q: %w", stream, mcp.ErrEventsPurged)
	}
	from := last + 1 - one.first
	if from < 0 || from > len(one.events) {
		if stream != "" {
			return nil, fmt.Errorf("stream %q after %d: %w", stream, last, mcp.ErrEventsPurged)
		}
		one.first, from = last+1, 0 // as the SDK will number them
	}
	return slices.Clone(one.events[from:]), nil
}

// SessionClosed forgets a session.
func (k *replays) SessionClosed(_ context.Context, session string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.sessions[session]; s != nil {
		for _, one := range s.streams {
			k.remove(one)
		}
		delete(k.sessions, session)
	}
	return nil
}

// forget forgets what was told before that.
func (k *replays) forget(before time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, order := range []*list.List{k.news, k.calls} {
		for e := order.Front(); e != nil && e.Value.(*keptStream).told.Before(before); e = order.Front() {
			k.clear(e.Value.(*keptStream))
		}
	}
}

// knows tells whether there is a session.
func (k *replays) knows(session string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sessions[session] != nil
}

func (k *replays) find(session, stream string) *keptStream {
	if s := k.sessions[session]; s != nil {
		return s.streams[stream]
	}
	return nil
}

// bound keeps a session within its bounds.
func (k *replays) bound(s *keptSession) {
	for s.size > maxKeptSession {
		k.reduce(s.oldest(func(one *keptStream) bool { return len(one.events) > 0 }))
	}
	for len(s.streams) > maxKeptStreams {
		k.remove(s.oldest(func(one *keptStream) bool { return one.name != "" }))
	}
}

// oldest is the stream of those that will do that is worth least, and of these the one that
// was told something longest ago.
func (s *keptSession) oldest(willDo func(*keptStream) bool) (found *keptStream) {
	for _, one := range s.streams {
		if willDo(one) && (found == nil || one.worth() < found.worth() || one.worth() == found.worth() && one.told.Before(found.told)) {
			found = one
		}
	}
	return found
}

// worth grows with what an agent loses with a stream: news, an answer that it most likely
// has, a request of which it was told nothing by which it could come back, a call that is
// under way.
func (one *keptStream) worth() int {
	switch {
	case one.name == "":
		return 0
	case one.done:
		return 1
	case one.first == 0 && len(one.events) == 0:
		return 2
	}
	return 3
}

// reduce forgets the oldest event of a stream, or all of one that was answered: without
// its beginning it is of no use.
func (k *replays) reduce(one *keptStream) {
	if one.done || len(one.events) == 1 {
		k.clear(one)
		return
	}
	k.grow(one, -len(one.events[0])-keptCost)
	one.events[0] = nil
	one.events = one.events[1:]
	one.first++
}

// clear forgets all that was told on a stream. If there is more to come, it is known
// that something is missing.
func (k *replays) clear(one *keptStream) {
	if one.done {
		k.remove(one)
		return
	}
	one.first += len(one.events)
	k.empty(one)
}

// remove forgets a stream.
func (k *replays) remove(one *keptStream) {
	k.empty(one)
	delete(one.session.streams, one.name)
}

func (k *replays) empty(one *keptStream) {
	k.grow(one, -one.size)
	one.events = nil
	if one.place != nil {
		k.order(one).Remove(one.place)
		one.place = nil
	}
}

func (k *replays) grow(one *keptStream, by int) {
	one.size += by
	one.session.size += by
	k.size += by
}

// isAnswer tells whether a message is the answer to a request. The SDK writes the id
// first, and its own requests, which are questions, have numbers.
func isAnswer(message []byte) bool {
	rest, ok := bytes.CutPrefix(message, []byte(`{"jsonrpc":"2.0","id":`))
	return ok && !bytes.HasPrefix(bytes.TrimLeft(rest, "0123456789"), []byte(`,"method":`))
}
