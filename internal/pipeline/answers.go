package pipeline

import (
	"bytes"
	"container/list"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The limits of the cache. The least recently used answer is dropped first.
const (
	maxAnswers     = 4096
	maxAnswerBytes = 16 << 20  // of all answers
	maxAnswer      = 256 << 10 // of one answer
	answerCost     = 256       // estimated overhead of one answer
)

// answers is the cache of answers. It is safe for concurrent use. The answers that
// it returns are shared and read only.
type answers struct {
	mu           sync.Mutex
	devices      map[string]deviceAnswers // by ID; only those with answers or calls in flight
	order        *list.List               // of *answer, most recently used first
	bytes        int
	hits, misses uint64
}

// deviceAnswers holds the cached answers of a device and counts its calls in flight.
type deviceAnswers struct {
	answers map[answerKey]*list.Element
	// inFlight counts the calls in flight; changing counts those that may change
	// something.
	inFlight, changing int
	// generation counts how often a change has begun or ended. It restarts from 0
	// when the entry was dropped, which is safe: then no call was in flight.
	generation uint64
}

type answer struct {
	key    answerKey
	result ferrule.Result
	when   time.Time
	size   int
}

func newAnswers() *answers {
	return &answers{devices: make(map[string]deviceAnswers), order: list.New()}
}

// find returns the cached answer if it is younger than lifetime. Its Age is at
// least one millisecond, so that the caller sees that it is cached.
func (a *answers) find(key answerKey, lifetime time.Duration) *ferrule.Result {
	a.mu.Lock()
	defer a.mu.Unlock()
	element := a.devices[key.device].answers[key]
	if element == nil {
		a.misses++
		return nil
	}
	found := element.Value.(*answer)
	age := time.Since(found.when)
	if age >= lifetime {
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

// begin is called before a call is sent to a device. The result is for end.
func (a *answers) begin(device string, changes bool) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.devices[device]
	s.inFlight++
	if changes {
		s.changing++
		a.invalidate(&s)
	}
	a.devices[device] = s
	return s.generation
}

// end is called after a call has ended. It caches the result unless it is nil or a
// call that may change something was in flight at the same time.
func (a *answers) end(device string, changes bool, generation uint64, key answerKey, result *ferrule.Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.devices[device]
	quiet := s.generation == generation
	s.inFlight--
	if changes {
		s.changing--
		a.invalidate(&s)
	}
	if result != nil && quiet && s.changing == 0 {
		a.keep(&s, key, result)
	}
	a.put(device, s)
	for a.order.Len() > maxAnswers || a.bytes > maxAnswerBytes {
		a.drop(a.order.Back())
	}
}

// invalidate drops the answers of a device, and prevents that reads in flight are
// cached.
func (a *answers) invalidate(s *deviceAnswers) {
	s.generation++
	for _, element := range s.answers {
		a.remove(element)
	}
	s.answers = nil
}

func (a *answers) keep(s *deviceAnswers, key answerKey, result *ferrule.Result) {
	size := len(result.Value) + len(result.Text) + len(key.args) + contentSize(result.Content) + answerCost
	if size > maxAnswer {
		return
	}
	if s.answers == nil {
		s.answers = make(map[answerKey]*list.Element)
	} else if old := s.answers[key]; old != nil {
		a.remove(old)
	}
	fresh := &answer{key: key, result: *result, when: time.Now().Add(-time.Duration(result.Age)), size: size}
	fresh.result.Value = bytes.Clone(result.Value) // it may be part of a larger buffer
	s.answers[key] = a.order.PushFront(fresh)
	a.bytes += size
}

// contentSize estimates the memory of content.
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

// drop removes an answer.
func (a *answers) drop(element *list.Element) {
	key := a.remove(element)
	s := a.devices[key.device]
	delete(s.answers, key)
	a.put(key.device, s)
}

// remove removes an answer from the order. The caller removes it from its device.
func (a *answers) remove(element *list.Element) answerKey {
	gone := a.order.Remove(element).(*answer)
	a.bytes -= gone.size
	return gone.key
}

// put stores the entry of a device, or deletes it if it is empty.
func (a *answers) put(device string, s deviceAnswers) {
	if s.inFlight == 0 && len(s.answers) == 0 {
		delete(a.devices, device)
		return
	}
	a.devices[device] = s
}

func (a *answers) count(s *Stats) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.CacheHits, s.CacheMisses, s.CacheEntries, s.CacheBytes = a.hits, a.misses, a.order.Len(), a.bytes
}
