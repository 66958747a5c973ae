package pipeline

import (
	"bytes"
	"container/list"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The bounds of what is kept. What was not used for the longest time goes first.
const (
	maxAnswers     = 4096
	maxAnswerBytes = 16 << 20  // of all
	maxAnswer      = 256 << 10 // of one
	answerCost     = 256       // what one takes beside its texts, roughly
)

// answers is what devices have said, as far as it is kept. It is safe for use by
// many goroutines, and what it hands out is shared and read only.
type answers struct {
	mu           sync.Mutex
	shelves      map[string]shelf // by device; there is none where nothing is kept or under way
	order        *list.List       // of answer, what was used last in front
	bytes        int
	hits, misses uint64
}

// shelf is what is kept of one device, and what is under way to it.
type shelf struct {
	answers map[question]*list.Element
	// underway counts the calls that have not ended, and changing those of
	// them that may change something.
	underway, changing int
	// turns counts how often a change has begun or ended. It starts anew with
	// the shelf, when nobody remembers it.
	turns uint64
}

type answer struct {
	asked  question
	result ferrule.Result
	said   time.Time
	size   int
}

func newAnswers() *answers {
	return &answers{shelves: make(map[string]shelf), order: list.New()}
}

// find returns the answer to a question, if it is not older than life, with its
// age: in milliseconds, and one at least, so that it is seen not to be new.
func (a *answers) find(asked question, life time.Duration) *ferrule.Result {
	a.mu.Lock()
	defer a.mu.Unlock()
	element := a.shelves[asked.device].answers[asked]
	if element == nil {
		a.misses++
		return nil
	}
	found := element.Value.(*answer)
	age := time.Since(found.said)
	if age >= life {
		a.drop(element)
		a.misses++
		return nil
	}
	a.hits++
	a.order.MoveToFront(element)
	result := found.result
	result.Age = ferrule.Duration(max(age.Round(time.Millisecond), time.Millisecond))
	return &result
}

// begin tells that a call is sent to a device. What it returns is for end.
func (a *answers) begin(device string, changes bool) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.shelves[device]
	s.underway++
	if changes {
		s.changing++
		a.turn(&s)
	}
	a.shelves[device] = s
	return s.turns
}

// end tells that a call has ended. Its result, if it is to be kept, is kept
// unless another call that may have changed something was under way meanwhile.
func (a *answers) end(device string, changes bool, mark uint64, asked question, result *ferrule.Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.shelves[device]
	quiet := s.turns == mark
	s.underway--
	if changes {
		s.changing--
		a.turn(&s)
	}
	if result != nil && quiet && s.changing == 0 {
		a.keep(&s, asked, result)
	}
	a.put(device, s)
	for a.order.Len() > maxAnswers || a.bytes > maxAnswerBytes {
		a.drop(a.order.Back())
	}
}

// turn drops what is kept of a device, and has reads that are under way to it
// not be kept.
func (a *answers) turn(s *shelf) {
	s.turns++
	for _, element := range s.answers {
		a.remove(element)
	}
	s.answers = nil
}

func (a *answers) keep(s *shelf, asked question, result *ferrule.Result) {
	size := len(result.Value) + len(result.Text) + len(asked.args) + contentSize(result.Content) + answerCost
	if size > maxAnswer {
		return
	}
	if s.answers == nil {
		s.answers = make(map[question]*list.Element)
	} else if old := s.answers[asked]; old != nil {
		a.remove(old)
	}
	fresh := &answer{asked: asked, result: *result, said: time.Now().Add(-time.Duration(result.Age)), size: size}
	fresh.result.Value = bytes.Clone(result.Value) // it may be part of something larger
	s.answers[asked] = a.order.PushFront(fresh)
	a.bytes += size
}

// contentSize is what parts of an answer take, roughly.
func contentSize(all []ferrule.Content) (size int) {
	for i := range all {
		c := &all[i]
		size += answerCost + len(c.Text) + len(c.Data) + len(c.MIME) + len(c.URI)
		if c.Link == nil {
			continue
		}
		size += answerCost + len(c.Link.Text) + len(c.Link.URI)
		for _, icon := range c.Link.Icons {
			size += answerCost + len(icon.Source)
		}
	}
	return size
}

// drop forgets one answer.
func (a *answers) drop(element *list.Element) {
	asked := a.remove(element)
	s := a.shelves[asked.device]
	delete(s.answers, asked)
	a.put(asked.device, s)
}

// remove takes an answer out of the order; its shelf is left to the caller.
func (a *answers) remove(element *list.Element) question {
	gone := a.order.Remove(element).(*answer)
	a.bytes -= gone.size
	return gone.asked
}

// put puts a shelf back, if there is a use for it.
func (a *answers) put(device string, s shelf) {
	if s.underway == 0 && len(s.answers) == 0 {
		delete(a.shelves, device)
		return
	}
	a.shelves[device] = s
}

func (a *answers) count(s *Stats) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.CacheHits, s.CacheMisses, s.CacheEntries, s.CacheBytes = a.hits, a.misses, a.order.Len(), a.bytes
}
