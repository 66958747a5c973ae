package poller

import (
	"fmt"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The limits per device.
const (
	maxPolls   = 256
	maxSignals = 256
)

// Intervals of polls that do not specify one.
const (
	defaultEvery = 10 * time.Second
	minRingEvery = time.Second
	maxRingEvery = time.Minute
)

// plan is the list of polls of one effective manifest. Devices share it; it never changes.
type plan struct {
	polls   []ferrule.Poll
	notes   []string // problems, up to ferrule.MaxNotes
	devices int      // reference count
}

// newPlan combines the polls of the protocol, the tools that ask to be polled, and the
// polls of overlays. The protocol's function may be nil.
func newPlan(manifest *ferrule.Manifest, protocol func(*ferrule.Manifest) []ferrule.Poll) *plan {
	p := &plan{}
	if protocol != nil {
		p.polls = protocol(manifest)
	}
	taken := make(map[string]int)
	for _, poll := range p.polls {
		taken[poll.Name]++
	}
	for i := range manifest.Tools {
		if t := &manifest.Tools[i]; t.Poll > 0 {
			p.polls = append(p.polls, ferrule.Poll{Name: uniqueName(t.Name, taken), Tool: t.Name, Every: &t.Poll})
		}
	}
	for _, change := range manifest.Polls {
		p.merge(change)
	}
	p.polls = slices.DeleteFunc(p.polls, func(poll ferrule.Poll) bool { return !p.usable(manifest, &poll) })
	if n := len(p.polls); n > maxPolls {
		p.note("%d polls, limit is %d: the others are ignored", n, maxPolls)
		p.polls = p.polls[:maxPolls]
	}
	return p
}

// note records a problem. The number is limited, because a device may get everything wrong.
func (p *plan) note(format string, args ...any) {
	if len(p.notes) < ferrule.MaxNotes {
		p.notes = append(p.notes, fmt.Sprintf(format, args...))
	}
}

// uniqueName returns a name for the poll of a tool. Taken counts the uses of each name.
func uniqueName(tool string, taken map[string]int) string {
	base := ferrule.SignalName(tool)
	if base == "" {
		base = "tool"
	}
	name := base
	for taken[name] > 0 {
		taken[base]++
		suffix := fmt.Sprintf("_%d", taken[base])
		name = base[:min(len(base), ferrule.MaxSignal-len(suffix))] + suffix
	}
	taken[name]++
	return name
}

// merge applies a poll of an overlay: it changes the poll of the same name or adds one.
func (p *plan) merge(change ferrule.Poll) {
	at := slices.IndexFunc(p.polls, func(poll ferrule.Poll) bool { return poll.Name == change.Name })
	if at < 0 {
		if change.Tool == "" {
			p.note("poll %s of an overlay ignored: no poll has that name, and it names no tool", change.Name)
			return
		}
		p.polls = append(p.polls, change)
		return
	}
	poll := &p.polls[at]
	if change.Tool != "" || change.Args != nil || change.Ring != nil { // the fallback may not match the new answer
		poll.Fallback = nil
	}
	if change.Ring != nil && poll.Parse != nil {
		poll.Every = nil // it was derived from the ring that the device declared
	}
	if change.Tool != "" && change.Tool != poll.Tool || change.Ring != nil {
		poll.Parse = nil
	}
	poll.Merge(change)
	if poll.Fallback != nil {
		fallback := *poll.Fallback
		fallback.Merge(change)
		poll.Fallback = &fallback
	}
}

// usable reports whether a poll is enabled and its tool may be called by the gateway.
func (p *plan) usable(manifest *ferrule.Manifest, poll *ferrule.Poll) bool {
	if poll.Every != nil && *poll.Every <= 0 {
		return false // disabled by its owner
	}
	if reason := unusable(manifest, poll.Tool); reason != "" {
		p.note("poll %s ignored: tool %q %s", poll.Name, poll.Tool, reason)
		return false
	}
	return true
}

// unusable returns why the gateway may not call a tool on its own, or "".
func unusable(manifest *ferrule.Manifest, name string) string {
	switch tool := manifest.Tool(name); {
	case tool == nil:
		return "does not exist"
	case tool.Quarantine != "":
		return "is quarantined: " + tool.Quarantine
	case tool.UserOnly:
		return "is for people only"
	case tool.Effect == ferrule.Endangers:
		return "can endanger, so the gateway does not call it on its own"
	}
	return ""
}

// everyOf returns the interval of a poll. A ring without an interval is read often enough
// that each sample is seen twice.
func everyOf(poll *ferrule.Poll, fastest time.Duration) time.Duration {
	every := defaultEvery
	switch {
	case poll.Every != nil:
		every = time.Duration(*poll.Every)
	case poll.Ring != nil:
		whole := time.Duration(poll.Ring.Size) * min(time.Duration(poll.Ring.Interval), maxRingEvery)
		every = min(max(whole*2/5, minRingEvery), maxRingEvery)
	}
	return max(every, fastest)
}
