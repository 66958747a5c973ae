package ferrule

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Approval is a call that needs the approval of a person, with what that person has to
// know. Texts are clean and bounded.
type Approval struct {
	// ID names the request. It ends in @ and the node, if the gateway is in a cluster.
	ID   string `json:"id"`
	Node string `json:"node,omitempty"`
	// State is waiting, or allowed as long as the approval can be used, or denied in the
	// result of that answer.
	State ApprovalState `json:"state"`

	// Caller is who wants to call, as role:name, and Auth is how that is known.
	Caller string `json:"caller"`
	Auth   Auth   `json:"auth,omitempty"`
	// TokenID tells the caller's token or login from others of the same name.
	TokenID string `json:"token_id,omitempty"`
	// User is the user of the operating system who runs the caller, and Program is what
	// the calling program says that it is.
	User    string `json:"user,omitempty"`
	Program string `json:"program,omitempty"`
	// Via is the node that vouches for the caller; empty for this one.
	Via string `json:"via,omitempty"`
	// Calls is how many calls wait for the answer now.
	Calls int `json:"calls"`

	Device    string            `json:"device"`
	Model     string            `json:"model,omitempty"`
	Kind      Kind              `json:"kind,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Operation Operation         `json:"operation,omitempty"`
	Tool      string            `json:"tool"`
	Args      json.RawMessage   `json:"args"`
	Effect    Effect            `json:"effect"`
	// DeviceText is what the device says about the tool. It may not be true.
	DeviceText string `json:"device_text,omitempty"`
	// Now is the state of the device at this moment.
	Now string `json:"now"`

	// Reason is why the policy asks, and Rule is the rule that does.
	Reason string `json:"reason,omitempty"`
	Rule   string `json:"rule,omitempty"`

	Created time.Time `json:"created"`
	// Expires is when the request ends, or the approval if it was given.
	Expires time.Time `json:"expires"`
	// By is the person who allowed it. Standing reports whether it was allowed for a time
	// instead of once.
	By       string `json:"by,omitempty"`
	Standing bool   `json:"standing,omitempty"`
}

// ApprovalState is the state of an Approval.
type ApprovalState string

// The states of an Approval.
const (
	ApprovalWaiting ApprovalState = "waiting"
	ApprovalAllowed ApprovalState = "allowed"
	ApprovalDenied  ApprovalState = "denied"
)

// Summary returns who wants what, in one line.
func (a *Approval) Summary() string {
	what := "to call " + a.Tool
	if a.Operation != CallTool {
		what = fmt.Sprintf("the operation %s of %s", a.Operation, a.Tool)
	}
	text := []rune(oneLine.Replace(fmt.Sprintf("%s wants %s on %s with %s", a.Caller, what, a.Device, EscapeHidden(a.Args))))
	if len(text) > maxSummary {
		text = append(text[:maxSummary-1], '…')
	}
	return string(text)
}

// oneLine keeps a text in one line. Spaces stay, because they may matter in an argument.
var oneLine = strings.NewReplacer("\n", " ", "\t", " ")

// maxSummary limits the characters of a summary.
const maxSummary = 240

// Describe returns what a person has to know of a request, as names and values.
func (a *Approval) Describe() (all [][2]string) {
	add := func(name, value string) {
		if value != "" {
			all = append(all, [2]string{name, oneLine.Replace(value)})
		}
	}
	add("Request", a.ID)
	caller := a.Caller
	for _, more := range []struct{ text, value string }{{"authenticated by ", string(a.Auth)}, {"run by ", a.User}, {"program ", a.Program}, {"on node ", a.Via}} {
		if more.value != "" {
			caller += ", " + more.text + more.value
		}
	}
	add("Caller", caller)
	device := a.Device
	if a.Model != "" {
		device += ", a " + a.Model
	}
	add("Device", device)
	add("Labels", a.labelText())
	add("Device now", a.Now)
	tool := a.Tool
	if a.Operation != CallTool {
		tool = fmt.Sprintf("%s (operation %s)", tool, a.Operation)
	}
	add("Tool", tool)
	add("Arguments", string(EscapeHidden(a.Args)))
	add("Effect", string(a.Effect))
	if a.DeviceText != "" {
		add("The device says", fmt.Sprintf("%q", a.DeviceText))
	}
	rule := ""
	if a.Rule != "" && !strings.Contains(a.Reason, a.Rule) {
		rule = " (" + a.Rule + ")"
	}
	add("Asked because", strings.TrimSpace(a.Reason+rule))
	switch {
	case a.State == ApprovalWaiting:
		add("Waits until", fmt.Sprintf("%s, %s left", FormatTime(a.Expires), Countdown(time.Until(a.Expires))))
	case a.Standing:
		add("Allowed", fmt.Sprintf("by %s, until %s", a.By, FormatTime(a.Expires)))
	default:
		add("Allowed", fmt.Sprintf("once by %s, not used yet; until %s", a.By, FormatTime(a.Expires)))
	}
	return all
}

// Answered says what an answer means.
func (a *Approval) Answered() string {
	what := fmt.Sprintf("%s of %s by %s", a.Tool, a.Device, a.Caller)
	switch {
	case a.State == ApprovalDenied:
		return fmt.Sprintf("%s is denied: %s.", a.ID, what)
	case a.Standing:
		return fmt.Sprintf("%s is allowed until %s: %s, with the same arguments.", a.ID, FormatTime(a.Expires), what)
	case a.Calls == 0:
		return fmt.Sprintf("%s is allowed once: %s. The caller has left; its next call that is the same runs, until %s.", a.ID, what, FormatTime(a.Expires))
	}
	return fmt.Sprintf("%s is allowed once: %s.", a.ID, what)
}

func (a *Approval) labelText() string {
	var all []string
	for key, value := range a.Labels {
		all = append(all, key+"="+value)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// Countdown formats the time that is left as minutes and seconds.
func Countdown(left time.Duration) string {
	s := int(max(left, 0).Round(time.Second) / time.Second)
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
