package console

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// eventsRoutes adds the tab with the events of a device.
func (c *Console) eventsRoutes() {
	c.page("GET /devices/{device}/events", c.eventsPage)
	c.livePage("GET /live/devices/{device}/events", func(v *visit) (live, error) {
		f, err := c.openDevice(v, "Events")
		return together{&deviceLive{c, v, f.Device.ID, nil}, &eventsLive{Console: c, who: v.who, device: f.Device.ID}}, err
	})
}

// shownEvents is how many events the tab shows.
const shownEvents = 100

// eventsView is what the tab shows.
type eventsView struct {
	Device string
	Events []eventRow
	// Problem says why earlier events are missing.
	Problem string
}

// eventRow is an event in words.
type eventRow struct {
	Time             time.Time
	Word, Icon, Tone string
	// Text is the reason, and Method and Says are the device's own words.
	Text, Method, Says string
	Tools              []string
	Node               string
}

// eventWords has the words for the types of events.
var eventWords = map[ferrule.EventType][3]string{
	ferrule.Appeared:      {"Online", "on", "ok"},
	ferrule.Gone:          {"Offline", "off", ""},
	ferrule.ChangedKind:   {"Changed", "changed", "warn"},
	ferrule.PendingFound:  {"New", "pending", "info"},
	ferrule.Quarantined:   {"Tools quarantined", "refused", "warn"},
	ferrule.ChangesWait:   {"Changes wait for you", "clock", "ask"},
	ferrule.Notified:      {"Reported", "info", ""},
	ferrule.ApprovalEvent: {"Approval", "approvals", "ask"},
	ferrule.WasStopped:    {"Stopped", "stop", "bad"},
	ferrule.WasResumed:    {"Resumed", "done", ""},
	ferrule.Registered:    {"Tools registered", "info", ""},
	ferrule.Unregistered:  {"Tools removed", "info", ""},
	ferrule.WatchFired:    {"Watch", "eye", "info"},
}

func eventRowOf(e api.DeviceEvent) eventRow {
	words, ok := eventWords[ferrule.EventType(e.Type)]
	if !ok {
		words = [3]string{ferrule.Clean(e.Type, ferrule.MaxWord), "info", ""}
	}
	return eventRow{e.Time, words[0], words[1], words[2], clean(e.Reason), clean(e.Method), clean(string(e.Params)), e.Tools, e.Node}
}

func (c *Console) eventsPage(v *visit) error {
	f, err := c.openDevice(v, "Events")
	if err != nil {
		return err
	}
	p := eventsView{Device: f.Device.ID}
	out, err := c.api.Events(v.ctx(), v.who, api.EventsInput{Device: f.Device.ID, Limit: shownEvents})
	if err != nil {
		p.Problem = ferrule.AsError(err).Message
	}
	for _, e := range out.Events {
		p.Events = append(p.Events, eventRowOf(e))
	}
	return c.renderDevice(v, http.StatusOK, f, page{Live: "/live" + f.Path + "/events"}, "events", p)
}

// eventsLive adds new events to the list of an open page. It reads the stored ones once.
type eventsLive struct {
	*Console
	who    ferrule.Principal
	device string

	mu     sync.Mutex
	read   bool
	events []api.DeviceEvent // newest first
}

func (l *eventsLive) watch(changed func(string)) func() {
	return l.parts.Streams.Listen(func(e ferrule.Event) {
		if e.Device != l.device {
			return
		}
		l.mu.Lock()
		l.events = slices.Insert(l.events, 0, api.EventOf(e))
		l.events = l.events[:min(len(l.events), shownEvents)]
		l.mu.Unlock()
		changed("events")
	})
}

func (l *eventsLive) update(ctx context.Context, _ []string, out *updates) error {
	l.mu.Lock()
	read := l.read
	l.mu.Unlock()
	if !read {
		stored, err := l.api.Events(ctx, l.who, api.EventsInput{Device: l.device, Limit: shownEvents})
		if err != nil {
			return err
		}
		l.keep(stored.Events)
	}
	l.mu.Lock()
	p := eventsView{Device: l.device}
	for _, e := range l.events {
		p.Events = append(p.Events, eventRowOf(e))
	}
	l.mu.Unlock()
	return out.element("events", "events-list", p)
}

// keep adds stored events below those that came meanwhile. One that came while the others
// were read is stored too.
func (l *eventsLive) keep(stored []api.DeviceEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	came := l.events
	for _, e := range stored {
		same := func(other api.DeviceEvent) bool {
			return other.Time.Equal(e.Time) && other.Type == e.Type && other.Method == e.Method
		}
		if !slices.ContainsFunc(came, same) {
			l.events = append(l.events, e)
		}
	}
	l.events = l.events[:min(len(l.events), shownEvents)]
	l.read = true
}
