package hass

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/entity"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Invoke implements protocol.Session. Nothing on a broker answers a command, so it watches
// the states of the device:
//
//	nobody got the first message          Offline or Denied; it did not run
//	all states as asked for               result, confirmed
//	another value                         result, not confirmed, with that value
//	nothing, but it was so before         result, confirmed, "already so"
//	nothing                               Unanswered
//	nothing reports it at all             result, not confirmed
//
// Each message is published once. No error that follows a publish lets the dock send the
// call a second time.
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
	if call.Tool == toolState {
		return s.readState(args)
	}
	t := s.tool(call.Tool)
	switch {
	case t == nil:
		return nil, ferrule.Errorf(ferrule.Refused, "%s has no tool %s", call.Device, ferrule.Clean(call.Tool, ferrule.MaxToolName))
	case t.refusal != "":
		return nil, ferrule.Errorf(ferrule.Denied, "%s of %s cannot be used: %s", t.name, call.Device, t.refusal)
	}
	command, err := t.command(args)
	if err != nil {
		return nil, ferrule.Errorf(ferrule.Invalid, "invalid arguments for %s: %w", t.name, err)
	}
	if len(command.Publish) == 0 {
		return nil, ferrule.Errorf(ferrule.Invalid, "these arguments change nothing; give at least one value to set")
	}
	select {
	case s.invoking <- struct{}{}:
		defer func() { <-s.invoking }()
	default:
		return nil, ferrule.Errorf(ferrule.Busy, "%s is busy with another call", call.Device)
	}
	return s.command(ctx, call, t, &command)
}

// tool returns the tool with a name, or nil.
func (s *Session) tool(name string) *tool {
	i, ok := slices.BinarySearchFunc(s.tools, name, func(t tool, name string) int { return cmp.Compare(t.name, name) })
	if !ok {
		return nil
	}
	return &s.tools[i]
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

// command publishes a command and waits for what confirms it.
func (s *Session) command(ctx context.Context, call *ferrule.Call, t *tool, c *entity.Command) (*ferrule.Result, error) {
	w := s.wait(t, c)
	defer func() {
		s.mu.Lock()
		s.waiting = nil
		s.mu.Unlock()
	}()
	if err := s.publish(ctx, call, c.Publish, w); err != nil {
		return nil, err
	}
	if len(w.wants) == 0 {
		return outcome(false, "", nil, "sent, but the device does not report what became of it")
	}
	var timer *time.Timer
	for {
		left, broken := s.left(w)
		if broken != nil || left <= 0 {
			return s.conclude(call, w, broken)
		}
		if timer == nil {
			timer = time.NewTimer(left)
			defer timer.Stop()
		} else {
			timer.Reset(left)
		}
		select {
		case <-w.wake:
		case <-timer.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return nil, ferrule.Errorf(ferrule.Cancelled, "cancelled after %s was sent to %s", call.Tool, call.Device).AfterSend().Once()
			}
			return s.conclude(call, w, nil)
		}
	}
}

// wait begins to listen for what confirms a command. That is before it is sent: the state
// may be heard before the broker has confirmed the message.
func (s *Session) wait(t *tool, c *entity.Command) *waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &waiting{window: cmp.Or(max(c.Window, 0), defaultWindow), heard: never, changed: never, wake: make(chan struct{}, 1)}
	now := time.Since(s.began)
	add := func(name string, matches func(entity.Value) bool, fresh bool) bool {
		i := slices.IndexFunc(s.states, func(st state) bool { return st.entity == t.entity && st.local == name })
		if i < 0 {
			return false
		}
		want := want{state: i, matches: matches}
		if v, _, reason := s.states[i].current(now); reason == "" && !fresh && !s.states[i].retained && !s.states[i].Secret {
			want.before = v
		}
		w.wants = append(w.wants, want)
		return true
	}
	for _, e := range c.Expect {
		add(e.State, e.Matches, e.Fresh)
	}
	if c.Rest != "" {
		w.rests = slices.ContainsFunc(w.wants, func(want want) bool { return s.states[want.state].local == c.Rest }) || add(c.Rest, nil, false)
	}
	s.waiting = w
	return w
}

