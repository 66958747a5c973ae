// Package watchtext has the commands `ferrule watch add`, list and remove: their help, how the
// text of a condition is read, and tables.
package watchtext

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/access"
	"github.com/ferrulehq/ferrule/internal/ops/arguments"
	"github.com/ferrulehq/ferrule/internal/watch"
)

// Commands are the commands below `ferrule watch`.
var Commands = []access.Command{
	{
		Use: "add CONDITION", Short: "Set a watch: notify or call when a condition becomes true",
		Long: `Set a watch. It is evaluated by the gateway, also while nobody is connected, and after a
restart. It fires when the condition becomes true, not while it stays true. If it is true
already, the watch fires at the next sample.

CONDITION is the device, the signal, and what to look for. Quote it:

  tank level above 90              also: below, equals
  tank level outside 10 to 90      also: inside
  door state changes
  tank-* event gone                went offline; or another event, or the method of
                                   a notification

The device may be a pattern such as tank-*, or labels such as room=cellar. These may follow:

  for 30s          it must hold that long
  hysteresis 5     how far the value must go back before the watch can fire again
  every 1m         minimum time between two notices or calls (default 1m)
  per_hour 12      maximum number of them in an hour (default 12)
  notify webhook   also tell the webhook, or mqtt, of watches in ferrule.yaml
  expires 7d       it ends after that time
  name tank-full   a name, without spaces; default the condition

With --then, the watch makes one call when it fires: the device, the tool, and arguments as
in ` + "`ferrule call`" + ` or as JSON. The call is yours: the policy, approvals, limits and
` + "`ferrule stop`" + ` apply when it is made.

` + "`ferrule history DEVICE`" + ` lists the signals of a device, and ` + "`ferrule watch`" + ` shows when a watch
fires. ` + "`ferrule watch disable`" + ` and ` + "`ferrule watch remove`" + ` stop it.`,
		Example: "  ferrule watch add 'tank level above 90 hysteresis 5' --then 'valve close'\n  ferrule watch add 'freezer-* temperature above -15 for 10m notify webhook'\n  ferrule watch add 'pump event gone' --then 'siren on seconds=5'",
		Args:    -1, Flag: "then", Usage: "`CALL` to make: DEVICE TOOL [key=value | key:=json | JSON]...",
		Tool:  builtin.WatchTool,
		Check: func(args []string, then string) error { _, err := Parse(strings.Join(args, " "), then); return err },
		Input: func(args []string, then string) any { in, _ := Parse(strings.Join(args, " "), then); return in },
		Show:  access.ShownAs(func(w watch.Status) access.Shown { return access.Shown{Text: Added(w)} }),
	},
	{
		Use: "list", Short: "List the watches", Long: `List the watches of all agents and people: the condition with its limits, what it calls, who
set it, and what became of the last hit. LAST is the time of the sample or event that fired.`,
		Example: "  ferrule watch list\n  ferrule watch list --json", Tool: builtin.ListWatchesTool,
		Input: func([]string, string) any { return builtin.ListWatchesInput{} },
		Show:  access.ShownAs(func(out builtin.ListWatchesOutput) access.Shown { return List(out.Watches) }),
	},
	enabling("disable", false, `Disable a watch, by its ID or its name: it does nothing until it is enabled. An agent cannot
enable a watch that a person disabled. A call that it has begun is not ended.`),
	enabling("enable", true, "Enable a watch that was disabled, by its ID or its name."),
	{
		Use: "remove WATCH", Short: "Remove a watch", Long: "Remove a watch, by its ID or its name. A call that it has begun is not ended.",
		Example: "  ferrule watch remove 7kq2mxa4hd", Args: 1, Tool: builtin.WatchTool,
		Input: func(args []string, _ string) any { return builtin.WatchInput{Watch: args[0], Remove: true} },
		Show: access.ShownAs(func(w watch.Status) access.Shown {
			return access.Shown{Text: fmt.Sprintf("Removed the watch %s (%s). A call that it has begun goes on.\n", clean(w.Name), w.ID)}
		}),
	},
}

// enabling returns the command that enables or disables a watch.
func enabling(verb string, on bool, long string) access.Command {
	title := strings.ToUpper(verb[:1]) + verb[1:]
	return access.Command{
		Use: verb + " WATCH", Short: title + " a watch", Long: long, Example: "  ferrule watch " + verb + " 7kq2mxa4hd", Args: 1, Tool: builtin.WatchTool,
		Input: func(args []string, _ string) any { return builtin.WatchInput{Watch: args[0], Enabled: &on} },
		Show: access.ShownAs(func(w watch.Status) access.Shown {
			return access.Shown{Text: fmt.Sprintf("%sd the watch %s (%s).\n", title, clean(w.Name), w.ID)}
		}),
	}
}

