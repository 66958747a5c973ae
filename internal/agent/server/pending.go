package server

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"reflect"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxPending is the limit of calls that wait for input.
const maxPending = 1024

// pendingCalls are the calls whose agent has to come back with input.
type pendingCalls struct {
	mu    sync.Mutex
	calls map[string]*pendingCall // by state
}

// put keeps a call until its agent comes back with the state. Ok is false if there are
// too many, or if the call has ended.
func (p *pendingCalls) put(c *pendingCall) (state string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.calls) >= maxPending || c.ended {
		return "", false
	}
	c.state = newState()
	p.calls[c.state] = c
	return c.state, true
}

// take returns the call of a state, which cannot be used again. It returns nil if the
// state belongs to another request.
func (p *pendingCalls) take(state string, subject requestSubject, args json.RawMessage) *pendingCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls[state]
	if c == nil || c.subject != subject || !sameJSON(c.args, args) {
		return nil
	}
	delete(p.calls, state)
	return c
}

// forget drops a call that has ended.
func (p *pendingCalls) forget(c *pendingCall) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.ended = true
	delete(p.calls, c.state)
}

// newState returns a string that cannot be guessed.
func newState() string { return rand.Text() }

// requestSubject identifies what a request is about. It must be the same when an agent
// comes back with input.
type requestSubject struct {
	who       ferrule.Principal
	view      string // the view's device
	device    string
	operation ferrule.Operation
	name      string
}

func (v *view) subjectOf(call *ferrule.Call) requestSubject {
	return requestSubject{call.Principal, v.device, call.Device, call.Operation, call.Tool}
}

// sameJSON reports whether two JSON texts are equal, whatever the order of their
// members.
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
