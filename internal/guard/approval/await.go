package approval

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// reportEvery is how often a caller hears that its call still waits.
const reportEvery = 5 * time.Second

// maxArgs is the limit of arguments that a person can be asked about, in bytes.
const maxArgs = 16 << 10

// Await implements pipeline.Approvals. It holds a call until a person has approved exactly
// this call, and returns nil when the disk has that the approval is used. The arguments of
// the call are then in the form that the person saw.
func (a *Approvals) Await(ctx context.Context, call *ferrule.Call) error {
	b, err := a.bind(call)
	if err != nil {
		return err
	}
	w := &waiter{approvals: a, call: call, binding: b, key: b.key(), end: time.Now().Add(a.cfg.Wait)}
	defer w.leave()
	for {
		changed, left, err := w.try(ctx)
		if err != nil || changed == nil {
			return err
		}
		w.ask(ctx)
		call.Report(ferrule.Progress{Asked: true, Message: fmt.Sprintf("waiting for approval by a person, %s left (request %s)%s", ferrule.Countdown(left), a.fullID(w.request.ID), a.where())})
		select {
		case <-changed:
		case <-time.After(min(left, reportEvery)):
		case <-ctx.Done():
			return gone(ctx, call)
		}
	}
}

// where returns where a person can answer, as the end of a sentence.
func (a *Approvals) where() string {
	if a.parts.Page == nil {
		return ""
	}
	if url := a.parts.Page(); url != "" {
		return ": " + url
	}
	return ""
}

// gone returns the error for a call whose caller left, or has no more time.
func gone(ctx context.Context, call *ferrule.Call) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ferrule.Errorf(ferrule.Denied, "%s of %s was not approved within the time of the call", call.Tool, call.Device).
			WithHint("the request stays open for a while: call again with the same arguments when a person has approved it")
	}
	return ferrule.Errorf(ferrule.Cancelled, "cancelled while %s of %s waited for approval", call.Tool, call.Device)
}

// bind returns what an approval of the call would be for, and replaces its arguments by
// their canonical form: what is sent is what a person approves, byte by byte.
func (a *Approvals) bind(call *ferrule.Call) (Binding, error) {
	var args bytes.Buffer
	enc := json.NewEncoder(&args)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(call.DecodedArgs); err != nil {
		return Binding{}, ferrule.Errorf(ferrule.Internal, "encoding the arguments of %s: %w", call.Tool, err)
	}
	text := bytes.TrimSuffix(args.Bytes(), []byte("\n"))
	if call.DecodedArgs == nil {
		text = []byte("{}")
	}
	if len(text) > maxArgs {
		return Binding{}, ferrule.Errorf(ferrule.Denied, "%s of %s needs approval, and its arguments are too long for a person to read: limit is %d bytes, got %d", call.Tool, call.Device, maxArgs, len(text))
	}
	if !utf8.ValidString(call.Tool) || len(call.Tool) > ferrule.MaxURI {
		return Binding{}, ferrule.Errorf(ferrule.Denied, "%q of %s needs approval, and cannot be shown to a person", ferrule.Clean(call.Tool, ferrule.MaxToolName), call.Device)
	}
	call.Args = text
	text = call.Target.Tool.MaskArgs(text, true) // the approval is then for any secret
	return Binding{
		Principal: call.Principal, Via: call.Via, Device: call.Target.Device.ID, Kind: call.Target.Device.Kind,
		Operation: call.Operation, Tool: call.Tool, Args: text, Policy: a.parts.Version(),
	}, nil
}

// waiter is one call that waits.
type waiter struct {
	approvals *Approvals
	call      *ferrule.Call
	binding   Binding
	key       string
	end       time.Time // of its patience

	request *request // nil before the first try
	asking  sync.WaitGroup
	stop    context.CancelFunc // of the question to the agent's user; nil without one
}

// try uses an approval, if there is one, and then returns neither a channel nor an error.
// Otherwise it joins the request of the call or makes one. The channel is closed when it
// should try again; it may try earlier.
func (w *waiter) try(ctx context.Context) (changed <-chan struct{}, left time.Duration, err error) {
	a := w.approvals
	a.mu.Lock()
	defer a.mu.Unlock()
	now, version := time.Now(), a.parts.Version()
	if w.binding.Policy != version {
		return nil, 0, ferrule.Errorf(ferrule.Denied, "the policy changed while %s of %s waited for approval", w.call.Tool, w.call.Device).WithHint("call again")
	}
	if r := w.request; r != nil && !a.sweep(r, now, version) {
		if err := w.ended(r, now); err != nil {
			return nil, 0, err
		}
		w.quit() // another call used the approval
	}
	r := a.byKey[w.key]
	if r != nil && !a.sweep(r, now, version) {
		r = nil
	}
	switch {
	case r != nil && r.state == allowed:
		return nil, 0, w.use(ctx, r)
	case over(now, w.end):
		return nil, 0, w.unanswered()
	case r == nil:
		if r, err = a.create(w.call, w.binding, now); err != nil {
			return nil, 0, err
		}
	}
	if w.request == nil {
		w.request = r
		r.calls++
	}
	return r.changed, min(r.Expires.Sub(now), w.end.Sub(now)), nil
}

