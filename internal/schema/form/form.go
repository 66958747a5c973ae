// Package form turns the arguments of a tool into the fields of a form, and what a person
// fills in into arguments.
//
//	JSON Schema ─ For ─▶ Form ─ template ─▶ browser
//	                      │                    │
//	    arguments ◀─ Read ┴────────────────────┘
//
// A schema is from a device, so it is hostile: everything here is bounded. What is unusual
// becomes a field for JSON. The tool's own check of the arguments says what is wrong, and
// each violation is put at its field.
package form

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Limits of a form.
const (
	// MaxFields is the number of arguments that have a field. A tool with more has one
	// field for JSON.
	MaxFields = 64
	// MaxOptions is the number of values that can be selected from.
	MaxOptions = 256
	// MaxSteps is the number of steps of a slider.
	MaxSteps = 1000
	// longText is the length above which a text has several lines.
	longText  = 120
	maxHint   = 512 // bytes of a description
	maxPreset = 16 << 10
)

// Kind is the control of a field.
type Kind string

// The controls.
const (
	Switch   Kind = "switch"
	Slider   Kind = "slider"
	Number   Kind = "number"
	Select   Kind = "select"
	Color    Kind = "color"
	Text     Kind = "text"
	LongText Kind = "long"
	File     Kind = "file"
	JSON     Kind = "json"
)

// Field is one argument.
type Field struct {
	// Name is the argument. It is empty if the field has all arguments, as JSON.
	Name string
	// Label is for people; Text is what the device says about the argument.
	Label, Text string
	Kind        Kind
	Required    bool
	// Default is what the field holds at first, and what the device takes if it gets
	// nothing.
	Default string
	Unit    string
	// Min, Max and Step are empty if they are not known.
	Min, Max, Step string
	Options        []Option
	// MaxLength is that of a text in characters, or of a file in bytes; 0 if it is unlimited.
	MaxLength int

	integer bool
}

// Option is a value to select.
type Option struct {
	// Value is JSON.
	Value, Label string
}

// Form has the fields of a tool, those that are required first.
type Form struct{ Fields []Field }

// For returns the form for a schema of arguments. Without a schema there are no fields.
func For(schema json.RawMessage) Form {
	if len(bytes.TrimSpace(schema)) == 0 {
		return Form{}
	}
	var root document
	names, properties, ok := members(schema, &root)
	switch {
	case !ok || root.unusual() || len(names) > MaxFields:
		return Form{[]Field{whole()}}
	case len(names) == 0 && root.open():
		return Form{[]Field{whole()}}
	}
	var f Form
	for i, name := range names {
		required := slices.Contains(root.Required, name)
		field := newField(name, properties[i], required || len(names) == 1)
		field.Required = required
		f.Fields = append(f.Fields, field)
	}
	slices.SortStableFunc(f.Fields, func(a, b Field) int { return number(b.Required) - number(a.Required) })
	return f
}

func number(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// whole returns a field for all arguments.
func whole() Field {
	return Field{Label: "Arguments", Kind: JSON, Default: "{}", Text: "A JSON object."}
}

// document is a schema, as far as it matters for a form.
type document struct {
	Type             json.RawMessage   `json:"type"`
	Properties       json.RawMessage   `json:"properties"`
	Required         []string          `json:"required"`
	Additional       json.RawMessage   `json:"additionalProperties"`
	PatternProps     json.RawMessage   `json:"patternProperties"`
	Title            string            `json:"title"`
	Description      string            `json:"description"`
	Default          json.RawMessage   `json:"default"`
	Enum             []json.RawMessage `json:"enum"`
	Const            json.RawMessage   `json:"const"`
	Minimum          json.RawMessage   `json:"minimum"`
	Maximum          json.RawMessage   `json:"maximum"`
	Above            json.RawMessage   `json:"exclusiveMinimum"`
	Below            json.RawMessage   `json:"exclusiveMaximum"`
	MultipleOf       json.RawMessage   `json:"multipleOf"`
	MaxLength        json.RawMessage   `json:"maxLength"`
	Pattern          string            `json:"pattern"`
	Format           string            `json:"format"`
	ContentEncoding  string            `json:"contentEncoding"`
	ContentMediaType string            `json:"contentMediaType"`
	Unit             string            `json:"unit"`
	XUnit            string            `json:"x-unit"`
	Ref              json.RawMessage   `json:"$ref"`
	AnyOf            []json.RawMessage `json:"anyOf"`
	OneOf            []json.RawMessage `json:"oneOf"`
	AllOf            json.RawMessage   `json:"allOf"`
	Not              json.RawMessage   `json:"not"`
	If               json.RawMessage   `json:"if"`
}

// unusual reports whether a form cannot show what the schema says.
func (d *document) unusual() bool {
	for _, word := range []json.RawMessage{d.Ref, d.AllOf, d.Not, d.If, d.PatternProps} {
		if len(word) > 0 {
			return true
		}
	}
	return len(d.AnyOf) > 0 || len(d.OneOf) > 0
}

// open reports whether a schema without properties asks for arguments all the same.
func (d *document) open() bool {
	text := string(bytes.TrimSpace(d.Additional))
	return len(d.Required) > 0 || text == "true" || strings.HasPrefix(text, "{") && text != "{}"
}

// members decodes a schema, and returns its properties in their order.
func members(schema json.RawMessage, root *document) (names []string, properties []json.RawMessage, ok bool) {
	if len(schema) > ferrule.MaxSchema || json.Unmarshal(schema, root) != nil {
		return nil, nil, false
	}
	if len(root.Properties) == 0 {
		return nil, nil, true
	}
	dec := json.NewDecoder(bytes.NewReader(root.Properties))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, false
	}
	for dec.More() {
		key, err := dec.Token()
		name, isName := key.(string)
		var value json.RawMessage
		if err != nil || !isName || dec.Decode(&value) != nil || name == "" {
			return nil, nil, false
		}
		if slices.Contains(names, name) || len(names) > MaxFields {
			return nil, nil, false
		}
		names, properties = append(names, name), append(properties, value)
	}
	_, err := dec.Token()
	return names, properties, err == nil || err == io.EOF
}

