package cluster

import (
	"fmt"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// eventsOf tells what happened to an own device: before is what it was, nil if it
// was not there.
func eventsOf(before *ferrule.Device, c change) (events []ferrule.Event) {
	now := c.device
	add := func(what ferrule.EventType, fill func(e *ferrule.Event)) {
		e := ferrule.Event{Time: time.Now(), Type: what, Device: c.id}
		if now != nil {
			e.Kind = now.Kind
		}
		if fill != nil {
			fill(&e)
		}
		events = append(events, e)
	}
	hello := hello(before, now)
	if hello && online(before) {
		add(ferrule.Gone, func(e *ferrule.Event) { e.Reason = "it is being connected anew" })
	}
	if !online(now) && online(before) {
		add(ferrule.Gone, func(e *ferrule.Event) {
			e.Kind, e.Reason = before.Kind, "it was taken out"
			if now != nil {
				e.Reason = now.Reason
			}
		})
	}
	if hello {
		add(ferrule.Appeared, nil)
	}
	another := online(now) && before != nil && before.Kind != "" && before.Kind != now.Kind
	if hello && !now.Changed.IsZero() && now.Changed.Equal(now.Since) || another {
		add(ferrule.ChangedKind, func(e *ferrule.Event) { e.Previous = now.Previous })
	}
	if hello && now.Trust == ferrule.TrustPending {
		add(ferrule.PendingFound, func(e *ferrule.Event) { e.Reason = fmt.Sprintf("`ferrule adopt %s` trusts it", c.id) })
	}
	if tools := quarantined(c.laid); hello && len(tools) > 0 {
		add(ferrule.Quarantined, func(e *ferrule.Event) { e.Tools = tools })
	}
	return events
}

// quarantined names the tools of a manifest that cannot be used.
func quarantined(m *ferrule.Manifest) (tools []string) {
	if m == nil {
		return nil
	}
	for i := range m.Tools {
		if m.Tools[i].Quarantine != "" && len(tools) < ferrule.MaxEventTools {
			tools = append(tools, m.Tools[i].Name)
		}
	}
	return tools
}
