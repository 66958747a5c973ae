package fleet

import (
	"container/list"
	"slices"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The bounds of what is remembered of what devices said.
const (
	maxMethods = 8        // of one device
	maxWords   = 16 << 20 // bytes, of all devices
	wordCost   = 256      // bytes beside what was said
)

// words is what devices said last, each in its own words: the last thing by each
// method. Of too much, the device that has not spoken for longest is forgotten.
type words struct {
	mu    sync.Mutex
	of    map[string]*list.Element // by ID
	order *list.List               // of *speaker; who spoke last is in front
	size  int
}

// speaker is a device, and what it said: the last thing comes first.
type speaker struct {
	id   string
	said []ferrule.Event
}

func newWords() *words { return &words{of: make(map[string]*list.Element), order: list.New()} }

// Hear remembers what a device said, unless it is unknown or held: no agent may read of
// those, and they are not to take the room of others.
func (f *Fleet) RecordEvent(e ferrule.Event) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	r := f.devices[e.Device].seen()
	if e.Type == ferrule.Notified && r != nil && r.Device.Trust != ferrule.TrustPending {
		f.words.add(e)
	}
}

// Said is what a device said last, by each of the words that it used last; the last
// comes first. It is shared and read only.
func (f *Fleet) Said(id string) []ferrule.Event { return f.words.get(id) }

func (w *words) add(e ferrule.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.of[e.Device]
	if at == nil {
		at = w.order.PushFront(&speaker{id: e.Device})
		w.of[e.Device] = at
	}
	w.order.MoveToFront(at)
	s := at.Value.(*speaker)
	w.size -= s.size()
	said := []ferrule.Event{e} // a new one: whoever reads the last goes on reading
	for _, before := range s.said {
		if before.Method != e.Method && len(said) < maxMethods {
			said = append(said, before)
		}
	}
	s.said = said
	w.size += s.size()
	for w.size > maxWords {
		w.drop(w.order.Back())
	}
}

// size is about how many bytes a speaker takes.
func (s *speaker) size() (bytes int) {
	for _, e := range s.said {
		bytes += len(e.Method) + len(e.Params) + wordCost
	}
	return bytes
}

func (w *words) get(id string) []ferrule.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := w.of[id]; at != nil {
		return slices.Clip(at.Value.(*speaker).said)
	}
	return nil
}

// forget drops what a device said.
func (w *words) forget(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := w.of[id]; at != nil {
		w.drop(at)
	}
}

// drop forgets a speaker. It is called with mu held.
func (w *words) drop(at *list.Element) {
	s := w.order.Remove(at).(*speaker)
	delete(w.of, s.id)
	w.size -= s.size()
}
