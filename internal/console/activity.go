package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// activityRoutes adds the pages of the journal.
func (c *Console) activityRoutes() {
	c.page("GET /activity", c.activity)
	c.page("GET /activity/{call}", c.activityCall)
	c.page("GET /activity/verify", c.verification)
	c.page("POST /activity/verify", c.verifyJournal)
	c.livePage("GET /live/activity", c.activityStream)
}

// activityPage is what the page shows.
type activityPage struct {
	In    api.ActivityInput
	Rows  []activityRow
	Older string // URL of the next page; empty after the last
	// Newest reports whether this is the first page, which is live.
	Newest bool
	// Reached is how far back was searched, if the page is not full.
	Reached  time.Time
	Outcomes []outcomeChoice
	Devices  []string
	Callers  []string
	Times    []choice
	Effects  []choice
	Journal  verificationView
}

// choice is an entry of a list to choose from.
type choice struct {
	Value, Text string
	Chosen      bool
}

// outcomeChoice is a class of outcomes, with how many recent calls have it.
type outcomeChoice struct {
	choice
	Count int
}

// verificationView is the state of the journal.
type verificationView struct {
	api.Verification
	CSRF string
	// May reports whether the person may start a verification.
	May bool
}

// activityInput returns what a request selects. Unknown parameters are ignored, because a
// form sends its button too.
func activityInput(values url.Values) api.ActivityInput {
	in := api.ActivityInput{
		Device: values.Get("device"), Caller: values.Get("caller"), Outcome: values.Get("outcome"), Tool: values.Get("tool"), Effect: values.Get("effect"),
		Since: values.Get("since"), Until: values.Get("until"), Text: values.Get("text"), Before: values.Get("before"),
	}
	for _, text := range []*string{&in.Device, &in.Caller, &in.Outcome, &in.Tool, &in.Effect, &in.Since, &in.Until, &in.Text} {
		*text = ferrule.Clean(*text, ferrule.MaxWord)
	}
	return in
}

// activityURL returns the address of a page of calls.
func activityURL(path string, in api.ActivityInput, more ...string) string {
	values := url.Values{}
	for _, pair := range [][2]string{
		{"device", in.Device}, {"caller", in.Caller}, {"outcome", in.Outcome}, {"tool", in.Tool}, {"effect", in.Effect}, {"since", in.Since}, {"until", in.Until}, {"text", in.Text}, {"before", in.Before},
	} {
		if pair[1] != "" {
			values.Set(pair[0], pair[1])
		}
	}
	for i := 0; i+1 < len(more); i += 2 {
		values.Set(more[i], more[i+1])
	}
	if len(values) == 0 {
		return path
	}
	return path + "?" + values.Encode()
}

// activity shows a page of calls.
func (c *Console) activity(v *visit) error {
	in, drawn := activityInput(v.r.URL.Query()), time.Now()
	out, err := c.api.Activity(v.ctx(), v.who, in)
	if err != nil {
		return err
	}
	p := activityPage{In: in, Newest: in.Before == "", Reached: out.Reached, Journal: c.journalView(v)}
	for i := range out.Calls {
		p.Rows = append(p.Rows, newActivityRow(&out.Calls[i], v.who))
	}
	if out.Next != "" {
		next := in
		next.Before = out.Next
		p.Older = activityURL("/activity", next)
	}
	c.activityChoices(v.who, &p, drawn)
	head := page{Title: "Activity", Section: "activity"}
	if p.Newest && in.Until == "" {
		head.Live = activityURL("/live/activity", in, "drawn", strconv.FormatInt(drawn.UnixNano(), 10))
	}
	return c.render(v, http.StatusOK, head, "activity", p)
}

// activityChoices fills the lists to choose from with what recent calls have.
func (c *Console) activityChoices(who ferrule.Principal, p *activityPage, now time.Time) {
	const most = 50
	add := func(list *[]string, text string) {
		if text != "" && len(*list) < most && !slices.Contains(*list, text) {
			*list = append(*list, text)
		}
	}
	any := p.In
	any.Outcome, any.Before, any.Limit = "", "", 200
	p.Outcomes = []outcomeChoice{
		{choice{"", "All", false}, 0}, {choice{"may_have_run", "May have run", false}, 0}, {choice{"not_sent", "Not sent", false}, 0}, {choice{"refused", "Refused", false}, 0},
	}
	for i := range p.Outcomes {
		o := &p.Outcomes[i]
		o.Chosen = o.Value == p.In.Outcome
		if o.Value != "" {
			any.Outcome = o.Value
			o.Count = len(c.api.RecentActivity(who, any))
		}
	}
	add(&p.Devices, p.In.Device)
	add(&p.Callers, p.In.Caller)
	recent := c.api.RecentActivity(who, api.ActivityInput{Limit: 200})
	for i := range recent {
		add(&p.Devices, recent[i].Device)
		add(&p.Callers, recent[i].Caller)
	}
	slices.Sort(p.Devices)
	slices.Sort(p.Callers)
	p.Times = chosen(p.In.Since, [][2]string{{"", "Any time"}, {"1h", "Last hour"}, {now.Format(time.DateOnly), "Today"}, {"7d", "Last 7 days"}, {"30d", "Last 30 days"}})
	p.Effects = chosen(p.In.Effect, [][2]string{{"", "Any effect"}, {"reads", "Reads"}, {"changes", "Changes"}, {"endangers", "Endangers"}})
}

