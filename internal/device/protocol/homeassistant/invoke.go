package homeassistant

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/describe"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Invoke implements protocol.Session. Home Assistant answers that it has passed a command
// on; only a state shows that it was carried out:
//
//	the entity is unavailable             Offline, nothing is sent
//	Home Assistant refuses                Refused or Failed, by its code
//	answered, and the state is as wanted  result, confirmed
//	answered, and it was so before        result, confirmed, already
//	answered, and the state is another    result, not confirmed, with that state
//	answered, and no state can show it    result, not confirmed
//	no answer, but the state is as wanted result, confirmed
//	no answer                             Unanswered
//
// A call is sent once. No error that follows lets the dock send it a second time.
func (s *Session) Invoke(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	if err := s.end(); err != nil {
		return nil, ferrule.Errorf(ferrule.Offline, "the connection has ended: %w", err)
	}
	if call.Operation != ferrule.CallTool {
		return nil, ferrule.Errorf(ferrule.Refused, "%s offers tools only", call.Device)
	}
	args, err := arguments(call)
	if err != nil {
		return nil, err
	}
	select {
	case s.invoking <- struct{}{}:
		defer func() { <-s.invoking }()
	default:
		return nil, ferrule.Errorf(ferrule.Busy, "%s is busy with another call", call.Device)
	}
	tool, ok := s.tool(call.Tool)
	switch {
	case !ok:
		return nil, ferrule.Errorf(ferrule.Refused, "%s has no tool %s", call.Device, ferrule.Clean(call.Tool, ferrule.MaxToolName))
	case tool.Service == "":
		return s.readStates(tool, args)
	case tool.Service == describe.GetPicture:
		return s.readPicture(ctx, call, tool, args)
	}
	w, message, err := s.prepare(call, tool, args)
	if err != nil {
		return nil, err
	}
	defer s.stopWaiting()
	if err := s.send(ctx, call, w, message); err != nil {
		return nil, err
	}
	return s.wait(ctx, call, w)
}

func (s *Session) tool(name string) (describe.Tool, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tool, ok := s.plan.Tools[name]
	return tool, ok
}

// arguments returns the decoded arguments of a call.
func arguments(call *ferrule.Call) (map[string]any, error) {
	if call.DecodedArgs != nil || len(call.Args) == 0 {
		return call.DecodedArgs, nil
	}
	var args map[string]any
	dec := json.NewDecoder(bytes.NewReader(call.Args))
	dec.UseNumber()
	if err := dec.Decode(&args); err != nil {
		return nil, ferrule.Errorf(ferrule.Invalid, "the arguments of %s must be a JSON object", call.Tool)
	}
	return args, nil
}

// prepare checks a call against the state of its entity, and begins to listen for what
// confirms it. That is before it is sent: the state changes before Home Assistant answers.
func (s *Session) prepare(c *ferrule.Call, tool describe.Tool, args map[string]any) (*waiting, *call, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	data := make(map[string]any, len(args))
	for name, value := range args {
		data[name] = value
	}
	message := &call{ID: s.calls, Domain: tool.Domain, Service: tool.Service, Data: data, Answer: tool.Answers, Secret: len(tool.Secrets) > 0}
	w := &waiting{id: s.calls, answers: tool.Answers, secrets: secretsOf(tool, args), reader: describe.ReadState, wake: make(chan struct{}, 1)}
	if len(tool.Entities) == 0 {
		s.waiting = w
		return w, message, nil
	}
	e, err := s.target(tool, args)
	if err != nil {
		return nil, nil, err
	}
	delete(data, describe.EntityArg)
	before, known := s.state(e.id)
	if before.Unavailable() {
		reason := "it is unavailable"
		if !known {
			reason = "it has no state"
		}
		return nil, nil, ferrule.Errorf(ferrule.Offline, "Home Assistant cannot reach %s: %s, so nothing was sent", e.id, reason).
			WithHint("check that the device has power and a connection, then call %s", describe.ReadState).Once()
	}
	if err := choose(tool.Choices, data, before); err != nil {
		return nil, nil, err
	}
	message.Entities = []string{e.id}
	w.entity, w.now = e, before
	w.assumed, w.hidden = e.assumed, s.plan.Hidden[e.id]
	s.waiting = w
	return w, message, nil
}

func (s *Session) stopWaiting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = nil
}