// Added says what a new watch does.
func Added(w watch.Status) string {
	does, each := "notifies", " for each device"
	if w.Call != nil {
		does, each = fmt.Sprintf("calls %s as %s", w.Call, w.Owner), ""
	}
	text := fmt.Sprintf("Set the watch %s (%s). It %s, at most every %s and %d times an hour%s.", w.Name, w.ID, does, watch.Short(time.Duration(w.Every)), w.PerHour, each)
	switch {
	case w.Devices == 0:
		text += " No device of this node matches now."
	case w.Now != nil:
		text += " " + meetsNow(w)
	case w.Condition.Event != "" && !ferrule.EventType(w.Condition.Event).Known():
		text += fmt.Sprintf(" %s is not an event of the gateway: the watch fires when a device sends a notification with this method.", w.Condition.Event)
	}
	return ferrule.Clean(text, ferrule.MaxText) + "\nTo see what became of it, run `ferrule watch list`. To stop it, run `ferrule watch remove " + w.ID + "`.\n"
}

// meetsNow says that the last known value meets the condition of a new watch.
func meetsNow(w watch.Status) string {
	fires := "notifies"
	if w.Call != nil {
		fires = "calls"
	}
	next := "at the next sample that does"
	if w.Condition.For > 0 {
		next = "when that has held for " + watch.Short(time.Duration(w.Condition.For))
	}
	return fmt.Sprintf("%s, which meets the condition already: it %s %s.", watch.ValueText(*w.Now, time.Now()), fires, next)
}

// List returns the table of watches.
func List(all []watch.Status) access.Shown {
	shown := access.Shown{Header: "ID NAME WHEN CALLS OWNER HITS LAST STATE"}
	for i := range all {
		w := &all[i]
		calls, last := "-", "never"
		if w.Call != nil {
			calls = w.Call.String()
		}
		if w.Last != nil {
			last = ferrule.FormatTime(w.Last.Time)
		}
		name, when := clean(w.Name), clean(When(&w.Watch))
		if name == clean(w.Condition.String()) {
			name = "-"
		}
		shown.Rows = append(shown.Rows, []string{w.ID, name, when, clean(calls), clean(w.Owner.String()), strconv.FormatUint(w.Hits, 10), last, clean(State(w))})
	}
	if len(all) == 0 {
		shown.Text = "There are no watches. To set one, run `ferrule watch add`.\n"
	}
	return shown
}

// When returns the condition of a watch with its limits, in the words of `ferrule watch add`,
// except that it has the time at which the watch expires.
func When(w *watch.Watch) string {
	text := w.Condition.String()
	if h := w.Condition.Hysteresis; h != 0 {
		text += " hysteresis " + strconv.FormatFloat(h, 'g', 6, 64)
	}
	text += fmt.Sprintf(" every %s per_hour %d", watch.Short(time.Duration(w.Every)), w.PerHour)
	for _, channel := range w.Notify {
		text += " notify " + channel
	}
	if !w.Expires.IsZero() {
		text += " expires " + ferrule.FormatTime(w.Expires)
	}
	return text
}

// clean makes a text one line. It is whole: tables are cut to the width of a terminal, and not if
// they are piped.
func clean(text string) string {
	return ferrule.OneLine(ferrule.Clean(text, ferrule.MaxText), ferrule.MaxText)
}

// State says in a few words how a watch is.
func State(w *watch.Status) string {
	var parts []string
	switch {
	case w.Expired:
		parts = append(parts, "expired")
	case w.Off:
		parts = append(parts, "disabled by "+w.OffBy)
	case len(w.Active) > 0:
		parts = append(parts, "true for "+strings.Join(w.Active, ", "))
	case w.Devices == 0:
		parts = append(parts, "no device")
	case w.Unmeasured == w.Devices:
		parts = append(parts, "no sample of "+w.Condition.Signal+" yet")
	default:
		parts = append(parts, "waiting")
	}
	if o := w.Outcome; o != nil {
		text := o.Message
		if o.Code != "" && o.MayHaveRun {
			text += " (may have run)"
		}
		parts = append(parts, text)
	}
	if w.NotCalled != "" {
		parts = append(parts, "no call for the last hit: "+w.NotCalled)
	}
	if n := len(w.Gaps); n > 0 {
		parts = append(parts, fmt.Sprintf("%d gaps", n))
	}
	if w.Undelivered != "" {
		parts = append(parts, "not delivered: "+w.Undelivered)
	}
	return strings.Join(parts, "; ")
}

// Parse reads a condition with what may follow it, and the call. Unknown words are errors.
func Parse(text, then string) (in builtin.WatchInput, err error) {
	words := strings.Fields(text)
	if len(words) < 3 {
		return in, errors.New("the condition must be a device, a signal and a test, such as 'tank level above 90'")
	}
	p := &parser{words: words[2:], in: builtin.WatchInput{When: &condition.Condition{Device: words[0], Signal: words[1]}}}
	if words[1] == "event" {
		p.in.When.Signal, p.in.When.Event, p.words = "", words[2], words[3:]
	}
	for len(p.words) > 0 && p.err == nil {
		p.last = p.next()
		p.word(p.last)
	}
	if p.err == nil {
		p.err = p.call(then)
	}
	if p.err == nil {
		p.err = p.in.When.Check()
	}
	return p.in, p.err
}

