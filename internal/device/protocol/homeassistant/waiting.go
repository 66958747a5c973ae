package homeassistant

import (
	"fmt"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/api"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/confirm"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// waiting is what a call waits for: the answer of Home Assistant, and the state that
// confirms it. It is guarded by the mutex of the session.
type waiting struct {
	id      int
	entity  entity
	expect  *confirm.Expectation
	before  home.State
	assumed bool // Home Assistant assumes the state
	hidden  bool // the state is a secret, which is not known here
	answers bool // the service has a response
	secrets []string
	reader  string // the tool that reads states

	sent     time.Time
	now      home.State
	heard    bool      // a state came since the call was sent
	changed  time.Time // when the last one came
	left     bool      // the state was not as wanted since the call was sent
	met      time.Time // since when it is as wanted because it changed; zero if it is not
	result   *result   // nil before the answer
	answered time.Time
	wake     chan struct{}
}

// hear takes a state of the entity. It is called with the mutex of the session held.
func (w *waiting) hear(now home.State, at time.Time) {
	w.now = now
	if w.sent.IsZero() {
		return
	}
	w.heard, w.changed = true, at
	switch {
	case !w.expect.Met(now):
		w.left, w.met = true, time.Time{}
	case w.met.IsZero() && !w.already():
		w.met = at
	}
	w.signal()
}

// begin notes that the call is sent now. It is called with the mutex of the session held.
func (w *waiting) begin(c *call) {
	w.sent, w.before = time.Now(), w.now
	if w.hidden {
		w.expect = &confirm.Expectation{}
		return
	}
	w.expect = confirm.For(c.Domain, c.Service, c.Data, w.before)
}

// already reports whether the state was as wanted before the call, and always since.
func (w *waiting) already() bool { return w.expect.Met(w.before) && !w.left }

// signal makes the call look again.
func (w *waiting) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// fault returns the state in which the entity gave up since the call.
func (w *waiting) fault() string {
	if w.heard {
		return w.expect.Fault(w.now)
	}
	return ""
}

// far is the end of a wait that only the deadline of the call limits.
const far = time.Hour

// end returns when the call ends if nothing else is heard. Crowded reports that others wait
// for the device: the next call may be the one that stops it.
func (w *waiting) end(now time.Time, crowded bool) time.Time {
	switch {
	case w.result == nil && w.met.IsZero():
		return now.Add(far) // a service may take as long as it likes
	case w.result == nil:
		return w.met.Add(w.expect.Window)
	case w.result.Error != nil, !w.expect.Shown(), w.expect.Met(w.now), w.fault() != "":
		return now
	}
	last := w.sent.Add(confirm.Longest)
	moving := w.expect.Moving(w.now)
	switch {
	case moving && crowded:
		return now
	case moving:
		return last
	case w.expect.Travels() && w.heard && w.changed.After(w.answered):
		return earlier(last, w.changed.Add(w.expect.Window))
	}
	return earlier(last, w.answered.Add(w.expect.Window))
}

// verdict returns whether the state confirms the call, and what else must be said.
func (w *waiting) verdict(now time.Time, crowded bool, broken error) (confirmed bool, note string) {
	var notes []string
	if broken != nil {
		notes = append(notes, "the connection broke after the call: "+broken.Error())
	}
	if w.result == nil {
		notes = append(notes, "the state is as asked for, but Home Assistant has not answered")
	}
	if !w.expect.Shown() {
		return false, join(notes, noteUnseen)
	}
	if missing := w.expect.Missing(w.now); len(missing) > 0 {
		return false, join(notes, w.difference(missing, now, crowded))
	}
	if len(w.expect.Unseen) > 0 {
		return false, join(notes, "no state shows "+strings.Join(w.expect.Unseen, ", ")+"; the rest is as asked for")
	}
	if w.assumed || string(w.now.Attributes["assumed_state"]) == "true" {
		return false, join(notes, "Home Assistant assumes this state: the device does not report it")
	}
	return true, join(notes)
}

// noteUnseen is the note of a service that no state confirms.
const noteUnseen = "Home Assistant accepted the call; no state shows whether it had an effect"

func join(notes []string, more ...string) string { return strings.Join(append(notes, more...), "; ") }

// difference says what is not as asked for, and why, as far as that is known.
func (w *waiting) difference(missing []string, now time.Time, crowded bool) string {
	took := now.Sub(w.sent).Round(100 * time.Millisecond)
	state := ferrule.Clean(w.now.Value, maxValue)
	switch {
	case w.now.Unavailable():
		return "the entity became unavailable after the call"
	case w.fault() != "":
		return "the device gave up: " + state
	case w.expect.Moving(w.now) && crowded:
		return "it was still " + state + " when another call came"
	case w.expect.Moving(w.now):
		return fmt.Sprintf("it was still %s after %v; call %s for the end", state, took, w.reader)
	case !w.heard:
		return fmt.Sprintf("no new state within %v; still missing: %s", took, strings.Join(missing, ", "))
	case w.result != nil && w.now.Context != "" && w.result.Context != "" && w.now.Context != w.result.Context:
		return "the state is another one, and something else changed it last; still missing: " + strings.Join(missing, ", ")
	}
	return "the state is another one; still missing: " + strings.Join(missing, ", ")
}

// unanswered is the error of a call without an answer that no state confirms.
func (w *waiting) unanswered(c *ferrule.Call, broken error, now time.Time) error {
	reason := fmt.Sprintf("Home Assistant did not answer within %v", now.Sub(w.sent).Round(time.Millisecond))
	if broken != nil {
		reason = "the connection broke: " + broken.Error()
	}
	return ferrule.Errorf(ferrule.Unanswered, "%s was sent to %s, and may have run or may yet run: %s", c.Tool, c.Device, reason).
		WithHint("%s", hintState).Once()
}

// maxReason is the length of an error of Home Assistant.
const maxReason = 512

// refusal returns the error that Home Assistant answered with. Its text may repeat arguments.
func (w *waiting) refusal(c *ferrule.Call) error {
	said := w.result.Error
	reason := mask(ferrule.MaskURLs(ferrule.Clean(said.Message, maxReason)), w.secrets)
	if reason == "" {
		reason = ferrule.Clean(said.Code, ferrule.MaxWord)
	}
	if !(*api.Error)(said).Refused() {
		return ferrule.Errorf(ferrule.Failed, "Home Assistant reports that %s failed on %s: %s", c.Tool, c.Device, reason).
			WithHint("%s", hintState).Once()
	}
	e := ferrule.Errorf(ferrule.Refused, "Home Assistant refused %s for %s: %s", c.Tool, c.Device, reason)
	if said.Code == "unauthorized" {
		e.WithHint("give the user whose token the gateway uses the right to control this entity")
	}
	return e
}
