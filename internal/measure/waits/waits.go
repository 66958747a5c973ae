// Package waits lets callers wait until signals, states or events of devices meet conditions.
//
//	Handle ─▶ conditions in the index, with the present values ─▶ hits ─▶ what the caller sees
//	                                                              │
//	                          deadline, or the caller leaves ─────┘
package waits

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Tool is the name of the tool that waits, and Text is its description.
const (
	Tool = "wait_for"
	Text = "Waits until a signal, state or event of devices meets a condition, or the deadline. A condition that is already true is met at once. Returns what met it, and when data was missing."
)

// Limits of wait_for.
const (
	maxConditions   = 8
	defaultDeadline = time.Minute
	// MaxDeadline is the longest wait.
	MaxDeadline  = 24 * time.Hour
	maxWaits     = 8 // of one account
	maxMissed    = 32
	waitProgress = 5 * time.Second
	// waitMargin is how long before the end of the call its result is returned.
	waitMargin = 200 * time.Millisecond
)

// Input has the arguments of wait_for.
type Input struct {
	Conditions []condition.Condition `json:"conditions" jsonschema:"1 to 8; one test per signal"`
	All        bool                  `json:"all,omitempty" jsonschema:"wait until each was met once; default: any"`
	Deadline   ferrule.Duration      `json:"deadline,omitempty" jsonschema:"default 1m, at most 24h"`
}

// Output is the result of wait_for.
type Output struct {
	Met    bool             `json:"met"`
	Hits   []Hit            `json:"hits"`
	Waited ferrule.Duration `json:"waited"`
	// Missed are times in which a condition may have been met unseen.
	Missed []MissedTime `json:"missed,omitempty"`
	Text   string       `json:"text"`
}

// Hit is a condition that was met.
type Hit struct {
	Condition int            `json:"condition"` // index in the input
	Device    string         `json:"device"`
	Signal    string         `json:"signal,omitempty"`
	Value     *float64       `json:"value,omitempty"`
	Time      time.Time      `json:"time"`
	Event     *ferrule.Event `json:"event,omitempty"`
}

// MissedTime is a time in which samples of a device may be missing.
type MissedTime struct {
	Device string            `json:"device"`
	From   time.Time         `json:"from"`
	To     time.Time         `json:"to"`
	Reason ferrule.GapReason `json:"reason"`
}

// Parts are the dependencies of Waits.
type Parts struct {
	Index *condition.Index
	// Find returns a device that the caller may see, by its ID or an earlier one.
	Find func(call *ferrule.Call, id string) (*ferrule.Device, bool)
	// Devices returns all devices.
	Devices func() []*ferrule.Device
	// Event returns an error if an event is not known, and none of the devices is likely to send
	// a notification of this name.
	Event func(devices []*ferrule.Device, event string) error
	// Current returns the present value of a signal, if one is known that is fresh. The
	// error says that there will be none.
	Current func(ctx context.Context, call *ferrule.Call, dev *ferrule.Device, signal string) (ferrule.Reading, bool, error)
}

// Waits are calls of wait_for.
type Waits struct {
	parts Parts

	mu      sync.Mutex
	running map[waiter]int
	last    uint64 // number of the last one
}

// New returns Waits. The Index must run.
func New(p Parts) *Waits { return &Waits{parts: p, running: make(map[waiter]int)} }

// waiter is an account, which may be one of another node.
type waiter struct {
	via string
	ferrule.Principal
}

// enter counts a wait of a caller. It returns a prefix of IDs in the index, and what ends it.
func (w *Waits) enter(call *ferrule.Call) (prefix string, leave func(), err error) {
	who := waiter{call.Via, call.Principal.Account()}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running[who] >= maxWaits {
		return "", nil, ferrule.Errorf(ferrule.Limited, "%d calls of %s are waiting; limit is %d per caller", maxWaits, Tool, maxWaits).
			WithHint("wait for several conditions in one call, or try again when one of them has ended")
	}
	w.running[who]++
	w.last++
	return fmt.Sprintf("wait-%d-", w.last), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.running[who]--; w.running[who] == 0 {
			delete(w.running, who)
		}
	}, nil
}

// Handle serves a call of wait_for.
func (w *Waits) Handle(ctx context.Context, call *ferrule.Call, in Input) (out Output, err error) {
	limit, err := in.check(ctx)
	if err != nil {
		return out, err
	}
	prefix, leave, err := w.enter(call)
	if err != nil {
		return out, err
	}
	defer leave()
	one := &wait{Waits: w, call: call, in: in, prefix: prefix, began: time.Now(), limit: limit, changed: make(chan struct{}, 1), met: make([]*Hit, len(in.Conditions)), gaps: make(map[string][]ferrule.Gap)}
	defer one.remove()
	if err := one.add(ctx); err != nil {
		return out, err
	}
	return one.run(ctx)
}

