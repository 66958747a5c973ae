package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/watch"
)

// watchesRoutes adds the page with the watches of agents and people.
func (c *Console) watchesRoutes() {
	c.page("GET /watches", func(v *visit) error { return c.showWatches(v, nil) })
	c.page("POST /watches", c.changeWatch)
	c.livePage("GET /live/watches", func(v *visit) (live, error) { return &watchesLive{c, v}, nil })
}

// watchesPage is what the page shows.
type watchesPage struct {
	CSRF string
	// May reports whether the person may change watches.
	May     bool
	Watches []watchRow
	More    int // that are not shown
	Form    watchForm
	Failed  *ferrule.Error // why a watch was not set
}

// watchForm is the form for a new watch, with what was entered.
type watchForm struct {
	Name, Device, Signal, Test, Value, To, For, Hysteresis, CallDevice, CallTool, CallArgs string
	Webhook, MQTT                                                                          string // yes if it notifies there too
	Tests                                                                                  []string
}

// watchRow is a watch in the list.
type watchRow struct{ watch.Status }

// When returns the condition in words.
func (r watchRow) When() string {
	return ferrule.Clean(r.Condition.String(), ferrule.MaxText)
}

// Named reports whether the name says more than the condition.
func (r watchRow) Named() bool { return r.Name != r.When() }

// Limits says how often the watch acts, and how far a value must go back before.
func (r watchRow) Limits() string {
	text := fmt.Sprintf("at most every %s, %d an hour", watch.Short(time.Duration(r.Every)), r.PerHour)
	if h := r.Condition.Hysteresis; h != 0 {
		text += fmt.Sprintf(", hysteresis %g", h)
	}
	return text
}

// Calls returns what the watch calls, as JSON that shows what is hidden.
func (r watchRow) Calls() string {
	if r.Call == nil {
		return ""
	}
	return strings.TrimSpace(r.Call.Tool + " of " + r.Call.Device + " " + string(ferrule.EscapeHidden(r.Call.Args)))
}

// maxWatchRows is how many watches the page shows.
const maxWatchRows = 200

// watchTests are the tests of the form.
var watchTests = []string{"above", "below", "outside", "inside", "equals", "changes", "event"}

// listWatches returns the page without the form.
func (c *Console) listWatches(ctx context.Context, v *visit) (p watchesPage, err error) {
	out, err := c.api.Watches(ctx, v.who, builtin.ListWatchesInput{})
	if err != nil {
		return p, err
	}
	p = watchesPage{CSRF: v.csrf, May: api.Allowed(v.who, ferrule.ScopeChange) == nil, More: max(0, len(out.Watches)-maxWatchRows)}
	for i := len(out.Watches) - 1; i >= p.More; i-- { // the newest first
		p.Watches = append(p.Watches, watchRow{out.Watches[i]})
	}
	return p, nil
}

func (c *Console) showWatches(v *visit, failed *ferrule.Error) error {
	p, err := c.listWatches(v.ctx(), v)
	if err != nil {
		return err
	}
	p.Failed, p.Form = failed, newWatchForm(v)
	status := http.StatusOK
	if failed != nil {
		status = http.StatusBadRequest
	}
	return c.render(v, status, page{Title: "Watches", Section: "rules", Live: "/live/watches"}, "watches", p)
}

// watchesLive keeps the list current. No event says that a condition ended, so
// the list is also made again now and then; it is sent only if it differs.
type watchesLive struct {
	*Console
	v *visit
}

// watchesEvery is how often the list is made without an event.
const watchesEvery = 5 * time.Second

func (l *watchesLive) watch(changed func(string)) func() {
	stop, ended := l.hub.subscribe(changed, topicWatches), make(chan struct{})
	go func() {
		ticker := time.NewTicker(watchesEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				changed(topicWatches)
			case <-ended:
				return
			}
		}
	}()
	return func() { stop(); close(ended) }
}

func (l *watchesLive) update(ctx context.Context, _ []string, out *updates) error {
	p, err := l.listWatches(ctx, l.v)
	if err != nil {
		return err
	}
	return out.element("watches-list", "watches-list", p)
}

