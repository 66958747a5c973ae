// Package template evaluates the Jinja templates of MQTT discovery messages. Devices write
// them, so they are untrusted: only the forms that real publishers use are understood, and
// each evaluation is bounded in steps, size and depth. There are no loops, macros or
// includes. A template in another form is an error of Parse, and the caller puts what
// uses it in quarantine.
//
// A template that only reads a path, such as {{ value_json.a["b"] }}, is the common case
// and needs no evaluator. Filters follow Home Assistant where it differs from Jinja: int,
// float and round fail for a text that is not a number unless they have a default.
package template

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"weak"
)

// Limits of a template and of one evaluation.
const (
	maxText  = 4 << 10   // bytes of a template; the longest known one has 786
	maxDepth = 32        // nested expressions, blocks or values
	maxSteps = 1000      // evaluated parts, and one more for each KB that is read
	maxValue = 16 << 10  // bytes of one value
	maxTotal = 256 << 10 // bytes of all values that one evaluation makes
)

var (
	errTooLarge = errors.New("a value is larger than 16 KB")
	errTooLong  = errors.New("the evaluation takes too many steps")
)

// errorf returns an error. Its text must not contain values: they can be secrets.
func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// missingError returns the error for the use of a value that is not there.
func missingError(m missing) error { return errorf("%s is missing", cleaned(string(m))) }

// cleaned returns a name from a template in quotes, without what a terminal could obey.
func cleaned(name string) string {
	if len(name) > 40 {
		name = name[:40] + "…"
	}
	return fmt.Sprintf("%q", strings.ToValidUTF8(name, "?"))
}

// Template is a parsed template. It is immutable and may be shared: Parse returns the same
// one for the same text where it can.
type Template struct {
	// path is set if the template only reads a path: a variable and the names of keys.
	path []string
	body []node
}

// shared holds the templates that are in use, by text. Tens of thousands of entities use few
// different templates. An entry goes when its template is no longer used.
var shared = struct {
	mu sync.Mutex
	m  map[string]weak.Pointer[Template]
}{m: map[string]weak.Pointer[Template]{}}

// Parse parses a template. Its error says what is not understood.
func Parse(text string) (*Template, error) {
	shared.mu.Lock()
	t := shared.m[text].Value()
	shared.mu.Unlock()
	if t != nil {
		return t, nil
	}
	text = strings.Clone(text) // The text may be a small part of a large message.
	t, err := parse(text)
	if err != nil {
		return nil, err
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if other := shared.m[text].Value(); other != nil {
		return other, nil
	}
	shared.m[text] = weak.Make(t)
	runtime.AddCleanup(t, forget, text)
	return t, nil
}

// forget removes the entry of a template that is no longer used.
func forget(text string) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if p, ok := shared.m[text]; ok && p.Value() == nil {
		delete(shared.m, text)
	}
}

// Vars are the variables of an evaluation. Values are as encoding/json decodes them with
// UseNumber, or plain Go strings, bools, ints and float64s. One Vars must not be used by
// two evaluations at the same time.
type Vars map[string]any

// Payload returns the variables for a payload: value, and value_json if it is JSON. It is
// decoded at most once.
func Payload(payload []byte) Vars {
	s := string(payload)
	return Vars{"value": s, "value_json": &document{text: s}}
}

// Render evaluates the template and returns its text, trimmed, in the form that Python
// prints. The text is empty if the last key of a path is missing. It fails if a limit is
// exceeded or an operation has no meaning, for example if an earlier key is missing.
func (t *Template) Render(vars Vars) (string, error) {
	if t.path == nil {
		return (&run{vars: vars}).render(t.body)
	}
	v, err := walk(t.path, vars)
	if err != nil {
		return "", err
	}
	s, err := text(v)
	if err != nil {
		return "", err
	}
	// A clone, because a part of the payload would keep all of it in memory.
	return strings.Clone(trim(s)), nil
}

// walk reads a path.
func walk(path []string, vars Vars) (any, error) {
	v, ok := vars[path[0]]
	if !ok {
		v = missing(path[0])
	}
	v, err := normal(v)
	if err != nil {
		return nil, err
	}
	for _, key := range path[1:] {
		found := false
		switch of := v.(type) {
		case *object:
			v, found = of.find(key)
		case *dict:
			v, found = of.get(key)
		case missing:
			return nil, missingError(of)
		}
		if !found {
			v = missing(key)
		}
	}
	return v, nil
}

// trim removes white space as Python's strip does.
func trim(s string) string { return strings.TrimFunc(s, isSpace) }
