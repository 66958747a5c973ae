package ferrule

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Code is the class of an error. It implies what the error means for the
// hardware.
type Code string

// The codes, and whether the action ran.
//
//	code                                      raised by                     did it run?
//	not_found denied invalid limited pending  gateway                       no
//	offline busy                              gateway, before sending       no
//	refused                                   device, before it acted       no
//	failed                                    device, after it acted        partly, perhaps
//	unanswered                                gateway, no answer arrived    perhaps
//	cancelled internal                        gateway                       perhaps, if it was sent
const (
	NotFound   Code = "not_found"  // unknown device or tool
	Denied     Code = "denied"     // forbidden by the policy, or the tool is quarantined
	Invalid    Code = "invalid"    // invalid arguments
	Limited    Code = "limited"    // too many calls, or beyond a physical limit
	Pending    Code = "pending"    // the device is not adopted
	Offline    Code = "offline"    // the device is not connected
	Busy       Code = "busy"       // the device did not become free in time
	Refused    Code = "refused"    // the device rejected the call
	Failed     Code = "failed"     // the device reported a failure
	Unanswered Code = "unanswered" // sent, but no answer arrived in time
	Cancelled  Code = "cancelled"  // the caller went away
	Internal   Code = "internal"   // a fault of the gateway
)

// Error is the error type that crosses packages and nodes.
type Error struct {
	Code Code
	// Message says what happened, for the caller.
	Message string
	// Hint says what to do next; it may be empty.
	Hint string
	// Details lists each violation, if there are several.
	Details []string
	// Content is what the device sent with its failure; it may be nil.
	Content []Content
	// Needs lists the targets of questions that the caller cannot reach.
	Needs []AskTarget
	// Sent reports whether bytes of the call may have left the gateway. It
	// matters for Cancelled and Internal; for other codes the code decides.
	Sent bool
	// Final reports that the call is not sent a second time, even if its tool is
	// repeatable or nothing has run: the device confirmed that it got the call, or what
	// stands between has it and may deliver it late.
	Final bool
	// JobEnded reports that a job has ended with this error. Another error of a PollJob only
	// says that the job could not be asked about.
	JobEnded bool
	// Err is the cause, for logs. It may be nil and is not sent to other nodes.
	Err error
}

// Errorf returns an Error with a formatted message. A %w becomes its cause.
func Errorf(code Code, format string, args ...any) *Error {
	wrapped := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: wrapped.Error(), Err: errors.Unwrap(wrapped)}
}

// WithHint sets the hint and returns e.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// AfterSend sets Sent and returns e.
func (e *Error) AfterSend() *Error {
	e.Sent = true
	return e
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Err }

// MayHaveRun reports whether the call may have had an effect on the device.
func (e *Error) MayHaveRun() bool {
	switch e.Code {
	case Failed, Unanswered:
		return true
	case Cancelled, Internal:
		return e.Sent
	}
	return false
}

// Certainty returns one sentence on what the error means for the hardware.
func (e *Error) Certainty() string {
	switch {
	case e.Code == Failed:
		return "The device reported an error; the action may be partly done."
	case e.MayHaveRun():
		return "The action may have run."
	case e.Code == Refused:
		return "The device refused; the action did not run."
	}
	return "Nothing was sent."
}

// Explain returns the error in sentences: what happened, what it means for the hardware, and
// what to do next.
func (e *Error) Explain() string {
	return strings.TrimSpace(sentence(e.Message) + " " + e.Certainty() + " " + capital(sentence(e.Hint)))
}

// Attributed returns the message with the words of a device marked as its own, like those of
// Progress.Text: "blink failed on lamp. lamp says: burnt out".
func (e *Error) Attributed(device string) string {
	if e.Code != Failed && e.Code != Refused {
		return e.Message
	}
	fact, words, found := strings.Cut(e.Message, " failed on "+device+": ")
	if found {
		fact += " failed on " + device
	} else if rest, refused := strings.CutPrefix(e.Message, device+" refused "); refused {
		fact, words, found = strings.Cut(rest, ": ")
		fact = device + " refused " + fact
	}
	if !found {
		return e.Message
	}
	return fact + ". " + said(device, words)
}

// sentence adds a full stop.
func sentence(s string) string {
	if s != "" && !strings.HasSuffix(s, ".") && !strings.HasSuffix(s, "?") {
		s += "."
	}
	return s
}

// capital capitalizes the first letter, unless the first word may be a name.
func capital(s string) string {
	first, _, _ := strings.Cut(s, " ")
	if s == "" || strings.ContainsFunc(first, func(r rune) bool { return r < 'a' || r > 'z' }) {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// Once sets Final and returns e.
func (e *Error) Once() *Error {
	e.Final = true
	return e
}

// AfterBegin returns e for a call whose job the device has begun: it may have run, whatever the
// reason is that its outcome is not known.
func (e *Error) AfterBegin() *Error {
	if e.MayHaveRun() {
		return e
	}
	begun := *e
	if e.Code == Cancelled || e.Code == Internal {
		begun.Sent = true
	} else {
		begun.Code = Unanswered
	}
	return &begun
}

// EndsJob sets JobEnded and returns e.
func (e *Error) EndsJob() *Error {
	e.JobEnded = true
	return e
}

// AsError returns the Error in err's chain. An error without one is a fault of
// the gateway: AsError returns it as Internal and Sent, because it is unknown
// whether the call was sent. For nil, the Error has no code: what expects one
// fails, and does not panic.
func AsError(err error) *Error {
	if err == nil {
		return &Error{}
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: Internal, Message: err.Error(), Sent: true, Err: err}
}

// errorJSON is the JSON form of an Error. It has may_have_run, so that a reader
// does not need the table of codes.
type errorJSON struct {
	Code       Code        `json:"code"`
	Message    string      `json:"message"`
	Hint       string      `json:"hint,omitempty"`
	Details    []string    `json:"details,omitempty"`
	MayHaveRun bool        `json:"may_have_run"`
	Content    []Content   `json:"content,omitempty"`
	Needs      []AskTarget `json:"needs,omitempty"`
	JobEnded   bool        `json:"job_ended,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (e *Error) MarshalJSON() ([]byte, error) {
	return json.Marshal(errorJSON{e.Code, e.Message, e.Hint, e.Details, e.MayHaveRun(), e.Content, e.Needs, e.JobEnded})
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *Error) UnmarshalJSON(data []byte) error {
	var j errorJSON
	err := json.Unmarshal(data, &j)
	*e = Error{Code: j.Code, Message: j.Message, Hint: j.Hint, Details: j.Details, Sent: j.MayHaveRun, Content: j.Content, Needs: j.Needs, JobEnded: j.JobEnded}
	return err
}
