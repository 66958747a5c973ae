package console

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// activityRow is one line for a call, or for another record.
type activityRow struct {
	*api.Activity
	Key string // id of the element
	// URL is the page of the call; empty for other records.
	URL        string
	Out        outcome
	Who        string
	DevicePath string
	// Params are the arguments as name=value.
	Params string
	Note   string
	Took   string
	// Detail is nil while the row is closed.
	Detail *callDetail
}

// Call returns the name of the call.
func (r activityRow) Call() string { return r.Activity.ID }

// maxNote limits the characters of a note in a row.
const maxNote = 160

func newActivityRow(a *api.Activity, who ferrule.Principal) activityRow {
	r := activityRow{Activity: a, Key: rowKey(a), Out: callOutcome(a), Who: shortCaller(a), Params: params(a.Args), Note: note(a)}
	if a.ID != "" && a.IsCall() {
		r.URL = "/activity/" + url.PathEscape(a.ID) + "?at=" + url.QueryEscape(a.At)
	}
	if a.Kind != "" && a.Device != "" && a.Device != ferrule.GatewayID { // it was found
		r.DevicePath = devicePath(a.Device)
	}
	if a.Hidden {
		r.Params = "…"
	}
	if a.Took > 0 {
		r.Took = stageTook(time.Duration(a.Took))
	}
	return r
}

// rowKey returns the id of a row. A call keeps it while its records come in.
func rowKey(a *api.Activity) string {
	if a.IsCall() && a.ID != "" {
		return "call-" + a.Node + "-" + a.ID
	}
	return fmt.Sprintf("record-%s-%s-%d", a.Node, a.Chain, a.Record)
}

// callOutcome returns the words for a call, or for another record.
func callOutcome(a *api.Activity) outcome {
	switch a.Phase {
	case ferrule.Outcome:
		return outcomeOf(a.Code, a.MayHaveRun)
	case ferrule.Intent:
		o := outcomeMaybe
		o.Certainty = "It is not sent again."
		return o
	case ferrule.ApprovalStep:
		return outcomeWaiting
	case ferrule.Stopped:
		return outcome{Word: "Stopped", Icon: "stop", Tone: "bad"}
	case ferrule.Resumed:
		return outcome{Word: "Resumed", Icon: "check"}
	case ferrule.Access:
		if a.Code != "" {
			return outcome{Word: "Not let in", Icon: "lock", Tone: "warn"}
		}
		return outcome{Word: accessWords(a.Tool), Icon: "key"}
	case ferrule.Registration:
		return outcome{Word: "Tools", Icon: "info"}
	case ferrule.JournalGap:
		return outcome{Word: "Records may be missing", Icon: "danger", Tone: "warn", Filled: true}
	case ferrule.JournalCut:
		return outcome{Word: "Records missing", Icon: "danger", Tone: "bad", Filled: true}
	}
	return outcome{Word: string(a.Phase), Icon: "info"}
}

// accessWords returns what an AccessEvent is, in words.
func accessWords(event string) string {
	words, ok := map[ferrule.AccessEvent]string{
		ferrule.AccessLogin: "Logged in", ferrule.AccessLogout: "Logged out", ferrule.AccessConsent: "Agent let in", ferrule.AccessClientAdded: "Program registered",
		ferrule.AccessTokenAdded: "Token added", ferrule.AccessTokenUsed: "Token used", ferrule.AccessTokenRotated: "Token replaced", ferrule.AccessTokenRevoked: "Token revoked",
		ferrule.AccessPersonAdded: "Person added", ferrule.AccessPersonRemoved: "Person removed",
	}[ferrule.AccessEvent(event)]
	if !ok {
		return "Access"
	}
	return words
}

// shortCaller returns a short name of the caller. It is the name that was authenticated: an
// agent could give its program the name of a person.
func shortCaller(a *api.Activity) string {
	name := ferrule.OneLine(callerName(a.Caller), 40)
	if ferrule.WatchOf(a.ID, a.Client) != "" {
		name += ", by a watch"
	}
	return name
}

// note returns the reason of an outcome in one line.
func note(a *api.Activity) string {
	switch {
	case a.Phase == ferrule.ApprovalStep:
		return "a person decides"
	case a.Phase == ferrule.Intent:
		return "no outcome yet"
	case a.Message == "" && a.Code != "":
		return strings.ReplaceAll(string(a.Code), "_", " ")
	}
	return ferrule.OneLine(a.Message, maxNote)
}

// maxParams limits the characters of arguments in a row. All of them are in the details.
const maxParams = 120

// params returns arguments as name=value, in their order.
func params(args json.RawMessage) string {
	dec := json.NewDecoder(bytes.NewReader(args))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return ferrule.OneLine(string(args), maxParams)
	}
	var text strings.Builder
	for dec.More() && text.Len() < 2*maxParams {
		name, err := dec.Token()
		var value json.RawMessage
		if err != nil || dec.Decode(&value) != nil {
			break
		}
		if text.Len() > 0 {
			text.WriteByte(' ')
		}
		fmt.Fprintf(&text, "%v=%s", name, word(value))
	}
	return ferrule.OneLine(text.String(), maxParams)
}

// word returns a JSON value without quotes, if it is a plain word.
func word(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) == nil && s != "" && !strings.ContainsAny(s, " =\"\\\t\n") {
		return s
	}
	return string(value)
}

