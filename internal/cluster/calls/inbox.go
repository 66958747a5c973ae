package calls

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"
)

// Limits on the calls of other nodes.
const (
	maxServed = 8192             // calls served at a time
	keepTime  = 30 * time.Second // how long an outcome is kept
	maxKept   = 65536
	keptBytes = 32 << 20
	maxTime   = 10 * time.Minute // for a call without a deadline
	slack     = 2 * time.Second  // how long an ask may be in transit
)

// inbox has the calls of other nodes that this node serves or has served recently, by
// reply subject: a call that arrives twice is served once, and its outcome can be asked
// for.
type inbox struct {
	mu      sync.Mutex
	calls   map[string]*served
	kept    []string // calls that have ended, oldest first
	bytes   int
	running int
	// forgotten is the arrival of the newest call that was dropped. A call that
	// was certainly sent later and is not here has never arrived.
	forgotten time.Time
	// floors has, for each run of a node, the highest number of its calls that was
	// dropped. A call up to it is not served: it may be a copy of one that was.
	floors map[run]uint64
}

// served is a call of another node.
type served struct {
	from   run
	number uint64
	came   time.Time
	ended  time.Time
	cancel context.CancelFunc // nil if it was asked about before it arrived
	final  [][]byte           // final frames; nil while it runs
	size   int

	answers map[int]chan answer // for open questions
	count   int
}

func newInbox() *inbox {
	return &inbox{calls: make(map[string]*served), forgotten: time.Now(), floors: make(map[run]uint64)}
}

var (
	errTwice = errors.New("it arrived before")
	errOld   = errors.New("it may have arrived before")
	errFull  = errors.New("too many calls at a time")
)

// enter adds a call, unless it arrived before.
func (i *inbox) enter(from run, number uint64, reply string, cancel context.CancelFunc) (*served, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.calls[reply] != nil {
		return nil, errTwice
	}
	if number <= i.floors[from] {
		return nil, errOld
	}
	if i.running >= maxServed {
		return nil, errFull
	}
	// model: call_accept
	s := &served{from: from, number: number, came: time.Now(), cancel: cancel}
	i.calls[reply] = s
	i.running++
	return s, nil
}

// leave keeps the outcome of a call.
func (i *inbox) leave(reply string, s *served, final [][]byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.running--
	i.keep(reply, s, final)
}

func (i *inbox) keep(reply string, s *served, final [][]byte) {
	s.final, s.ended, s.cancel, s.answers = final, time.Now(), nil, nil
	s.size = len(reply) + 200
	for _, f := range final {
		s.size += len(f)
	}
	i.bytes += s.size
	i.kept = append(i.kept, reply)
	old := s.ended.Add(-keepTime)
	for len(i.kept) > maxKept || i.bytes > keptBytes || len(i.kept) > 0 && i.calls[i.kept[0]].ended.Before(old) {
		// model: call_forget
		first := i.calls[i.kept[0]]
		delete(i.calls, i.kept[0])
		i.kept = i.kept[1:]
		i.bytes -= first.size
		i.forgotten = later(i.forgotten, first.came)
		i.floors[first.from] = max(i.floors[first.from], first.number)
	}
}

// ask returns the frames for the state of a call, whose age the caller gives. A call
// that has not arrived is rejected from now on.
//
// The ask took time too, so the call is older than its age. Only the caller can know by
// how much: it does not believe an answer to an ask older than slack.
func (i *inbox) ask(from run, number uint64, reply string, age time.Duration) [][]byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.calls[reply]
	switch {
	case s != nil && s.final != nil:
		return s.final
	case s != nil:
		return [][]byte{{frameRunning}}
	case number <= i.floors[from] || !time.Now().Add(-age-slack).After(i.forgotten):
		return [][]byte{{frameForgot}}
	}
	// model: call_missed
	s = &served{from: from, number: number, came: time.Now()}
	i.calls[reply] = s
	i.keep(reply, s, [][]byte{unknown(age)})
	return [][]byte{unknown(age)}
}

// unknown returns the frame for a call that has not arrived, with its age when its
// caller asked.
func unknown(age time.Duration) []byte { return binary.AppendVarint([]byte{frameUnknown}, int64(age)) }

// cancel cancels a call whose caller is gone.
func (i *inbox) cancel(reply string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if s := i.calls[reply]; s != nil && s.cancel != nil {
		s.cancel()
	}
}

// answered delivers the answer to a question.
func (i *inbox) answered(reply string, a answer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if s := i.calls[reply]; s != nil && s.answers[a.Number] != nil {
		s.answers[a.Number] <- a // buffered
		delete(s.answers, a.Number)
	}
}

// question opens a question, and returns its number and where its answer arrives.
func (i *inbox) question(s *served) (int, <-chan answer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if s.answers == nil {
		s.answers = make(map[int]chan answer)
	}
	s.count++
	ch := make(chan answer, 1)
	s.answers[s.count] = ch
	return s.count, ch
}

func (i *inbox) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.running
}
