package limits

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// prefix begins the keys of shared states.
const prefix = "limits."

// sharedState is the state of an output at the node that holds its device. It is condensed,
// because shared records are small; it never allows more than the state itself.
type sharedState struct {
	Node  string  `json:"node"`
	Key   string  `json:"key"`
	State state   `json:"state"` // without Calls
	Calls []calls `json:"calls,omitempty"`
}

// calls are calls that count as ended at one time.
type calls struct {
	At    time.Time `json:"at"`
	Count int       `json:"count"`
}

// maxShared limits the lists of a shared state.
const maxShared = 16

// condense returns a state as it is shared: calls count as later than they were, and
// short pauses as on.
func condense(s state) (state, []calls) {
	s = s.clone()
	var all []calls
	for size := (len(s.Calls) + maxShared - 1) / maxShared; len(s.Calls) > 0; {
		n := min(size, len(s.Calls))
		all = append(all, calls{s.Calls[n-1], n})
		s.Calls = s.Calls[n:]
	}
	s.Calls = nil
	for len(s.Used) > maxShared {
		first := 0 // of the two with the shortest pause between them
		for i := range s.Used[:len(s.Used)-1] {
			if s.Used[i+1].From.Sub(s.Used[i].Until) < s.Used[first+1].From.Sub(s.Used[first].Until) {
				first = i
			}
		}
		s.Used[first].Until = s.Used[first+1].Until
		s.Used = slices.Delete(s.Used, first+1, first+2)
	}
	return s, all
}

// expand returns the state of another node.
func (s *sharedState) expand() state {
	all := s.State
	for _, c := range s.Calls {
		for range min(c.Count, ferrule.MaxRate-len(all.Calls)) {
			all.Calls = append(all.Calls, c.At)
		}
	}
	return all
}

func sharedKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return prefix + hex.EncodeToString(sum[:16])
}

// Run shares states with other nodes until ctx ends. A node that is alone does not need it.
func (l *Limits) Run(ctx context.Context) error {
	l.parts.Shared.Watch(l.heard)
	return l.outbox.Run(ctx, l.parts.Shared, l.log)
}

func (l *Limits) share(key string, s state) {
	if l.parts.Shared == nil {
		return
	}
	condensed, calls := condense(s)
	if data, err := json.Marshal(sharedState{l.parts.Node, key, condensed, calls}); err == nil {
		l.outbox.Put(sharedKey(key), data)
	}
}

// heard is called with the records of all nodes.
func (l *Limits) heard(name string, value []byte) {
	var s sharedState
	if !strings.HasPrefix(name, prefix) || json.Unmarshal(value, &s) != nil || s.Node == l.parts.Node || sharedKey(s.Key) != name {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.foreign[s.Key] = s.expand()
}

// goOn continues with the state of another node, if that is newer. It is called with the
// lock of the output held.
func (l *Limits) goOn(key string, o *output, now time.Time) {
	l.mu.Lock()
	s, ok := l.foreign[key]
	delete(l.foreign, key)
	l.mu.Unlock()
	if ok && s.Updated.After(o.Updated) && o.Running == 0 {
		s.restart(now)
		o.state = s
	}
}