// callDetail is what a row shows when it is open.
type callDetail struct {
	// Certainty is a sentence on what is known about the hardware.
	Certainty string
	// Check is a tool that reads the state of the device; empty if none is needed.
	Check  string
	Caller string
	Args   string
	Stages []stage
	Height int    // of the drawing
	Drawn  string // what the drawing shows
	Record string
}

func (c *Console) newCallDetail(who ferrule.Principal, a *api.Activity) *callDetail {
	d := &callDetail{Certainty: certainty(a), Caller: callerText(a), Record: withCommas(a.Record)}
	if a.MayHaveRun {
		if found, err := c.api.Find(who, a.Device); err == nil {
			d.Check = checkTool(found.Manifest, a.Tool)
		}
	}
	if len(a.Args) > 0 {
		var out bytes.Buffer
		if d.Args = string(a.Args); json.Indent(&out, a.Args, "", "  ") == nil {
			d.Args = out.String()
		}
	}
	d.Stages = stages(a)
	d.Height = 6 + 22*len(d.Stages)
	var words []string
	for _, s := range d.Stages {
		words = append(words, s.Name+" "+s.Text)
	}
	d.Drawn = "Stages: " + strings.Join(words, ", ")
	return d
}

// callerText returns who called, how that is known, and with which program.
func callerText(a *api.Activity) string {
	text, watch := a.Caller, ferrule.WatchOf(a.ID, a.Client)
	program := strings.TrimSpace(a.Client.Name + " " + a.Client.Version)
	if watch != "" {
		program = ""
	}
	for _, part := range []struct{ before, value string }{
		{"by the watch ", watch}, {"authenticated by ", string(a.Auth)}, {"run by ", a.User}, {"program ", program}, {"through node ", a.Via}, {"from ", a.From},
	} {
		if part.value != "" {
			text += ", " + part.before + part.value
		}
	}
	return text
}

// clock is the format of a time with milliseconds.
const clock = "15:04:05.000"

// certainty says what is known about the hardware.
func certainty(a *api.Activity) string {
	device := cmp.Or(a.Device, "the device")
	sent := a.Time
	for _, s := range a.Steps {
		if s.Phase == ferrule.Intent {
			sent = s.Time
		}
	}
	at, took := sent.Local().Format(clock), stageTook(a.Ended.Sub(sent))
	switch {
	case a.Phase == ferrule.ApprovalStep:
		return "A person decides. Nothing is sent to " + device + " before that."
	case a.Phase == ferrule.Intent:
		return fmt.Sprintf("The call was sent at %s, and no outcome is recorded. It is still running, or the gateway ended before the answer. It is not sent again.", a.Ended.Local().Format(clock))
	case a.Phase != ferrule.Outcome:
		return a.Message
	case a.Code == "":
		return fmt.Sprintf("%s answered at %s, %s after the call was sent.", device, a.Ended.Local().Format(clock), took)
	case a.Code == ferrule.Unanswered:
		return fmt.Sprintf("The call was sent at %s and %s did not answer in %s. It was not sent again.", at, device, took)
	case a.Code == ferrule.Failed:
		return fmt.Sprintf("%s reported an error %s after the call was sent. It may be partly done. It was not sent again.", device, took)
	case a.MayHaveRun:
		return fmt.Sprintf("The call was sent at %s, and its answer is not known. It was not sent again.", at)
	case a.Code == ferrule.Refused:
		return device + " refused. Nothing moved."
	}
	return "Nothing was sent to " + device + "."
}

// stage is a part of a call in time, and its bar in the drawing.
type stage struct {
	Name, Text, Class string
	X, Y, W           int
	// TextX is where the text begins, or ends if it is inside the bar.
	TextX  int
	Inside bool
}

// Places in the drawing of stages.
const (
	stageLeft  = 110
	stageRight = 500
)

// stages returns the stages of a call, as far as the journal has their times.
func stages(a *api.Activity) (all []stage) {
	total, at := max(a.Ended.Sub(a.Time), 1), a.Time
	add := func(name, class string, until time.Time) {
		took := max(until.Sub(at), 0)
		x := stageLeft + int(float64(stageRight-stageLeft)*float64(at.Sub(a.Time))/float64(total))
		w := max(2, int(float64(stageRight-stageLeft)*float64(took)/float64(total)))
		s := stage{Name: name, Text: stageTook(took), Class: class, X: min(x, stageRight-2), W: w, Y: 8 + 22*len(all)}
		s.W = min(s.W, stageRight-s.X)
		if s.TextX, s.Inside = s.X+s.W+8, s.W > 200; s.Inside {
			s.TextX = stageRight - 8
		}
		all, at = append(all, s), until
	}
	asked := false
	for _, s := range a.Steps {
		switch {
		case s.Phase == ferrule.ApprovalStep && !asked:
			asked = true
			add("checked", "", s.Time)
		case s.Phase == ferrule.ApprovalStep:
			add("a person", "", s.Time)
		case s.Phase == ferrule.Intent:
			add("intent on disk", "", s.Time)
		case s.Phase == ferrule.Asked:
			add("question", "", s.Time)
		}
	}
	switch {
	case a.Phase != ferrule.Outcome:
	case a.MayHaveRun:
		add("no certain answer", "q", a.Ended)
	case a.Code == "" || a.Code == ferrule.Refused:
		add("sent, answered", "d", a.Ended)
	default:
		add("not sent", "", a.Ended)
	}
	return all
}

// stageTook returns a duration with enough digits for a stage.
func stageTook(d time.Duration) string {
	switch {
	case d < 100*time.Microsecond:
		return "under 0.1 ms"
	case d < 2*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d/time.Millisecond)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