// ended returns the error for a call whose request has ended, or nil if the call may make
// another one.
func (w *waiter) ended(r *request, now time.Time) error {
	switch {
	case r.state == used && !over(now, w.end):
		return nil
	case r.state == denied:
		return ferrule.Errorf(ferrule.Denied, "%s of %s was denied by %s", w.call.Tool, w.call.Device, r.By).
			WithHint("do not call again unless that person wants it")
	case r.state == revoked:
		return ferrule.Errorf(ferrule.Denied, "%s of %s cannot be approved any more: %s", w.call.Tool, w.call.Device, r.why).
			WithHint("call again with a token or login that is accepted")
	}
	return w.unanswered()
}

func (w *waiter) unanswered() error {
	return ferrule.Errorf(ferrule.Denied, "%s of %s needs approval, and nobody approved it within %v", w.call.Tool, w.call.Device, w.approvals.cfg.Wait).
		WithHint("ask the person who runs this gateway to look for the request, then call again with the same arguments")
}

// use uses an approval: it is on disk when use returns nil. It is called with mu held.
func (w *waiter) use(ctx context.Context, r *request) error {
	a := w.approvals
	if ctx.Err() != nil {
		return gone(ctx, w.call)
	}
	dev, _, ok := a.parts.Devices.Lookup(r.Device)
	if !ok || dev.ID != r.Device || dev.Kind != r.Kind || dev.Trust == ferrule.TrustPending {
		return ferrule.Errorf(ferrule.Denied, "%s changed while the call waited for approval, and the approval is not for what it is now", r.Device).
			WithHint("to see its tools now, run `ferrule tools %s`", r.Device)
	}
	if a.parts.Decide != nil {
		if v := a.parts.Decide(w.call); v.Ruling != ferrule.Ask && v.Ruling != ferrule.Permit {
			return ferrule.Errorf(ferrule.Denied, "%s of %s was approved, but is forbidden by now: %s", w.call.Tool, w.call.Device, v.Reason)
		}
	}
	if why := a.stopped(dev, w.call.Target.Tool.Effect); why != "" { // an approval must not be used up by a call that will be refused
		return ferrule.Errorf(ferrule.Denied, "%s of %s was approved, but %s; nothing was sent", w.call.Tool, w.call.Device, why).
			WithHint("the approval can still be used until %s: call again with the same arguments when a person has run `ferrule resume`", ferrule.FormatTime(r.Expires))
	}
	message := "used; allowed once by " + r.By
	if r.Standing {
		message = "used; allowed for a time by " + r.By
	}
	err := a.record(r, w.call.ID, message, true)
	if err == nil && !r.Standing {
		// model: approve_use
		err = a.store.drop(r.ID, true)
	}
	if err != nil {
		return ferrule.Errorf(ferrule.Denied, "%s of %s was approved, but was not sent because the use of the approval cannot be stored: %w", w.call.Tool, w.call.Device, err).
			WithHint("check that the disk of the data directory is not full")
	}
	if !r.Standing {
		a.forget(r, used)
		a.tell(r, message)
	}
	return nil
}

// quit leaves the request. It is called with mu held.
func (w *waiter) quit() {
	if w.request != nil {
		w.request.calls--
		w.request = nil
	}
	if w.stop != nil {
		w.stop()
		w.stop = nil
	}
}

// leave ends the wait. The request stays.
func (w *waiter) leave() {
	w.approvals.mu.Lock()
	w.quit()
	w.approvals.mu.Unlock()
	w.asking.Wait()
}