type parser struct {
	words []string
	last  string // the word that is read
	in    builtin.WatchInput
	err   error
}

func (p *parser) next() string {
	if len(p.words) == 0 {
		p.fail("%s: a value is missing at the end of the condition", p.last)
		return ""
	}
	word := p.words[0]
	p.words = p.words[1:]
	return word
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

func (p *parser) number() *float64 {
	word := p.next()
	v, err := strconv.ParseFloat(word, 64)
	if err != nil {
		p.fail("%s: must be a number, got %q", p.last, ferrule.Clean(word, ferrule.MaxWord))
	}
	return &v
}

func (p *parser) duration() ferrule.Duration {
	v, err := ferrule.ParseDuration(p.next())
	if err != nil {
		p.fail("%s: %w", p.last, err)
	}
	return ferrule.Duration(v)
}

func (p *parser) band() *condition.Band {
	from := p.number()
	if word := p.next(); word != "to" {
		p.fail("%s: must be two numbers with to between them, such as 10 to 90", p.last)
	}
	return &condition.Band{From: *from, To: *p.number()}
}

// word reads what a word begins.
func (p *parser) word(word string) {
	when := p.in.When
	switch word {
	case "above":
		when.Above = p.number()
	case "below":
		when.Below = p.number()
	case "equals":
		when.Equals = p.number()
	case "outside":
		when.Outside = p.band()
	case "inside":
		when.Inside = p.band()
	case "changes":
		when.Changes = true
	case "for":
		when.For = p.duration()
	case "hysteresis":
		when.Hysteresis = *p.number()
	case "every":
		p.in.Every = p.duration()
	case "per_hour":
		p.in.PerHour = int(*p.number())
	case "notify":
		p.in.Notify = append(p.in.Notify, p.next())
	case "expires":
		p.in.Expires = p.duration()
	case "name":
		p.in.Name = p.next()
	default:
		p.fail("unknown word %q in the condition: a test is above, below, equals, outside, inside or changes; for, hysteresis, every, per_hour, notify, expires and name may follow it", ferrule.Clean(word, ferrule.MaxWord))
	}
}

// call reads the call of a watch.
func (p *parser) call(text string) error {
	if text = strings.TrimSpace(text); text == "" {
		return nil
	}
	device, rest, _ := strings.Cut(text, " ")
	tool, args, _ := strings.Cut(strings.TrimSpace(rest), " ")
	if tool == "" {
		return errors.New("--then must be a device and a tool, such as 'valve close'")
	}
	p.in.Call = &builtin.WatchCall{Device: device, Tool: tool}
	if args = strings.TrimSpace(args); args == "" {
		return nil
	}
	object := []byte(args)
	if !strings.HasPrefix(args, "{") {
		var err error
		if object, err = arguments.Parse(strings.Fields(args), nil); err != nil {
			return fmt.Errorf("--then: %w", err)
		}
	}
	if err := json.Unmarshal(object, &p.in.Call.Args); err != nil || p.in.Call.Args == nil {
		return errors.New("--then: the arguments must be key=value, or a JSON object such as {\"port\":1}")
	}
	return nil
}

// EventText describes an event in the words that follow the name of its device.
func EventText(e ferrule.Event) string {
	text := fmt.Sprintf("sent an unknown event type %q; this version is older than the gateway", string(e.Type))
	switch e.Type {
	case ferrule.Appeared:
		text = "is online"
	case ferrule.Gone:
		text = "is offline: " + e.Reason
	case ferrule.ChangedKind:
		text = fmt.Sprintf("changed its Kind from %s to %s", e.Previous.Short(), e.Kind.Short())
	case ferrule.PendingFound:
		text = "was found and is not adopted: " + e.Reason
	case ferrule.ChangesWait:
		text = "has changed: " + e.Reason
	case ferrule.Quarantined:
		text = "has tools that cannot be used: " + strings.Join(e.Tools, ", ")
	case ferrule.ApprovalEvent, ferrule.Registered, ferrule.Unregistered, ferrule.WatchFired:
		text = e.Reason
	case ferrule.WasStopped, ferrule.WasResumed:
		text = map[bool]string{true: "everything ", false: ""}[e.Device == ferrule.GatewayID] + "is " + e.Reason
	case ferrule.Notified:
		text = strings.TrimSpace(fmt.Sprintf("sent %s %s", e.Method, e.Params))
	}
	return ferrule.OneLine(ferrule.Clean(text, ferrule.MaxText), MaxShown)
}

// MaxShown limits the characters of an event that are shown.
const MaxShown = 300
