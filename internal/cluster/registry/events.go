package registry

import (
	"fmt"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// changeEvents returns the events of a change of an own device: before is its previous
// state, nil if it is new.
func changeEvents(before *ferrule.Device, c change) (events []ferrule.Event) {
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
	connected := connected(before, now)
	if connected && online(before) {
		add(ferrule.Gone, func(e *ferrule.Event) { e.Reason = "reconnecting" })
	}
	if !online(now) && online(before) {
		add(ferrule.Gone, func(e *ferrule.Event) {
			e.Kind, e.Reason = before.Kind, "removed"
			if now != nil {
				e.Reason = now.Reason
			}
		})
	}
	if connected {
		add(ferrule.Appeared, nil)
	}
	newKind := online(now) && before != nil && before.Kind != "" && before.Kind != now.Kind
	if connected && !now.Changed.IsZero() && now.Changed.Equal(now.Since) || newKind {
		add(ferrule.ChangedKind, func(e *ferrule.Event) { e.Previous = now.Previous })
	}
	if connected && now.Trust == ferrule.TrustPending {
		add(ferrule.PendingFound, func(e *ferrule.Event) { e.Reason = fmt.Sprintf("run `ferrule adopt %s` to trust it", c.id) })
	}
	if online(now) && now.Waiting > 0 && (connected || before.Offered != now.Offered) {
		add(ferrule.ChangesWait, func(e *ferrule.Event) { e.Kind, e.Reason = now.Offered, now.WaitingNote() })
	}
	if tools := quarantined(c.manifest); connected && len(tools) > 0 {
		add(ferrule.Quarantined, func(e *ferrule.Event) { e.Tools = tools })
	}
	return events
}

// quarantined returns the names of the first quarantined tools of a manifest.
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
