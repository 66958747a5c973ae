package form

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// Prefix is before the name of an argument in a form.
const Prefix = "arg."

// Filled is what a person filled in.
type Filled struct {
	// Arguments is a JSON object; it is empty if there are errors.
	Arguments json.RawMessage
	// Values are what the fields hold, by their names, to show them again.
	Values map[string]string
	// Errors are sentences, by the name of the field. Others belong to no field.
	Errors map[string]string
	Others []string
}

// OK reports whether the arguments can be sent.
func (f *Filled) OK() bool { return len(f.Errors) == 0 && len(f.Others) == 0 }

// All returns all errors.
func (f *Filled) All() (all []string) {
	for _, e := range f.Errors {
		all = append(all, e)
	}
	slices.Sort(all)
	return append(all, f.Others...)
}

// Read returns the arguments that a person filled in, and everything that is wrong with
// them. Check is that of the tool; it may be nil.
func (f Form) Read(values url.Values, files map[string][]*multipart.FileHeader, check func(args map[string]any) []string) Filled {
	out := Filled{Values: make(map[string]string), Errors: make(map[string]string)}
	args := make(map[string]json.RawMessage)
	for _, field := range f.Fields {
		text := first(values[Prefix+field.Name])
		if field.Kind == File {
			var err error
			if text, err = readFile(field, files[Prefix+field.Name]); err != nil {
				out.Errors[field.Name] = sentence(field.Label, err.Error())
				continue
			}
		} else {
			out.Values[field.Name] = text
		}
		value, err := field.Value(text)
		switch {
		case err != nil:
			out.Errors[field.Name] = sentence(field.Label, err.Error())
		case field.Name == "" && value != nil:
			out.Arguments = value
		case value != nil:
			args[field.Name] = value
		case field.Required:
			out.Errors[field.Name] = sentence(field.Label, "is missing")
		}
	}
	if out.Arguments == nil {
		out.Arguments, _ = json.Marshal(args) // each value is valid JSON
	}
	f.check(&out, check)
	if !out.OK() {
		out.Arguments = nil
	}
	return out
}

// check adds what the tool's own check says to the fields. A field that could not be read
// has its error already.
func (f Form) check(out *Filled, check func(args map[string]any) []string) {
	decoded, _, err := schema.DecodeArgs(out.Arguments)
	if err != nil {
		if out.OK() {
			out.Others = append(out.Others, sentence("The arguments", err.Error()))
		}
		return
	}
	if check == nil {
		return
	}
	for _, violation := range check(decoded) {
		field, rest := f.FieldOf(violation)
		switch {
		case field == nil:
			if text := sentence("", violation); len(out.Errors) == 0 || !slices.Contains(out.All(), text) {
				out.Others = append(out.Others, text)
			}
		case out.Errors[field.Name] == "":
			out.Errors[field.Name] = sentence(field.Label, rest)
		}
	}
}

// FieldOf returns the field that a violation begins with, and the rest of its text.
func (f Form) FieldOf(violation string) (found *Field, rest string) {
	for i := range f.Fields {
		field := &f.Fields[i]
		name := ferrule.Clean(field.Name, ferrule.MaxToolName)
		after, ok := strings.CutPrefix(violation, name)
		if !ok || name == "" || after == "" || after[0] != ' ' && after[0] != '.' {
			continue
		}
		if found == nil || len(field.Name) > len(found.Name) {
			found, rest = field, strings.TrimPrefix(after, " ")
		}
	}
	return found, rest
}

// sentence returns a label and what is wrong with it, as a sentence.
func sentence(label, text string) string {
	text = strings.TrimSpace(ferrule.Clean(strings.TrimSpace(label+" "+text), ferrule.MaxText))
	if text == "" || strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}

func first(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	return texts[0]
}

// Value returns what a field holds as JSON; nil if it is empty.
func (f Field) Value(text string) (json.RawMessage, error) {
	switch f.Kind {
	case Switch:
		return strconv.AppendBool(nil, text == "true" || text == "on"), nil
	case Slider, Number:
		return f.numberValue(strings.TrimSpace(text))
	case Select:
		if text == "" {
			return nil, nil
		}
		for _, o := range f.Options {
			if o.Value == text {
				return json.RawMessage(text), nil
			}
		}
		return nil, fmt.Errorf("has no value %s", strconv.Quote(ferrule.Clean(text, ferrule.MaxWord)))
	case JSON:
		return jsonValue(text)
	}
	if text == "" && !f.Required {
		return nil, nil
	}
	if f.Kind == LongText {
		text = strings.ReplaceAll(text, "\r\n", "\n") // as forms send it
	}
	return json.Marshal(text)
}

// numberValue returns a number with the digits that the person wrote.
func (f Field) numberValue(text string) (json.RawMessage, error) {
	if text == "" {
		return nil, nil
	}
	text = strings.ReplaceAll(text, "−", "-")
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || strings.ContainsAny(text, "xXpPnN_") {
		return nil, fmt.Errorf("must be a number, got %s", strconv.Quote(ferrule.Clean(text, ferrule.MaxWord)))
	}
	var plain json.Number
	if json.Unmarshal([]byte(text), &plain) == nil {
		return json.RawMessage(plain), nil
	}
	return json.RawMessage(format(v)), nil // such as +5 or .5
}

// jsonValue returns a JSON text.
func jsonValue(text string) (json.RawMessage, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(text)); err != nil {
		return nil, fmt.Errorf("must be JSON: %w", err)
	}
	return compact.Bytes(), nil
}

// readFile returns a file that a person chose, in base64; empty if there is none.
func readFile(f Field, all []*multipart.FileHeader) (string, error) {
	if len(all) == 0 || all[0].Size == 0 && all[0].Filename == "" {
		return "", nil
	}
	limit := int64(schema.MaxArgs / 4 * 3)
	if f.MaxLength > 0 {
		limit = min(limit, int64(f.MaxLength))
	}
	if all[0].Size > limit {
		return "", fmt.Errorf("must be a file of at most %d bytes, got %d", limit, all[0].Size)
	}
	file, err := all[0].Open()
	if err != nil {
		return "", fmt.Errorf("could not be read: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, limit))
	if err != nil {
		return "", fmt.Errorf("could not be read: %w", err)
	}
	return base64.StdEncoding.EncodeToString(data), nil
}