func newWatchForm(v *visit) watchForm {
	f := watchForm{Tests: watchTests}
	for name, field := range map[string]*string{
		"name": &f.Name, "device": &f.Device, "signal": &f.Signal, "test": &f.Test, "value": &f.Value, "to": &f.To, "webhook": &f.Webhook, "mqtt": &f.MQTT, "for": &f.For, "hysteresis": &f.Hysteresis,
		"call_device": &f.CallDevice, "call_tool": &f.CallTool, "call_args": &f.CallArgs,
	} {
		*field = strings.TrimSpace(v.r.FormValue(name))
	}
	return f
}

// changeWatch sets, enables, disables or removes a watch.
func (c *Console) changeWatch(v *visit) error {
	in := builtin.WatchInput{Watch: v.r.PostFormValue("watch")}
	on, off := true, false
	switch v.r.PostFormValue("do") {
	case "enable":
		in.Enabled = &on
	case "disable":
		in.Enabled = &off
	case "remove":
		in.Remove = true
	case "add":
		var err error
		if in, err = newWatchForm(v).input(); err != nil {
			return c.showWatches(v, ferrule.AsError(err))
		}
	default:
		return ferrule.Errorf(ferrule.Invalid, "do must be add, enable, disable or remove")
	}
	_, err := c.api.SetWatch(v.ctx(), v.who, in)
	if err != nil && in.When != nil {
		return c.showWatches(v, ferrule.AsError(err))
	}
	if err != nil {
		return err
	}
	return v.redirect("/watches")
}

// input returns what the form sets.
func (f watchForm) input() (builtin.WatchInput, error) {
	in := builtin.WatchInput{Name: f.Name, When: &condition.Condition{Device: f.Device, Signal: f.Signal}}
	number := func(name, text string) (v float64, err error) {
		if v, err = strconv.ParseFloat(text, 64); err != nil {
			err = ferrule.Errorf(ferrule.Invalid, "%s must be a number, got %q", name, ferrule.Clean(text, ferrule.MaxWord))
		}
		return v, err
	}
	var value float64
	var err error
	if f.Test != "changes" && f.Test != "event" {
		if value, err = number("value", f.Value); err != nil {
			return in, err
		}
	}
	band := &condition.Band{From: value}
	if f.Test == "outside" || f.Test == "inside" {
		if band.To, err = number("the upper end", f.To); err != nil {
			return in, err
		}
	}
	switch f.Test {
	case "above":
		in.When.Above = &value
	case "below":
		in.When.Below = &value
	case "equals":
		in.When.Equals = &value
	case "outside":
		in.When.Outside = band
	case "inside":
		in.When.Inside = band
	case "changes":
		in.When.Changes = true
	case "event":
		in.When.Signal, in.When.Event = "", f.Signal
	default:
		return in, ferrule.Errorf(ferrule.Invalid, "the test must be one of %s", strings.Join(watchTests, ", "))
	}
	if f.Hysteresis != "" {
		if in.When.Hysteresis, err = number("hysteresis", f.Hysteresis); err != nil {
			return in, err
		}
	}
	if f.For != "" {
		length, err := ferrule.ParseDuration(f.For)
		if err != nil {
			return in, ferrule.Errorf(ferrule.Invalid, "for: %w", err)
		}
		in.When.For = ferrule.Duration(length)
	}
	if f.Webhook != "" {
		in.Notify = append(in.Notify, watch.Webhook)
	}
	if f.MQTT != "" {
		in.Notify = append(in.Notify, watch.MQTT)
	}
	if f.CallDevice == "" && f.CallTool == "" {
		return in, nil
	}
	in.Call = &builtin.WatchCall{Device: f.CallDevice, Tool: f.CallTool}
	if f.CallArgs != "" {
		if err := json.Unmarshal([]byte(f.CallArgs), &in.Call.Args); err != nil || in.Call.Args == nil {
			return in, ferrule.Errorf(ferrule.Invalid, "the arguments must be a JSON object, such as {\"port\":1}")
		}
	}
	return in, nil
}