// newField returns the field for an argument. One that need not be given, and has no
// default, must be able to stay empty.
func newField(name string, schema json.RawMessage, needed bool) Field {
	f := Field{Name: name, Label: Label(name), Kind: JSON}
	var d document
	if json.Unmarshal(schema, &d) != nil {
		return f
	}
	f.Text = oneLine(d.Description, maxHint)
	if title := oneLine(d.Title, ferrule.MaxWord); title != "" {
		f.Label = title
	}
	if only, ok := d.nullable(); ok {
		d = only
	}
	f.Unit = oneLine(d.Unit+d.XUnit, ferrule.MaxUnit)
	f.Default = preset(d.Default)
	labels := d.titled()
	if d.unusual() {
		f.Default = rawPreset(d.Default)
		return f
	}
	f.control(&d, needed)
	for i, label := range labels {
		if label != "" && len(f.Options) == len(labels) {
			f.Options[i].Label = label
		}
	}
	return f
}

// titled turns alternatives that are constants with titles into values to select, and
// returns the titles. It returns nil and changes nothing if there are others.
func (d *document) titled() (labels []string) {
	all := append(slices.Clone(d.AnyOf), d.OneOf...)
	if len(all) == 0 || len(all) > MaxOptions || len(d.Enum) > 0 {
		return nil
	}
	var values []json.RawMessage
	for _, schema := range all {
		var one document
		if json.Unmarshal(schema, &one) != nil || len(one.Const) == 0 || one.unusual() {
			return nil
		}
		values, labels = append(values, one.Const), append(labels, oneLine(one.Title, ferrule.MaxWord))
	}
	d.Enum, d.AnyOf, d.OneOf = values, nil, nil
	return labels
}

// nullable returns the one alternative of a schema that is not null.
func (d *document) nullable() (only document, ok bool) {
	all := append(slices.Clone(d.AnyOf), d.OneOf...)
	if len(all) != 2 {
		return only, false
	}
	for _, schema := range all {
		var one document
		if json.Unmarshal(schema, &one) != nil {
			return only, false
		}
		if string(one.Type) == `"null"` {
			continue
		}
		if ok {
			return only, false
		}
		only, ok = one, true
	}
	if len(only.Default) == 0 {
		only.Default = d.Default
	}
	return only, ok
}

// control chooses the control. Needed reports whether the argument is always sent.
func (f *Field) control(d *document, needed bool) {
	if len(d.Const) > 0 {
		d.Enum = []json.RawMessage{d.Const}
	}
	typ := d.singleType()
	switch {
	case len(d.Enum) > 0 && f.setOptions(d):
		f.Kind = Select
	case typ == "boolean" && (needed || f.Default != ""):
		f.Kind = Switch
	case typ == "boolean":
		f.Kind = Select
		f.Options = []Option{{"true", "On"}, {"false", "Off"}}
	case typ == "integer" || typ == "number":
		f.Kind, f.integer = Number, typ == "integer"
		if f.setRange(d) && needed {
			f.Kind = Slider
		}
	case typ == "string":
		f.setText(d)
	default:
		f.Kind, f.Default = JSON, rawPreset(d.Default)
	}
}

// singleType returns the type of a schema, apart from null; empty if there are several.
func (d *document) singleType() string {
	var one string
	if json.Unmarshal(d.Type, &one) == nil {
		return one
	}
	var several []string
	json.Unmarshal(d.Type, &several)
	several = slices.DeleteFunc(several, func(t string) bool { return t == "null" })
	if len(several) == 1 {
		return several[0]
	}
	return ""
}

