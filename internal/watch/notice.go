package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Notice tells somebody that a watch has fired, or what became of its call. It may arrive
// twice.
type Notice struct {
	Event string `json:"event"` // "watch", or "outcome" for that of a call
	// Text is for services that show a member of this name.
	Text  string        `json:"text,omitempty"`
	Watch string        `json:"watch"` // ID
	Name  string        `json:"name"`
	Hit   condition.Hit `json:"hit"`
	// Count counts the hits for the device, and Held those that the limits held back.
	Count uint64 `json:"count"`
	Held  uint64 `json:"held,omitempty"`
	// Unsure is set if the hit may be one that another node has reported.
	Unsure bool `json:"unsure,omitempty"`
	// Call is what the watch tries to call, and NotCalled is why it does not call this time.
	Call      string `json:"call,omitempty"`
	NotCalled string `json:"not_called,omitempty"`
	// Outcome is what became of the call, if it has ended.
	Outcome *Outcome `json:"outcome,omitempty"`
}

// fired describes a hit in one line.
func (n *Notice) fired(w *Watch) string {
	return fmt.Sprintf("watch %q fired: %s", w.Name, what(&n.Hit, w))
}

// what says what has met the condition of a watch.
func what(h *condition.Hit, w *Watch) string {
	switch e := h.Event; {
	case e != nil && e.Method != "": // the device chose it
		return fmt.Sprintf("%s sent %q", h.Device, e.Method)
	case w.Condition.Signal == "":
		return h.Device + " " + w.Condition.Event
	}
	text := ValueText(*h, time.Now())
	if condition := w.Condition.Test(); !strings.HasSuffix(w.Name, condition) { // the default name
		text += " (" + condition + ")"
	}
	return text
}

// fresh is the maximum age of a value that is called the present one.
const fresh = 5 * time.Second

// ValueText describes the value of a hit. A buffered signal is read later than it was sampled.
func ValueText(h condition.Hit, now time.Time) string {
	if now.Sub(h.Time) <= fresh {
		return fmt.Sprintf("%s of %s is %.6g", h.Signal, h.Device, h.Value)
	}
	return fmt.Sprintf("%s of %s was %.6g at %s", h.Signal, h.Device, h.Value, ferrule.FormatTime(h.Time))
}

// text describes a hit and its call in one line. It claims nothing that is not known yet.
func (n *Notice) text(w *Watch) string {
	fired := n.fired(w)
	if n.Event == "outcome" {
		fired = fmt.Sprintf("watch %q, %s", w.Name, what(&n.Hit, w))
	}
	switch {
	case n.Outcome != nil:
		return fired + ". " + n.Outcome.text(n.Call)
	case n.NotCalled != "":
		return fired + ". Not called: " + n.NotCalled
	case n.Call != "":
		return fired + ". It tries to call " + n.Call + "; the outcome follows"
	}
	return fired
}

// text says in one or two sentences what became of a call.
func (o *Outcome) text(call string) string {
	e := ferrule.Error{Code: o.Code, Message: strings.TrimPrefix(o.Message, "not called: "), Sent: o.MayHaveRun}
	switch {
	case o.Code == "":
		return "It has called " + call + "."
	case o.MayHaveRun || o.Code == ferrule.Refused:
		return "The call of " + call + " failed: " + e.Explain()
	}
	return "It has not called " + call + ": " + e.Explain()
}

// Short returns a duration without zero units: 1m, not 1m0s.
func Short(d time.Duration) string {
	text := d.String()
	if cut, ok := strings.CutSuffix(text, "m0s"); ok {
		text = cut + "m"
	}
	if cut, ok := strings.CutSuffix(text, "h0m"); ok {
		text = cut + "h"
	}
	return text
}

// event passes a notice on as an event of the device. Others who see this device may not see
// the one that is called, or the arguments.
func (k *Keeper) event(n Notice, text string) {
	n.Text, n.Call, n.NotCalled = "", "", ""
	if n.Outcome != nil {
		without := *n.Outcome
		without.Message, without.Hit = "", nil
		n.Outcome = &without
	}
	if e := n.Hit.Event; e != nil && len(e.Params) > ferrule.MaxParams/2 {
		without := *e
		without.Params = nil
		n.Hit.Event = &without
	}
	params, err := json.Marshal(n)
	if err != nil {
		return
	}
	e := ferrule.Event{Time: time.Now().UTC(), Type: ferrule.WatchFired, Device: n.Hit.Device, Reason: text, Params: params}
	if e.Bound() == nil {
		k.parts.Event(e)
	}
}

// note is a notice that is to be delivered.
type note struct {
	w       *watched
	channel string
	after   <-chan struct{} // closed when the notice before it is delivered; may be nil
	done    chan struct{}
	Notice
}

// How notices are delivered.
const (
	senders    = 4
	sendTime   = 30 * time.Second // of one attempt
	sendTimes  = 3
	sendPause  = 2 * time.Second // before the second attempt; it triples
	maxProblem = 200             // characters
)

// notify queues a notice of an edge behind the one before. It does not block.
func (k *Keeper) notify(w *watched, e *edge, n Notice) {
	k.mu.Lock()
	defer k.mu.Unlock()
	account := w.Owner.Account()
	for _, channel := range w.Notify {
		fits := w.Owner.Role != ferrule.Agent || k.queued[account] < maxOwnNote
		if fits {
			done := make(chan struct{})
			select {
			case k.notes <- &note{w, channel, e.sent[channel], done, n}:
				k.queued[account]++
				if e.sent == nil {
					e.sent = make(map[string]chan struct{})
				}
				e.sent[channel] = done
				continue
			default:
			}
		}
		w.failed = "too many notices wait"
	}
}

// deliver delivers one notice.
func (k *Keeper) deliver(ctx context.Context, n *note) {
	defer close(n.done)
	if n.after != nil {
		select {
		case <-n.after:
		case <-ctx.Done():
		}
	}
	send := k.sender(n.channel)
	err := fmt.Errorf("%s is not configured on this node", n.channel)
	for attempt, pause := 1, sendPause; send != nil; attempt, pause = attempt+1, pause*3 {
		attemptCtx, cancel := context.WithTimeout(ctx, sendTime)
		err = send(attemptCtx, n.Notice)
		cancel()
		if err == nil || attempt == sendTimes || ctx.Err() != nil {
			break
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	text := ""
	if err != nil {
		text = n.channel + ": " + ferrule.OneLine(ferrule.Clean(ferrule.MaskError(err).Error(), ferrule.MaxText), maxProblem)
		k.parts.Log.Warn("a notice of a watch was not delivered", "watch", n.Watch, "err", text)
	}
	k.mu.Lock()
	n.w.failed = text
	account := n.w.Owner.Account()
	if k.queued[account]--; k.queued[account] == 0 {
		delete(k.queued, account)
	}
	k.mu.Unlock()
}