// send sends a call, once, unless the device has just changed.
func (s *Session) send(ctx context.Context, c *ferrule.Call, w *waiting, message *call) error {
	data, err := json.Marshal(message)
	if err != nil {
		return ferrule.Errorf(ferrule.Invalid, "the arguments of %s cannot be encoded", c.Tool)
	}
	select {
	case s.sending <- struct{}{}:
		defer func() { <-s.sending }()
	case <-ctx.Done():
		return ferrule.Errorf(ferrule.Busy, "%s is being described again; nothing was sent", c.Device).WithHint("retry in a moment")
	}
	if s.current != nil {
		if err := s.current(c); err != nil {
			return err
		}
	}
	s.mu.Lock()
	w.begin(message)
	s.mu.Unlock()
	err = s.link.Send(ctx, transport.Message{Channel: channelCall, Data: data})
	unsent := errors.Is(err, transport.ErrUnsent)
	switch {
	case err == nil:
		return nil
	case unsent && errors.Is(ctx.Err(), context.Canceled):
		return ferrule.Errorf(ferrule.Cancelled, "cancelled before %s was sent", c.Tool)
	case unsent && ctx.Err() != nil:
		return ferrule.Errorf(ferrule.Busy, "deadline passed before %s could be sent", c.Tool)
	case unsent:
		return ferrule.Errorf(ferrule.Offline, "%s is not reachable: %w", c.Device, err)
	}
	return ferrule.Errorf(ferrule.Unanswered, "the connection to Home Assistant broke while %s was sent, so it may have run: %w", c.Tool, err).
		WithHint("%s", hintState).Once()
}

const hintState = "call " + describe.ReadState + " to see the present state before calling again"

// wait waits for the answer and for the state that confirms a call.
func (s *Session) wait(ctx context.Context, c *ferrule.Call, w *waiting) (*ferrule.Result, error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.mu.Lock()
		end := w.end(time.Now(), s.crowded)
		broken := s.ended
		s.mu.Unlock()
		if deadline, ok := ctx.Deadline(); ok { // with time to say so
			end = earlier(end, deadline.Add(-answerTime))
		}
		if left := time.Until(end); left <= 0 || broken != nil {
			return s.conclude(c, w, broken)
		} else {
			timer.Reset(left)
		}
		select {
		case <-w.wake:
		case <-timer.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return nil, ferrule.Errorf(ferrule.Cancelled, "cancelled after %s was sent to %s", c.Tool, c.Device).AfterSend().Once()
			}
			return s.conclude(c, w, nil)
		}
	}
}

// answerTime is how long before its deadline a call ends with what is known.
const answerTime = 50 * time.Millisecond

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// conclude returns the outcome of a call that was sent. Broken is why the link ended, if it
// has.
func (s *Session) conclude(c *ferrule.Call, w *waiting, broken error) (*ferrule.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.result != nil && w.result.Error != nil {
		return nil, w.refusal(c)
	}
	now := time.Now()
	if w.result == nil && w.met.IsZero() {
		return nil, w.unanswered(c, broken, now)
	}
	var o outcome
	if w.answers && w.result != nil {
		o.Response = w.result.Response
	}
	if w.entity.id != "" {
		o.States = map[string]shownState{s.name(w.entity): show(w.now, w.hidden, true)}
	}
	if w.answers && !w.expect.Shown() {
		return o.result() // the answer is all that was asked for
	}
	confirmed, note := w.verdict(now, s.crowded, broken)
	o.Confirmed, o.Note = &confirmed, mask(note, w.secrets)
	o.Already = confirmed && w.already()
	return o.result()
}

// name returns how agents call an entity.
func (s *Session) name(e entity) string {
	if s.group || e.key == "" {
		return e.id
	}
	return e.key
}

// outcome is the result of a service.
type outcome struct {
	// Confirmed and Already are missing if the service only answers.
	Confirmed *bool                 `json:"confirmed,omitempty" jsonschema:"whether the states show that it happened"`
	Already   bool                  `json:"already,omitempty" jsonschema:"whether they did before the call"`
	States    map[string]shownState `json:"states,omitempty" jsonschema:"states of the entities now"`
	Response  json.RawMessage       `json:"response,omitempty"`
	Note      string                `json:"note,omitempty"`
}

func (o outcome) result() (*ferrule.Result, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return nil, ferrule.Errorf(ferrule.Internal, "encoding the result: %w", err).AfterSend()
	}
	return &ferrule.Result{Value: data}, nil
}

// readStates returns the states of the device, or of one entity.
func (s *Session) readStates(tool describe.Tool, args map[string]any) (*ferrule.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var which []entity
	for _, e := range s.device {
		if s.fits(tool, e) {
			which = append(which, e)
		}
	}
	if args[describe.EntityArg] != nil {
		e, err := s.target(tool, args)
		if err != nil {
			return nil, err
		}
		which = []entity{e}
	}
	o := outcome{States: make(map[string]shownState)}
	size := 0
	for i, e := range which {
		now, known := s.state(e.id)
		if !known {
			now.Value = unavailable
		}
		shown := show(now, s.plan.Hidden[e.id], false)
		data, err := json.Marshal(shown)
		if size += len(data); err != nil || size > maxShown {
			o.Note = fmt.Sprintf("%d more entities are not shown; read one at a time with the argument %s", len(which)-i, describe.EntityArg)
			break
		}
		o.States[s.name(e)] = shown
	}
	return o.result()
}