// check checks the input, and returns how long to wait: less than until the call ends, so that
// its caller gets a result.
func (in *Input) check(ctx context.Context) (time.Duration, error) {
	if n := len(in.Conditions); n == 0 || n > maxConditions {
		return 0, ferrule.Errorf(ferrule.Invalid, "conditions: must be 1 to %d, got %d", maxConditions, n)
	}
	for i := range in.Conditions {
		if err := in.Conditions[i].CheckAt(fmt.Sprintf("conditions[%d]", i)); err != nil {
			return 0, ferrule.Errorf(ferrule.Invalid, "%w", err)
		}
	}
	limit := time.Duration(in.Deadline)
	if limit == 0 {
		limit = defaultDeadline
	}
	if limit < 0 || limit > MaxDeadline {
		return 0, ferrule.Errorf(ferrule.Invalid, "deadline: must be from 1s to %v, got %v", MaxDeadline, in.Deadline)
	}
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)-waitMargin)
	}
	return max(limit, 0), nil
}

// wait is one call of wait_for.
type wait struct {
	*Waits
	call   *ferrule.Call
	in     Input
	prefix string
	began  time.Time
	limit  time.Duration

	// changed is signaled when there is a new hit.
	changed chan struct{}
	met     []*Hit // by condition
	gaps    map[string][]ferrule.Gap

	hitMu sync.Mutex
	hits  []conditionHit // new ones, one of each condition and device
}

type conditionHit struct {
	condition int
	condition.Hit
}

func (w *wait) id(i int) string { return fmt.Sprint(w.prefix, i) }

// add adds the conditions to the index, with the present values.
func (w *wait) add(ctx context.Context) error {
	selected := make([][]*ferrule.Device, len(w.in.Conditions))
	for i := range w.in.Conditions {
		c := &w.in.Conditions[i]
		devices, err := w.devices(c)
		if err != nil {
			return err
		}
		if c.Event != "" {
			if err := w.parts.Event(devices, c.Event); err != nil {
				return err
			}
		}
		selected[i] = devices
	}
	for i, c := range w.in.Conditions {
		if err := w.parts.Index.Add(condition.Entry{ID: w.id(i), Condition: c, Hit: func(h condition.Hit) { w.hit(i, h) }}); err != nil {
			return ferrule.Errorf(ferrule.Limited, "conditions[%d]: %w", i, err)
		}
	}
	if err := w.parts.Index.Ready(ctx); err != nil {
		return w.ended(ctx)
	}
	for i, c := range w.in.Conditions {
		if c.Signal == "" {
			continue
		}
		if err := w.prime(ctx, i, selected[i]); err != nil {
			return err
		}
	}
	return nil
}

func (w *wait) remove() {
	for i := range w.in.Conditions {
		w.parts.Index.Remove(w.id(i))
	}
}

// devices returns the devices of a condition that the caller may see. A condition on a single
// device gets its present ID.
func (w *wait) devices(c *condition.Condition) (all []*ferrule.Device, err error) {
	selector, err := condition.ParseSelector(c.Device)
	if err != nil {
		return nil, ferrule.Errorf(ferrule.Invalid, "device: %w", err)
	}
	if id := selector.ID(); id != "" {
		dev, ok := w.parts.Find(w.call, id)
		if !ok {
			return nil, ferrule.UnknownDevice(id)
		}
		c.Device = dev.ID
		return []*ferrule.Device{dev}, nil
	}
	for _, dev := range w.parts.Devices() {
		if selector.Matches(dev) && w.sees(dev.ID) {
			all = append(all, dev)
		}
	}
	if len(all) == 0 && c.Signal != "" {
		return nil, ferrule.Errorf(ferrule.NotFound, "no device matches %q", c.Device).WithHint("list devices with gateway__find_devices")
	}
	return all, nil
}

// sees reports whether the caller may see a device now.
func (w *wait) sees(id string) bool {
	_, ok := w.parts.Find(w.call, id)
	return ok
}

// prime gives a condition the present values. It fails if none of the devices can have one.
func (w *wait) prime(ctx context.Context, i int, devices []*ferrule.Device) error {
	var failed error
	possible := false
	for _, dev := range devices {
		r, ok, err := w.parts.Current(ctx, w.call, dev, w.in.Conditions[i].Signal)
		if err != nil {
			failed = err
			continue
		}
		if possible = true; ok {
			w.parts.Index.Prime(w.id(i), r)
		}
	}
	if possible {
		return nil
	}
	return failed
}