// chosen returns a list to choose from. A value that is not in it is added.
func chosen(value string, all [][2]string) (list []choice) {
	found := false
	for _, one := range all {
		found = found || one[0] == value
		list = append(list, choice{one[0], one[1], one[0] == value})
	}
	if !found {
		list = append(list, choice{value, value, true})
	}
	return list
}

// activityCall shows one call, as a page or below its row.
func (c *Console) activityCall(v *visit) error {
	call, err := c.api.ActivityCall(v.ctx(), v.who, api.ActivityCallInput{Call: v.r.PathValue("call"), At: v.r.URL.Query().Get("at")})
	if err != nil {
		return err
	}
	row := newActivityRow(&call, v.who)
	row.Detail = c.newCallDetail(v.who, &call)
	if v.isHTMX() {
		return c.fragment(v, http.StatusOK, "activity-more", row)
	}
	return c.render(v, http.StatusOK, page{Title: "Call " + row.Call(), Section: "activity"}, "activity-call", row)
}

// journalView returns the state of the journal.
func (c *Console) journalView(v *visit) verificationView {
	state, err := c.api.Verification(v.ctx(), v.who, api.NoInput{})
	if err != nil {
		c.parts.Log.Debug("no verification", "err", err)
	}
	return verificationView{state, v.csrf, v.who.Scopes.Has(ferrule.ScopeAdmin)}
}

// verification shows the state of the journal.
func (c *Console) verification(v *visit) error {
	if !v.isHTMX() {
		return v.redirect("/activity")
	}
	return c.fragment(v, http.StatusOK, "verification", c.journalView(v))
}

// verifyJournal starts a verification.
func (c *Console) verifyJournal(v *visit) error {
	if _, err := c.api.Verify(v.ctx(), v.who, api.NoInput{}); err != nil {
		return err
	}
	return c.verification(v)
}

// activityLive shows new calls.
type activityLive struct {
	*Console
	v     *visit
	in    api.ActivityInput
	drawn time.Time
	sent  map[string]string // by key, what the row shows
}

func (c *Console) activityStream(v *visit) (live, error) {
	nanos, err := strconv.ParseInt(v.r.URL.Query().Get("drawn"), 10, 64)
	if err != nil {
		return nil, ferrule.Errorf(ferrule.Invalid, "drawn must be a time")
	}
	return &activityLive{c, v, activityInput(v.r.URL.Query()), time.Unix(0, nanos), make(map[string]string)}, nil
}

func (l *activityLive) watch(changed func(string)) func() {
	return l.hub.subscribe(changed, topicActivity)
}

// liveRows limits the rows of one update.
const liveRows = 50

// liveRow is a row for a script: it replaces the one with the same id, or is added.
type liveRow struct {
	ID   string `json:"id"`
	HTML string `json:"html"`
	// Say is what a screen reader says; empty for nothing.
	Say string `json:"say,omitempty"`
}

func (l *activityLive) update(_ context.Context, _ []string, out *updates) error {
	in := l.in
	in.Before, in.Limit = "", liveRows
	calls := l.api.RecentActivity(l.v.who, in)
	var rows []liveRow
	now := make(map[string]string, len(calls))
	for i := range slices.Backward(calls) { // the oldest first
		if !calls[i].Ended.After(l.drawn) {
			continue
		}
		row := newActivityRow(&calls[i], l.v.who)
		text, err := html("activity-row", row)
		if err != nil {
			return err
		}
		if now[row.Key] = text; l.sent[row.Key] == text {
			continue
		}
		one := liveRow{ID: row.Key, HTML: text}
		if row.MayHaveRun {
			one.Say = fmt.Sprintf("%s %s: may have run", row.Device, row.Tool)
		}
		rows = append(rows, one)
	}
	l.sent = now
	if len(rows) == 0 {
		return nil
	}
	return out.event("calls", rows)
}
