package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// approvalsRoutes adds the page on which people answer calls that wait.
func (c *Console) approvalsRoutes() {
	c.page("GET /approvals", c.approvals)
	c.page("POST /approvals", c.answerApproval)
	c.livePage("GET /live/approvals", func(v *visit) (live, error) {
		return &approvalsLive{c, v}, api.Allowed(v.who, ferrule.ScopeEndanger)
	})
}

// approvalsPage is what the page shows.
type approvalsPage struct {
	CSRF    string
	Who     string
	Waiting []approvalCard
	// Allowed are approvals that can still be used.
	Allowed []ferrule.Approval
	// Decided are the newest decisions.
	Decided []decision
	// Silent are nodes that did not answer.
	Silent []string
	// Answer is what became of an answer; empty if there is none.
	Answer string
}

// approvalCard is a call that waits, with what a person needs to decide.
type approvalCard struct {
	ferrule.Approval
	CSRF string
	// Own reports whether it is a call of the person, who cannot allow it then.
	Own bool
	// Row is the device with its values, if the person sees it.
	Row *api.DeviceRow
	// Link reports whether the page is that of a link: then Who answers, or nobody is known.
	Link bool
	Who  string
}

// DOM returns the id of the card's element.
func (c approvalCard) DOM() string { return approvalID(c.ID) }

func approvalID(id string) string {
	return "approval-" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(id))
}

// Question says who wants what.
func (c approvalCard) Question() string {
	if c.Operation != ferrule.CallTool {
		return callerTitle(c.Approval) + " wants to " + string(c.Operation) + " " + c.Tool + " of " + c.Device
	}
	return callerTitle(c.Approval) + " wants to run " + c.Tool + " on " + c.Device
}

// callerTitle returns the name of a caller as the beginning of a sentence.
func callerTitle(a ferrule.Approval) string {
	_, name, _ := strings.Cut(a.Caller, ":")
	return cmp.Or(name, a.Caller)
}

// Asked says who asks, and how that is known.
func (c approvalCard) Asked() string {
	text := "by " + c.Caller
	for _, more := range [][2]string{{", authenticated by ", string(c.Auth)}, {", run by ", c.User}, {", program ", c.Program}, {", on node ", c.Via}} {
		if more[1] != "" {
			text += more[0] + more[1]
		}
	}
	return text
}

// Arguments returns the arguments of the call in their order, as JSON that shows what is
// hidden.
func (c approvalCard) Arguments() (rows [][2]string) {
	args := ferrule.EscapeHidden(c.Args)
	dec := json.NewDecoder(bytes.NewReader(args))
	if begin, err := dec.Token(); err != nil || begin != json.Delim('{') {
		return [][2]string{{"arguments", string(args)}}
	}
	for dec.More() {
		name, err := dec.Token()
		var value json.RawMessage
		if err == nil {
			err = dec.Decode(&value)
		}
		if err != nil {
			return [][2]string{{"arguments", string(args)}}
		}
		text, _ := json.Marshal(name) // the decoder has shown again what was hidden
		rows = append(rows, [2]string{strings.Trim(string(ferrule.EscapeHidden(text)), `"`), string(value)})
	}
	return rows
}

// Arc returns how much of the ring is left: its length is 157.1.
func (c approvalCard) Arc() float64 {
	return 157.1 * min(1, max(0, time.Until(c.Expires).Seconds()/max(1, c.Expires.Sub(c.Created).Seconds())))
}

// Whole returns the seconds that the request waits in total.
func (c approvalCard) Whole() int { return int(c.Expires.Sub(c.Created).Seconds()) }

// Labelled returns the labels of the device.
func (c approvalCard) Labelled() (all []string) {
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		all = append(all, strings.TrimSuffix(key+"="+c.Labels[key], "="))
	}
	return all
}

// decision is what became of a call that waited.
type decision struct {
	Device, Tool, Caller, How string
	Time                      time.Time
	// Outcome is what became of the call; nil if it is not known yet.
	Outcome *outcome
}

// shownDecisions is how many decisions the page shows.
const shownDecisions = 12

// decisions returns the newest decisions, with what became of the calls. The journal has
// decisions and outcomes as records of the same call.
func (c *Console) decisions(who ferrule.Principal) (all []decision) {
	ended := make(map[string]outcome)
	for _, call := range c.api.RecentCalls(who, "", 200) {
		if call.Phase == ferrule.Outcome {
			ended[call.Node+" "+call.ID] = outcomeOf(call.Code, call.MayHaveRun)
		}
	}
	for _, a := range c.api.RecentDecisions(who, shownDecisions) {
		_, how, _ := strings.Cut(a.Message, " of "+a.Tool+" on "+a.Device+": ")
		d := decision{Device: a.Device, Tool: a.Tool, Caller: a.Caller, How: plainNames.Replace(how), Time: a.Time}
		if o, ok := ended[a.Node+" "+a.ID]; ok {
			d.Outcome = &o
		} else if !strings.HasPrefix(how, "allowed") {
			o := outcomeNotSent
			d.Outcome = &o
		}
		all = append(all, d)
	}
	return all
}

