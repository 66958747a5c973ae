package cluster

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// spool keeps events until they are where all nodes can read them. It is bounded:
// the oldest go first, and how many have gone is told.
type spool struct {
	name string // tells the numbers of one spool from those of another

	mu     sync.Mutex
	events []ferrule.Event // by number; where one is missing it was lost
	said   int             // how many of them are what devices said
	last   uint64
	lost   int       // since it was last told
	ever   uint64    // of all that were lost, those that were told
	told   time.Time // when it was last told that some are
	ended  bool      // there will be no more
	more   bell
}

// maxSpool is how many events wait in memory.
const maxSpool = 16384

// toldEvery is how often it is told at most that events are lost.
const toldEvery = time.Minute

func newSpool(name string) *spool { return &spool{name: name} }

func (s *spool) origin() string { return s.name }

// add numbers an event and keeps it.
func (s *spool) add(e ferrule.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	e.Seq = s.last
	if e.Type == ferrule.Notified {
		if s.said >= maxSaid {
			s.lost++
			return
		}
		s.said++
	}
	if len(s.events) >= maxSpool {
		drop := maxSpool / 16 // not one at a time
		s.forget(drop)
		s.events = append(make([]ferrule.Event, 0, maxSpool), s.events...)
		s.lost += drop
	}
	s.events = append(s.events, e)
	s.more.ring()
}

// forget drops the first events. It is called with mu held.
func (s *spool) forget(n int) {
	for _, e := range s.events[:n] {
		if e.Type == ferrule.Notified {
			s.said--
		}
	}
	clear(s.events[:n]) // what devices said is long
	s.events = s.events[n:]
}

// lose counts an event that could not even be added.
func (s *spool) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	s.lost++
}

// next waits for the first event after a number, and forgets those up to it.
func (s *spool) next(ctx context.Context, after uint64) (ferrule.Event, error) {
	for {
		more := s.more.wait()
		s.mu.Lock()
		for len(s.events) > 0 && s.events[0].Seq <= after {
			s.forget(1)
		}
		if len(s.events) > 0 {
			e := s.events[0]
			s.mu.Unlock()
			return e, nil
		}
		ended := s.ended
		s.mu.Unlock()
		if ended {
			return ferrule.Event{}, io.EOF
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ferrule.Event{}, ctx.Err()
		}
	}
}

// end tells that there will be no more events: who has taken the last is told so.
func (s *spool) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.more.ring()
}

// dropped tells how many events were lost, and begins to count anew; 0 if that was
// told a moment ago.
func (s *spool) dropped() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == 0 || time.Since(s.told) < toldEvery {
		return 0
	}
	n := s.lost
	s.lost, s.ever, s.told = 0, s.ever+uint64(n), time.Now()
	return n
}

// bell wakes all who wait for it.
type bell struct {
	mu   sync.Mutex
	rung chan struct{} // closed by the next ring; nil if nobody waits
}

// wait returns what is closed when the bell rings next.
func (b *bell) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung == nil {
		b.rung = make(chan struct{})
	}
	return b.rung
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung != nil {
		close(b.rung)
		b.rung = nil
	}
}