// publish sends all messages of a command in order, each once.
func (s *Session) publish(ctx context.Context, call *ferrule.Call, all []entity.Publication, w *waiting) error {
	ctx, cancel := context.WithTimeout(ctx, w.window) // after that, no device is to act on it
	defer cancel()
	for i, p := range all {
		err := s.link.Send(ctx, transport.Message{Channel: p.Topic, Data: p.Payload})
		if err != nil {
			return s.sendError(ctx, call, err, i, len(all), w)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.sent = time.Since(s.began)
	return nil
}

// sendError returns what a failed publish means for the call. It is nil if the state of the
// device has confirmed the call all the same.
func (s *Session) sendError(ctx context.Context, call *ferrule.Call, err error, before, all int, w *waiting) error {
	var undelivered *transport.Undelivered
	unsent := errors.Is(err, transport.ErrUnsent)
	switch {
	case before > 0 && (unsent || errors.As(err, &undelivered)):
		return ferrule.Errorf(ferrule.Unanswered, "only %d of %d messages of %s reached the broker, so it may have run in part: %w", before, all, call.Tool, err).
			WithHint("%s", s.hint()).Once()
	case errors.As(err, &undelivered) && undelivered.Denied:
		return ferrule.Errorf(ferrule.Denied, "the broker does not let the gateway publish %s of %s: %w", call.Tool, call.Device, err).
			WithHint("allow the gateway's user to publish to the device's command topic on the broker").Once()
	case errors.As(err, &undelivered):
		return ferrule.Errorf(ferrule.Offline, "nobody on the broker receives commands for %s: %w", call.Device, err).
			WithHint("check that the software that speaks for the device is running").Once()
	case unsent && errors.Is(ctx.Err(), context.Canceled):
		return ferrule.Errorf(ferrule.Cancelled, "cancelled before %s was sent", call.Tool)
	case unsent && ctx.Err() != nil:
		return ferrule.Errorf(ferrule.Busy, "deadline passed before %s could be sent", call.Tool)
	case unsent:
		return ferrule.Errorf(ferrule.Offline, "%s is not reachable: %w", call.Device, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := w.tally(); before == all-1 && len(w.wants) > 0 && t.met == len(w.wants) && !w.rests {
		return nil
	}
	return ferrule.Errorf(ferrule.Unanswered, "the broker did not confirm %s for %s, so it may have run, or may yet run: %w", call.Tool, call.Device, err).
		WithHint("%s", s.hint()).Once()
}

func (s *Session) hint() string {
	return "call " + toolState + " to see what the device reports before calling again"
}

// left returns how long to wait at most, and why the link ended if it has.
func (s *Session) left(w *waiting) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crowded && w.long() {
		return 0, s.ended
	}
	return w.until() - time.Since(s.began), s.ended
}

// conclude returns the outcome of a command that was sent, after the wait for its states.
// Broken is why the link ended, if it has.
func (s *Session) conclude(call *ferrule.Call, w *waiting, broken error) (*ferrule.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, t := time.Since(s.began), w.tally()
	values, silent := s.values(w, now)
	publisher := cmp.Or(s.publisher, "the device's publisher")
	by := publisher + " reports it; that is not proof that the device obeyed"
	switch {
	case broken == nil && s.crowded && w.long() && w.until() > now:
		return outcome(false, "", values, "sent, but another call came before the device had finished")
	case t.met == 0 && t.other == 0 && (t.silent > 0 || broken != nil), broken != nil && t.met < len(w.wants):
		return nil, s.unanswered(call, w, broken)
	case t.other > 0 && w.changed == never:
		return outcome(false, "", values, publisher+" still reports the value from before; the command may yet take effect")
	case t.other > 0:
		return outcome(false, "", values, publisher+" reports another value than asked for: the device limits it, or somebody else changed it")
	case t.silent > 0:
		return outcome(false, "", values, "nothing was reported about "+strings.Join(silent, ", "))
	case w.moving(now) && broken != nil:
		return outcome(false, "", values, "it was still changing when the connection broke: "+broken.Error())
	case w.moving(now):
		return outcome(false, "", values, "it was still changing when the time was up")
	case t.met == 0:
		return outcome(true, by, values, "already so before the call, and nothing else was reported since")
	}
	return outcome(true, by, values, "")
}

// values returns the states that a call waits for, as they are now, and the names of those
// that were not heard. It is called with mu held.
func (s *Session) values(w *waiting, now time.Duration) (values map[string]json.RawMessage, silent []string) {
	values = make(map[string]json.RawMessage)
	for _, want := range w.wants {
		st := &s.states[want.state]
		if want.value.JSON == nil {
			silent = append(silent, st.Name)
		}
		if v, _, reason := st.current(now); reason == "" && !st.Secret {
			values[st.Name] = v.JSON
		}
	}
	return values, silent
}

// unanswered is the error of a command that nothing confirms.
func (s *Session) unanswered(call *ferrule.Call, w *waiting, broken error) error {
	reason := fmt.Sprintf("it reported no new state within %v", (time.Since(s.began) - w.sent).Round(time.Millisecond))
	if broken != nil {
		reason = "the connection broke: " + broken.Error()
	}
	e := ferrule.Errorf(ferrule.Unanswered, "%s was sent to %s, and may have run or may yet run: %s", call.Tool, call.Device, reason)
	return e.WithHint("%s", s.hint()).Once()
}

// outcome returns the result of a command.
func outcome(confirmed bool, by string, values map[string]json.RawMessage, note string) (*ferrule.Result, error) {
	data, err := json.Marshal(struct {
		Confirmed bool                       `json:"confirmed"`
		By        string                     `json:"by,omitempty"`
		State     map[string]json.RawMessage `json:"state,omitempty"`
		Note      string                     `json:"note,omitempty"`
	}{confirmed, by, values, note})
	if err != nil {
		return nil, ferrule.Errorf(ferrule.Internal, "encoding the result: %w", err).AfterSend()
	}
	return &ferrule.Result{Value: data}, nil
}
