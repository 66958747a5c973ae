package homeassistant

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/api"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// order is a service to perform.
type order struct {
	domain, service string
	data            map[string]any
	entities        []string
	answer          bool     // ask for the response of the service
	secrets         []string // values that must not be shown
}

// message returns the message for Home Assistant.
func (o order) message() *call {
	return &call{Domain: o.domain, Service: o.service, Data: o.data, Entities: o.entities, Answer: o.answer}
}

// lookPause is how often states are looked at.
const lookPause = 50 * time.Millisecond

// perform calls a service, once, and waits until states confirm it, as Session.Invoke does.
func (s *homeSession) perform(ctx context.Context, call *ferrule.Call, o order) (out outcome, err error) {
	waits, err := s.expect(o)
	if err != nil {
		return out, err
	}
	var got answer
	if err := s.conn.Request(ctx, "call_service", fieldsOf(o.message()), &got); err != nil {
		return out, o.failure(ctx, call, err)
	}
	answered := time.Now()
	for _, w := range waits {
		w.result, w.answered = &result{Context: ferrule.Clean(got.Context.ID, 64)}, answered
	}
	broken := s.settle(ctx, waits)
	if errors.Is(ctx.Err(), context.Canceled) {
		return out, o.failure(ctx, call, ctx.Err())
	}
	if o.answer {
		out.Response = shownResponse(got.Response)
	}
	s.judge(&out, waits, broken)
	out.Note = mask(out.Note, o.secrets)
	return out, nil
}

// expect begins to wait for the states of the entities of a service.
func (s *homeSession) expect(o order) (waits []*waiting, err error) {
	states, err := s.reachable(o.entities)
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(o.entities))) {
		w := &waiting{entity: entity{id: id}, now: states[id], hidden: isPassword(states[id]), reader: "find_entities"}
		w.begin(o.message())
		waits = append(waits, w)
	}
	return waits, nil
}

// settle waits until nothing more is to be expected of states. It returns why the connection
// broke, if it did.
func (s *homeSession) settle(ctx context.Context, waits []*waiting) (broken error) {
	for {
		now := time.Now()
		states := s.states(waits)
		end := now
		for _, w := range waits {
			if state := states[w.entity.id]; !reflect.DeepEqual(state, w.now) {
				w.hear(state, now)
			}
			if one := w.end(now, s.crowded.Load()); one.After(end) {
				end = one
			}
		}
		if deadline, ok := ctx.Deadline(); ok { // with time to say so
			end = earlier(end, deadline.Add(-answerTime))
		}
		if !now.Before(end) {
			return nil
		}
		select {
		case <-time.After(min(lookPause, end.Sub(now))):
		case <-ctx.Done():
			return nil
		case <-s.conn.Done():
			return s.conn.Err()
		}
	}
}

// states returns the states that are waited for. One that is gone is unavailable.
func (s *homeSession) states(waits []*waiting) map[string]home.State {
	states := make(map[string]home.State, len(waits))
	for _, w := range waits {
		states[w.entity.id] = home.State{Value: unavailable}
	}
	for _, e := range s.hub.Entities(func(id string) bool { _, wanted := states[id]; return wanted }) {
		if e.State.Value != "" {
			states[e.ID] = e.State
		}
	}
	return states
}

// judge says whether the states confirm the service. All must.
func (s *homeSession) judge(out *outcome, waits []*waiting, broken error) {
	shown := slices.ContainsFunc(waits, func(w *waiting) bool { return w.expect.Shown() })
	all, already, now := len(waits) > 0, true, time.Now()
	var notes []string
	out.States = make(map[string]shownState, len(waits))
	for _, w := range waits {
		confirmed, note := w.verdict(now, s.crowded.Load(), broken)
		if note != "" && len(waits) > 1 {
			note = w.entity.id + ": " + note
		}
		if note != "" {
			notes = append(notes, note)
		}
		all, already = all && confirmed, already && w.already()
		out.States[w.entity.id] = show(w.now, w.hidden, true)
	}
	if out.Response != nil && !shown {
		return // the answer is all that was asked for
	}
	if len(waits) == 0 {
		notes = append(notes, noteUnseen)
	}
	out.Confirmed, out.Already, out.Note = &all, all && already, join(notes)
}

// reachable returns the states of entities. Home Assistant would accept a call to one that is
// unavailable, and do nothing.
func (s *homeSession) reachable(entities []string) (map[string]home.State, error) {
	states := make(map[string]home.State, len(entities))
	for _, e := range s.hub.Entities(func(id string) bool { return slices.Contains(entities, id) }) {
		states[e.ID] = e.State
	}
	for _, id := range entities {
		state, known := states[id]
		switch {
		case !known || state.Value == "":
			return nil, ferrule.Errorf(ferrule.Invalid, "Home Assistant has no entity %s", ferrule.Clean(id, ferrule.MaxWord)).WithHint("find it with find_entities")
		case state.Unavailable():
			return nil, ferrule.Errorf(ferrule.Offline, "Home Assistant cannot reach %s: it is unavailable, so nothing was sent", id).Once()
		}
	}
	return states, nil
}

// failure returns the error of a service that was not accepted.
func (o order) failure(ctx context.Context, call *ferrule.Call, err error) error {
	name := o.domain + "." + o.service
	var said *api.Error
	switch {
	case errors.As(err, &said):
		reason := mask(ferrule.MaskURLs(ferrule.Clean(said.Message, maxReason)), o.secrets)
		if said.Refused() {
			return ferrule.Errorf(ferrule.Refused, "Home Assistant refused %s: %s", name, reason)
		}
		return ferrule.Errorf(ferrule.Failed, "Home Assistant reports that %s failed: %s", name, reason).Once()
	case errors.Is(err, api.ErrUnsent) && errors.Is(ctx.Err(), context.Canceled):
		return ferrule.Errorf(ferrule.Cancelled, "cancelled before %s was sent", name)
	case errors.Is(err, api.ErrUnsent):
		return ferrule.Errorf(ferrule.Offline, "%s is not reachable: %w", call.Device, err)
	case errors.Is(ctx.Err(), context.Canceled):
		return ferrule.Errorf(ferrule.Cancelled, "cancelled after %s was sent", name).AfterSend().Once()
	}
	return ferrule.Errorf(ferrule.Unanswered, "%s was sent, and may have run or may yet run: %w", name, err).
		WithHint("check the states with find_entities before calling it again").Once()
}
