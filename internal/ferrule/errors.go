package ferrule

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Code is the class of an error: what happened, and by that what it means for
// the hardware.
type Code string

// The codes. The comment says who speaks and whether the call has run.
const (
	NotFound   Code = "not_found"  // gateway: no such device or tool. No.
	Denied     Code = "denied"     // gateway: may not be called. No.
	Invalid    Code = "invalid"    // gateway: the arguments do not fit. No.
	Limited    Code = "limited"    // gateway: too many calls. No.
	Pending    Code = "pending"    // gateway: the device waits to be adopted. No.
	Offline    Code = "offline"    // gateway, before the first byte went out. No.
	Busy       Code = "busy"       // gateway, before the first byte went out. No.
	Refused    Code = "refused"    // device, before it tried. No.
	Failed     Code = "failed"     // device tried and reports failure. Maybe, in part.
	Unanswered Code = "unanswered" // gateway: sent, and no answer came. Maybe.
	Cancelled  Code = "cancelled"  // the caller went away. Maybe, if it was sent.
	Internal   Code = "internal"   // gateway: our fault. Maybe, if it was sent.
)

// Error is the one error that has a meaning between rooms.
type Error struct {
	Code Code
	// Message says what happened, in words for whoever asked.
	Message string
	// Hint says what to do next; it may be empty.
	Hint string
	// Details names each thing that is wrong, where there are several.
	Details []string
	// Content is what the device gave with its failure; nil if nothing.
	Content []Content
	// Needs is who would have to be asked, where the caller has nobody who can be.
	Needs []AskTarget
	// Sent tells that bytes of the call may have left the gateway. It decides
	// for the codes that can arise on either side of that moment; for the
	// others the code alone decides.
	Sent bool
	// Err is the cause, for logs; it may be nil and does not cross a process.
	Err error
}

// Errorf makes an Error with a formatted message; a %w becomes its cause.
func Errorf(code Code, format string, args ...any) *Error {
	wrapped := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: wrapped.Error(), Err: errors.Unwrap(wrapped)}
}

// WithHint sets the hint and returns e.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// AfterSend marks that bytes may have left the gateway, and returns e.
func (e *Error) AfterSend() *Error {
	e.Sent = true
	return e
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Err }

// MayHaveRun tells whether the call may have had an effect on the device.
func (e *Error) MayHaveRun() bool {
	switch e.Code {
	case Failed, Unanswered:
		return true
	case Cancelled, Internal:
		return e.Sent
	}
	return false
}

// Certainty says in one sentence what the error means for the hardware.
func (e *Error) Certainty() string {
	switch {
	case e.Code == Failed:
		return "The device tried: it may have run in part."
	case e.MayHaveRun():
		return "It may have run."
	case e.Code == Refused:
		return "The device refused it: it did not run."
	}
	return "It did not run: nothing was sent to the device."
}

// AsError returns the Error in err's chain. An error without one is a fault of
// the gateway: it becomes Internal, and is taken to have been sent, because
// nobody said that it was not.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: Internal, Message: err.Error(), Sent: true, Err: err}
}

// errorJSON is an Error as it is written: certainty is spelled out, so that no
// reader has to know the table of codes.
type errorJSON struct {
	Code       Code        `json:"code"`
	Message    string      `json:"message"`
	Hint       string      `json:"hint,omitempty"`
	Details    []string    `json:"details,omitempty"`
	MayHaveRun bool        `json:"may_have_run"`
	Content    []Content   `json:"content,omitempty"`
	Needs      []AskTarget `json:"needs,omitempty"`
}

// MarshalJSON writes e with its certainty.
func (e *Error) MarshalJSON() ([]byte, error) {
	return json.Marshal(errorJSON{e.Code, e.Message, e.Hint, e.Details, e.MayHaveRun(), e.Content, e.Needs})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *Error) UnmarshalJSON(data []byte) error {
	var j errorJSON
	err := json.Unmarshal(data, &j)
	*e = Error{Code: j.Code, Message: j.Message, Hint: j.Hint, Details: j.Details, Sent: j.MayHaveRun, Content: j.Content, Needs: j.Needs}
	return err
}
