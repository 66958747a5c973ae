package server

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"reflect"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxWaiting is how many calls may wait for agents to come back.
const maxWaiting = 1024

// waiting are the calls that wait for agents to come back.
type waiting struct {
	mu   sync.Mutex
	runs map[string]*run // by state
}

// put keeps a call until its agent comes back with the state; it is not ok if there
// are too many, or if it has ended.
func (w *waiting) put(r *run) (state string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.runs) >= maxWaiting || r.ended {
		return "", false
	}
	r.state = newState()
	w.runs[r.state] = r
	return r.state, true
}

// take is the call of a state, which is good for nothing from then on; nil if it is
// not for this purpose.
func (w *waiting) take(state string, p purpose, args json.RawMessage) *run {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.runs[state]
	if r == nil || r.purpose != p || !sameJSON(r.args, args) {
		return nil
	}
	delete(w.runs, state)
	return r
}

// forget drops a call that has ended.
func (w *waiting) forget(r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.ended = true
	delete(w.runs, r.state)
}

// newState is a word that nobody guesses.
func newState() string { return rand.Text() }

// purpose is what a request is for: the same when an agent comes back with answers.
type purpose struct {
	who    ferrule.Principal
	view   string // the device that is looked at
	device string
	act    ferrule.Operation
	name   string
}

func (v *view) purposeOf(call *ferrule.Call) purpose {
	return purpose{call.Principal, v.device, call.Device, call.Operation, call.Tool}
}

// sameJSON tells whether two texts say the same, whatever the order of their members.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var values [2]any
	for i, text := range []json.RawMessage{a, b} {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		if dec.Decode(&values[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}
