package mcpserver

import (
	"container/list"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The bounds of what is kept for callers of the older era whose connection broke, and
// who come back for what they missed. What was told longest ago goes first.
const (
	maxKept        = 256 << 10 // bytes of the answers to requests
	maxKeptStreams = 256       // requests
	maxKeptNews    = 16        // of what a session is told without asking
	maxNews        = 4 << 10   // bytes of one of these
)

// kept keeps that. It is the SDK's EventStore: the SDK's own keeps something of every
// request for as long as its session lasts, and refuses the stream of news once it has
// dropped one. News are on the stream that has no name.
type kept struct {
	mu       sync.Mutex
	sessions map[string]map[string]*keptStream // by the names of sessions and streams
	order    *list.List                        // of *keptStream, the one told last at the back; without those of news
	size     int                               // bytes of those
}

type keptStream struct {
	session, name string
	first         int // the number of the first event that is kept
	events        [][]byte
	size          int
	place         *list.Element
}

func newKept() *kept {
	return &kept{sessions: make(map[string]map[string]*keptStream), order: list.New()}
}

// Open begins a stream. A session begins with that of its news.
func (k *kept) Open(_ context.Context, session, stream string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	streams := k.sessions[session]
	if streams == nil && stream == "" {
		streams = make(map[string]*keptStream)
		k.sessions[session] = streams
	}
	if streams == nil || streams[stream] != nil {
		return nil // a session that is gone begins no more
	}
	one := &keptStream{session: session, name: stream}
	streams[stream] = one
	if stream != "" {
		one.place = k.order.PushBack(one)
		k.bound()
	}
	return nil
}

// Append keeps one event.
func (k *kept) Append(_ context.Context, session, stream string, event []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	one := k.sessions[session][stream]
	if one == nil {
		return fmt.Errorf("what is told on stream %q is not kept any more", stream)
	}
	one.events = append(one.events, event)
	if stream == "" {
		drop := max(0, len(one.events)-maxKeptNews)
		if len(event) > maxNews {
			drop = len(one.events)
		}
		one.events = slices.Delete(one.events, 0, drop)
		one.first += drop
		return nil
	}
	one.size += len(event)
	k.size += len(event)
	k.order.MoveToBack(one.place)
	k.bound()
	return nil
}

// bound forgets the oldest streams.
func (k *kept) bound() {
	for k.size > maxKept || k.order.Len() > maxKeptStreams {
		k.forget(k.order.Front().Value.(*keptStream))
	}
}

func (k *kept) forget(one *keptStream) {
	delete(k.sessions[one.session], one.name)
	if one.place != nil {
		k.order.Remove(one.place)
		k.size -= one.size
	}
}

// After is what was told on a stream after an event. It is an error where something is
// missing; of news, what is left is told.
func (k *kept) After(_ context.Context, session, stream string, last int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		events, err := k.after(session, stream, last)
		if err != nil {
			yield(nil, err)
		}
		for _, event := range events {
			if !yield(event, nil) {
				return
			}
		}
	}
}

func (k *kept) after(session, stream string, last int) ([][]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	one := k.sessions[session][stream]
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
func (k *kept) SessionClosed(_ context.Context, session string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, one := range k.sessions[session] {
		k.forget(one)
	}
	delete(k.sessions, session)
	return nil
}