// hit is called by the index. It must not block.
func (w *wait) hit(i int, h condition.Hit) {
	w.hitMu.Lock()
	defer w.hitMu.Unlock()
	if slices.ContainsFunc(w.hits, func(other conditionHit) bool { return other.condition == i && other.Device == h.Device }) {
		return
	}
	w.hits = append(w.hits, conditionHit{i, h})
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// run waits for hits, until there are enough or the time is over.
func (w *wait) run(ctx context.Context) (Output, error) {
	end := time.NewTimer(w.limit - time.Since(w.began))
	defer end.Stop()
	tick := time.NewTicker(waitProgress)
	defer tick.Stop()
	for {
		select {
		case <-w.changed:
			if w.take() {
				return w.output(true), nil
			}
		case <-tick.C:
			w.report()
		case <-end.C:
			return w.output(w.take()), nil
		case <-ctx.Done():
			return Output{}, w.ended(ctx)
		}
	}
}

// take takes the new hits, and reports whether there are enough. What the caller may not see
// at the time of the hit does not count.
func (w *wait) take() bool {
	w.hitMu.Lock()
	hits := w.hits
	w.hits = nil
	w.hitMu.Unlock()
	for _, h := range hits {
		if w.met[h.condition] != nil || !w.sees(h.Device) {
			continue
		}
		hit := &Hit{Condition: h.condition, Device: h.Device, Signal: h.Signal, Time: h.Time.UTC(), Event: h.Event}
		if h.Event == nil {
			hit.Value = &h.Value
		}
		w.met[h.condition] = hit
		w.gaps[h.Device] = append(w.gaps[h.Device], h.Gaps...)
	}
	missing := slices.Contains(w.met, nil)
	if w.in.All {
		return !missing
	}
	return slices.ContainsFunc(w.met, func(h *Hit) bool { return h != nil })
}

// report tells the caller that the call is still waiting.
func (w *wait) report() {
	var open []string
	for i, hit := range w.met {
		if hit == nil {
			open = append(open, w.in.Conditions[i].String())
		}
	}
	passed := time.Since(w.began)
	w.call.Report(ferrule.Progress{
		Message: fmt.Sprintf("waiting for %s, %v of %v", strings.Join(open, " and "), passed.Round(time.Second), w.limit.Round(time.Second)),
		Done:    passed.Seconds(), Total: w.limit.Seconds(),
	})
}

// ended returns the error of a call that was ended before it had a result.
func (w *wait) ended(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ferrule.Errorf(ferrule.Unanswered, "the time of the call was over before %s could start", Tool)
	}
	return ferrule.Errorf(ferrule.Cancelled, "cancelled while waiting for %s", w.in.Conditions[0].String()).
		WithHint("if the gateway was stopped, call %s again; a watch lasts across restarts", Tool)
}

// output returns the result.
func (w *wait) output(met bool) Output {
	out := Output{Met: met, Hits: []Hit{}, Waited: ferrule.Duration(time.Since(w.began).Round(time.Millisecond))}
	var said []string
	for i, hit := range w.met {
		if hit != nil {
			out.Hits = append(out.Hits, *hit)
			said = append(said, hit.text())
			continue
		}
		for device, all := range w.parts.Index.Gaps(w.id(i)) {
			w.gaps[device] = append(w.gaps[device], all...)
		}
	}
	out.Missed = w.missed()
	switch {
	case met:
		out.Text = "Met: " + strings.Join(said, "; ") + "."
	case len(said) > 0:
		out.Text = fmt.Sprintf("Not met within %v. So far: %s.", out.Waited, strings.Join(said, "; "))
	default:
		out.Text = fmt.Sprintf("Not met within %v.", out.Waited)
	}
	if len(out.Missed) > 0 {
		out.Text += " Data is missing for the times in missed: it may have been met then."
	}
	return out
}

func (h *Hit) text() string {
	if h.Event != nil {
		return fmt.Sprintf("%s of %s at %s", h.Event.Type, h.Device, h.Time.Format(time.RFC3339Nano))
	}
	return fmt.Sprintf("%s of %s was %v at %s", h.Signal, h.Device, *h.Value, h.Time.Format(time.RFC3339Nano))
}

// missed returns the gaps of devices that the caller may see, and the time since which a
// device of a single condition is offline.
func (w *wait) missed() (all []MissedTime) {
	for i, hit := range w.met {
		if hit != nil {
			continue
		}
		dev, ok := w.parts.Find(w.call, w.in.Conditions[i].Device)
		if ok && dev.State != ferrule.StateOnline {
			from := dev.Since
			if from.Before(w.began) {
				from = w.began
			}
			w.gaps[dev.ID] = append(w.gaps[dev.ID], ferrule.Gap{From: from, To: time.Now(), Reason: ferrule.Silent})
		}
	}
	for _, device := range slices.Sorted(maps.Keys(w.gaps)) {
		if !w.sees(device) {
			continue
		}
		for _, g := range w.gaps[device] {
			m := MissedTime{Device: device, From: g.From.UTC(), To: g.To.UTC(), Reason: g.Reason}
			if len(all) < maxMissed && !slices.Contains(all, m) {
				all = append(all, m)
			}
		}
	}
	return all
}