// plainNames removes the roles of people from a sentence of the journal.
var plainNames = strings.NewReplacer(string(ferrule.Person)+":", "")

func (c *Console) listApprovals(ctx context.Context, v *visit) (p approvalsPage, err error) {
	out, err := c.api.Approvals(ctx, v.who, builtin.ListApprovalsInput{})
	p = approvalsPage{CSRF: v.csrf, Who: v.who.Name, Silent: out.Silent}
	for _, a := range out.Approvals {
		if a.State != ferrule.ApprovalWaiting {
			p.Allowed = append(p.Allowed, a)
			continue
		}
		card := approvalCard{Approval: a, CSRF: v.csrf, Own: a.Caller == v.who.String()}
		if row, err := c.api.Device(ctx, v.who, api.DeviceInput{Device: a.Device}); err == nil {
			card.Row = &row
		}
		p.Waiting = append(p.Waiting, card)
	}
	if err == nil {
		p.Decided = c.decisions(v.who)
	}
	return p, err
}

func (c *Console) approvals(v *visit) error { return c.showApprovals(v, "") }

// showApprovals shows the page, with what became of an answer.
func (c *Console) showApprovals(v *visit, answer string) error {
	p, err := c.listApprovals(v.ctx(), v)
	if err != nil {
		return err
	}
	p.Answer = answer
	return c.render(v, http.StatusOK, page{Title: "Approvals", Section: "approvals", Live: "/live/approvals"}, "approvals", p)
}

// answerApproval answers a call that waits. The same call can be allowed for a time.
func (c *Console) answerApproval(v *visit) error {
	in := builtin.AnswerApprovalInput{ID: v.r.PostFormValue("id")}
	switch v.r.PostFormValue("answer") {
	case "allow":
		in.Allow = true
	case "allow_for":
		length, err := ferrule.ParseDuration(v.r.PostFormValue("for"))
		if err != nil || length <= 0 || length > 24*time.Hour {
			return ferrule.Errorf(ferrule.Invalid, "the answer must be for up to 24h")
		}
		in.Allow, in.For = true, ferrule.Duration(length)
	case "deny":
	default:
		return ferrule.Errorf(ferrule.Invalid, "the answer must be allow, allow_for or deny")
	}
	done, err := c.api.AnswerApproval(v.ctx(), v.who, in)
	if err != nil {
		return err
	}
	text := answerWord(in.Allow) + ". " + done.Answered()
	if !v.isHTMX() {
		return c.showApprovals(v, text)
	}
	return c.fragment(v, http.StatusOK, "approval-answered", text)
}

func answerWord(allow bool) string {
	if allow {
		return "Allowed"
	}
	return "Denied"
}

// approvalsLive keeps the list current.
type approvalsLive struct {
	*Console
	v *visit
}

func (l *approvalsLive) watch(changed func(string)) func() {
	return l.hub.subscribe(changed, topicApprovals, topicActivity)
}

// update sends the list after a change of approvals. A new record of the journal only changes
// what became of earlier calls.
func (l *approvalsLive) update(ctx context.Context, keys []string, out *updates) error {
	if len(keys) > 0 && !slices.Contains(keys, topicApprovals) {
		return out.element("approvals-decided", "approvals-decided", approvalsPage{Decided: l.decisions(l.v.who)})
	}
	p, err := l.listApprovals(ctx, l.v)
	if err != nil {
		return err
	}
	var cards []item
	for _, card := range p.Waiting {
		cards = append(cards, item{card.DOM(), card})
	}
	if err := out.list("approvals", "approval", cards); err != nil {
		return err
	}
	if err := out.element("approvals-count", "approvals-count", p); err != nil {
		return err
	}
	if err := out.element("approvals-side", "approvals-side", p); err != nil {
		return err
	}
	return out.element("approvals-decided", "approvals-decided", p)
}

// LinkPage is what the page of a link to one request shows. Links come with a webhook, and
// work without a login.
type LinkPage struct {
	Title, Text string
	// Approval is the request; nil if there is none to answer.
	Approval *ferrule.Approval
	// Who has logged in, and CSRF is the token for the form; both may be empty.
	Who, CSRF string
	// Login adds a link to all that wait, for people who log in.
	Login bool
}

// linkPolicy is the Content-Security-Policy of that page: it needs no script.
const linkPolicy = "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// WriteLink writes the page of a link. The caller has set the other headers.
func WriteLink(w http.ResponseWriter, status int, p LinkPage) error {
	w.Header().Set("Content-Security-Policy", linkPolicy)
	if p.Approval != nil {
		return write(w, status, "link-page", struct {
			LinkPage
			Card approvalCard
		}{p, approvalCard{Approval: *p.Approval, CSRF: p.CSRF, Link: true, Who: p.Who}})
	}
	body, err := html("link-text", p)
	if err != nil {
		return err
	}
	return write(w, status, "plain", plainPage{p.Title, template.HTML(body)})
}