// create makes a request. It is on disk when create returns. It is called with mu held.
func (a *Approvals) create(call *ferrule.Call, b Binding, now time.Time) (*request, error) {
	waits, own := 0, 0
	for _, r := range a.byKey {
		if r.state == waiting {
			waits++
			if r.Principal.Account() == b.Principal.Account() && r.Via == b.Via { // names can be invented
				own++
			}
		}
	}
	const hint = "try again when a person has answered some"
	switch {
	case own >= a.cfg.PerCaller:
		return nil, ferrule.Errorf(ferrule.Limited, "too many of your calls wait for approval: limit is %d", a.cfg.PerCaller).WithHint(hint)
	case waits >= a.cfg.Total || len(a.byKey) >= maxStored:
		return nil, ferrule.Errorf(ferrule.Limited, "too many calls wait for approval: limit is %d", a.cfg.Total).WithHint(hint)
	}
	dev, tool := call.Target.Device, call.Target.Tool
	record := Record{
		ID: a.newID(), Binding: b, Call: call.ID, Client: call.Client.Bounded(), Effect: tool.Effect, Text: ferrule.Clean(tool.Text, maxText),
		Model: ferrule.Clean(dev.Model, ferrule.MaxWord), Labels: dev.Labels, Reason: ferrule.Clean(call.Verdict.Reason, ferrule.MaxReason),
		Rule: ferrule.Clean(call.Verdict.Rule, ferrule.MaxURI), Created: now, Expires: now.Add(a.cfg.Wait),
	}
	token := a.newLink(&record)
	if err := a.store.put(record); err != nil {
		return nil, ferrule.Errorf(ferrule.Denied, "%s of %s needs approval, and the request cannot be stored: %w", call.Tool, call.Device, err).
			WithHint("check that the disk of the data directory is not full")
	}
	// model: approve_ask
	r := a.add(record)
	if err := a.record(r, call.ID, "requested", false); err != nil {
		a.parts.Log.Error("approvals: request not recorded", "call", call.ID, "device", r.Device, "tool", r.Tool, "err", err)
	}
	view := a.view(r)
	a.tell(r, fmt.Sprintf("waits for approval: %s. Run `ferrule approve %s` or `ferrule deny %s`", view.Summary(), view.ID, view.ID))
	a.notify(r, token)
	return r, nil
}

// maxText limits what is stored of the device's words about a tool, in bytes.
const maxText = 2048

// yesOrNo is the form of the question to an agent's user.
var yesOrNo = json.RawMessage(`{"type":"object","properties":{"allow":{"type":"boolean","title":"Allow this call once"}},"required":["allow"]}`)

// ask asks the user of the agent, if the owner of the gateway wants that, once for each
// request: to open the page on which people answer, or else by a form, which a model could
// answer, too.
func (w *waiter) ask(ctx context.Context) {
	a, call := w.approvals, w.call
	if w.stop != nil || call.Ask == nil || call.Principal.Role != ferrule.Agent || !slices.Contains(a.cfg.AskAgentsUser, call.Principal.Name) {
		return
	}
	question := ferrule.Question{Name: "approval"}
	if a.parts.Page != nil && slices.Contains(call.Askable, ferrule.Page) {
		question.URL = a.parts.Page()
	}
	switch {
	case question.URL != "":
	case slices.Contains(call.Askable, ferrule.User):
		question.Schema = yesOrNo
	default:
		return
	}
	ctx, w.stop = context.WithCancel(ctx)
	r := w.request
	a.mu.Lock()
	question.Text = questionText(a.view(r))
	a.mu.Unlock()
	if question.URL != "" {
		question.Text += " To answer, open the page and log in. The request there is " + a.fullID(r.ID) + "."
	}
	w.asking.Go(func() {
		given, err := call.Ask(ctx, question)
		var in struct {
			Allow *bool `json:"allow"`
		}
		switch {
		case err != nil || given.Dismissed || ctx.Err() != nil:
			return // others can still answer
		case given.Given && question.URL != "":
			return // a person answers on the page
		case given.Given && (json.Unmarshal(given.Value, &in) != nil || in.Allow == nil):
			return
		}
		by := "the user of " + ferrule.Clean(call.Principal.String(), ferrule.MaxWord) + ", asked through the agent"
		a.mu.Lock()
		defer a.mu.Unlock()
		if r.state != waiting {
			return
		}
		if _, err := a.answer(r, by, Answer{Allow: given.Given && *in.Allow}); err != nil {
			a.parts.Log.Warn("approvals: the answer of an agent's user does not count", "call", call.ID, "device", r.Device, "tool", r.Tool, "err", err)
		}
	})
}

// questionText is the question to an agent's user. Ferrule wrote it, except for what it
// quotes.
func questionText(v ferrule.Approval) string {
	text := fmt.Sprintf("Ferrule asks for your approval. %s. The effect of the tool is: %s. The device is %s.", v.Summary(), v.Effect, v.Now)
	if v.DeviceText != "" {
		text += fmt.Sprintf(" The device says about the tool: %q", ferrule.OneLine(v.DeviceText, 300))
	}
	return text
}