// setOptions sets the values to select. It reports whether all of them can be shown.
func (f *Field) setOptions(d *document) bool {
	if len(d.Enum) > MaxOptions {
		return false
	}
	for _, value := range d.Enum {
		var compact bytes.Buffer
		if json.Compact(&compact, value) != nil || compact.Len() > ferrule.MaxWord*8 {
			f.Options = nil
			return false
		}
		label := compact.String()
		var text string
		if strings.HasPrefix(label, `"`) && json.Unmarshal(value, &text) == nil {
			label = text
		}
		f.Options = append(f.Options, Option{compact.String(), oneLine(label, ferrule.MaxWord)})
	}
	f.Default = ""
	if len(d.Default) > 0 {
		f.Default = rawPreset(d.Default)
	}
	return true
}

// setRange sets the ends of a number. It reports whether a slider can show it.
func (f *Field) setRange(d *document) bool {
	low, hasLow := finite(d.Minimum)
	high, hasHigh := finite(d.Maximum)
	if above, ok := finite(d.Above); ok && f.integer && (!hasLow || above+1 > low) {
		low, hasLow = math.Floor(above)+1, true
	} else if ok && (!hasLow || above >= low) {
		hasLow = false // the end itself is not allowed
	}
	if below, ok := finite(d.Below); ok && f.integer && (!hasHigh || below-1 < high) {
		high, hasHigh = math.Ceil(below)-1, true
	} else if ok && (!hasHigh || below <= high) {
		hasHigh = false
	}
	if hasLow {
		f.Min = format(low)
	}
	if hasHigh {
		f.Max = format(high)
	}
	step, hasStep := finite(d.MultipleOf)
	switch {
	case hasStep && step <= 0:
		return false
	case hasStep && math.Abs(math.Remainder(low, step)) > step*1e-9:
		f.Step = "any" // a browser counts steps from the lower end
		return false
	case !hasStep && f.integer:
		step = 1
	case !hasStep && hasLow && hasHigh && high > low:
		step = math.Pow(10, math.Floor(math.Log10((high-low)/100)))
	case !hasStep:
		f.Step = "any"
		return false
	}
	f.Step = format(step)
	steps := (high - low) / step
	return hasLow && hasHigh && steps >= 1 && steps <= MaxSteps
}

// setText sets the control of a text.
func (f *Field) setText(d *document) {
	length, _ := finite(d.MaxLength)
	f.MaxLength = int(min(max(length, 0), math.MaxInt32))
	switch {
	case d.ContentEncoding == "base64":
		f.Kind, f.Default = File, ""
		f.MaxLength = f.MaxLength / 4 * 3
	case d.Format == "color" || colorPattern(d.Pattern):
		f.Kind, f.MaxLength = Color, 0
	case f.MaxLength > longText || strings.Contains(f.Default, "\n") || strings.HasPrefix(d.ContentMediaType, "text/"):
		f.Kind = LongText
	default:
		f.Kind = Text
	}
}

// colorPattern reports whether a pattern is for colors such as #2f7de1.
func colorPattern(pattern string) bool {
	if !strings.HasPrefix(pattern, "^#") || len(pattern) > 64 {
		return false
	}
	re, err := regexp.Compile(pattern)
	return err == nil && re.MatchString("#2f7de1") && !re.MatchString("#2f7de") && !re.MatchString("#2f7deg")
}

// finite returns a number of a schema.
func finite(raw json.RawMessage) (float64, bool) {
	var v float64
	if len(raw) == 0 || json.Unmarshal(raw, &v) != nil || string(bytes.TrimSpace(raw)) == "null" || math.Abs(v) > 1e15 {
		return 0, false
	}
	return v, true
}

func format(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// preset returns a default as it stands in a field.
func preset(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil && string(bytes.TrimSpace(raw)) != "null" {
		if len(text) > maxPreset {
			return ""
		}
		return strings.ToValidUTF8(text, "")
	}
	return rawPreset(raw)
}

// rawPreset returns a default as JSON.
func rawPreset(raw json.RawMessage) string {
	var compact bytes.Buffer
	if len(raw) == 0 || len(raw) > maxPreset || json.Compact(&compact, raw) != nil || compact.String() == "null" {
		return ""
	}
	return compact.String()
}

// Label makes words of a name: target_angle is "Target angle".
func Label(name string) string {
	name = oneLine(name, ferrule.MaxWord)
	words := strings.Join(strings.FieldsFunc(name, func(r rune) bool { return r == '_' || r == '-' || r == '.' || r == ' ' }), " ")
	if words == "" {
		return name
	}
	all := strings.Split(words, " ")
	for i, word := range all {
		if acronyms[word] {
			all[i] = strings.ToUpper(word)
		}
	}
	words = strings.Join(all, " ")
	first, n := utf8.DecodeRuneInString(words)
	return string(unicode.ToUpper(first)) + words[n:]
}

// acronyms are words that are written in capitals.
var acronyms = map[string]bool{"adc": true, "gpio": true, "id": true, "led": true, "pwm": true, "rgb": true, "url": true, "usb": true}

// oneLine bounds a text of a device.
func oneLine(text string, limit int) string {
	return strings.Join(strings.Fields(ferrule.Clean(text, limit)), " ")
}
