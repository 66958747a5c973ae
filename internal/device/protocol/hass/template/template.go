// Package template evaluates the Jinja templates of MQTT discovery messages. Devices write
// them, so they are untrusted: only the forms that real publishers use are understood, and
// each evaluation is bounded in steps, size and depth. There are no loops, macros or
// includes. A template in another form is an error of Parse, and the caller puts what
// uses it in quarantine.
package template

import "errors"

// Template is a parsed template. It is immutable and may be shared: Parse returns the same
// one for the same text where it can.
type Template struct{}

// Parse parses a template. Its error says what is not understood.
func Parse(text string) (*Template, error) { return nil, errors.New("not written yet") }

// Vars are the variables of an evaluation. Values are as encoding/json decodes them with
// UseNumber, or plain Go strings, bools, ints and float64s.
type Vars map[string]any

// Payload returns the variables for a payload: value, and value_json if it is JSON. It is
// decoded at most once.
func Payload(payload []byte) Vars { return nil }

// Render evaluates the template and returns its text, trimmed, in the form that Python
// prints. The text is empty if the last key of a path is missing. It fails if a limit is
// exceeded or an operation has no meaning, for example if an earlier key is missing.
func (t *Template) Render(vars Vars) (string, error) { return "", errors.New("not written yet") }
