package console

import (
	"fmt"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// outcome is how a call ended, in words for people. Its zero value is a call that is done.
type outcome struct {
	// Word is the outcome itself, and Icon and Tone show it.
	Word, Icon, Tone string
	// Filled reports whether the badge is filled: an exception that must be seen.
	Filled bool
	// Message is what happened, and Next is what to do. Certainty is what it means for the
	// hardware; it is empty for a call that is done.
	Message, Next, Certainty string
	// Details are all violations, if there are several.
	Details []string
	// Says is what the device wrote; it is shown as the device's words.
	Says string
}

// The outcomes, without reasons.
var (
	outcomeDone    = outcome{Word: "Done", Icon: "done", Tone: "ok"}
	outcomeNotSent = outcome{Word: "Not sent", Icon: "notsent"}
	outcomeRefused = outcome{Word: "Refused by the device", Icon: "refused", Tone: "info"}
	outcomeMaybe   = outcome{Word: "May have run", Icon: "maybe", Tone: "warn", Filled: true}
	outcomeWaiting = outcome{Word: "Waiting", Icon: "clock", Tone: "ask"}
)

// outcomeOf returns the words for a code. An empty code is a call that is done. Sent
// reports whether the call may have left the gateway.
func outcomeOf(code ferrule.Code, sent bool) outcome {
	switch e := (ferrule.Error{Code: code, Sent: sent}); {
	case code == "":
		return outcomeDone
	case e.MayHaveRun():
		o := outcomeMaybe
		o.Certainty = "It is not sent again."
		if code == ferrule.Failed {
			o.Certainty = "It may be partly done. It is not sent again."
		}
		return o
	case code == ferrule.Refused:
		o := outcomeRefused
		o.Certainty = "Nothing moved."
		return o
	}
	return outcomeNotSent
}

// outcomeOfError returns the words for an error. Check is a tool that reads the state of
// the device; it may be empty.
func outcomeOfError(err error, check string) outcome {
	if err == nil {
		return outcomeDone
	}
	e := ferrule.AsError(err)
	o := outcomeOf(e.Code, e.Sent)
	o.Message, o.Details, o.Next = clean(e.Message), e.Details, e.Hint
	if e.MayHaveRun() {
		if o.Next = "Check the device before you run it again."; check != "" {
			o.Next = "Check with " + check + " first."
		}
	}
	return o
}

// clean bounds a text of a device or an agent.
func clean(text string) string { return ferrule.Clean(text, ferrule.MaxText) }

// checkTool returns the tool that says most likely what the device does now: the first
// without arguments that only reads.
func checkTool(m *ferrule.Manifest, except string) string {
	if m == nil {
		return ""
	}
	for i := range m.Tools {
		if t := &m.Tools[i]; t.Effect == ferrule.Reads && t.Quarantine == "" && t.Name != except {
			return t.Name
		}
	}
	return ""
}

// tookText returns how long a call took.
func tookText(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "under 1 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%d s", int(d.Seconds()))
}
