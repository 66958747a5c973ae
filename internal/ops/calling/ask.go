package calling

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/terminal"
	"github.com/ferrulehq/ferrule/internal/schema"
	"github.com/ferrulehq/ferrule/internal/schema/form"
)

// ErrDeclined is returned if the person ended the input, or pressed Ctrl-C.
var ErrDeclined = errors.New("not confirmed")

// maxFile limits a file that is an argument: a request to the gateway has at most 1 MB.
const maxFile = 512 << 10

// Arguments asks for the arguments of a tool. Given are those that the person has named
// already: if there are any, only those that are required and missing are asked for. The
// result has all of them.
func (s *Session) Arguments(ctx context.Context, device, tool, text string, input, given json.RawMessage) (json.RawMessage, error) {
	s.ask.Lock()
	defer s.ask.Unlock()
	args := make(map[string]json.RawMessage)
	if len(given) > 0 {
		if err := json.Unmarshal(given, &args); err != nil {
			return nil, err
		}
	}
	f := form.For(input)
	for i, field := range f.Fields {
		if field.Required && field.Default == "" && len(field.Options) == 1 {
			f.Fields[i].Default = field.Options[0].Value // Enter takes the only value
		}
	}
	if len(args) > 0 {
		f.Fields = slices.DeleteFunc(f.Fields, func(field form.Field) bool {
			_, has := args[field.Name]
			return has || !field.Required || field.Name == ""
		})
	}
	if len(f.Fields) > 0 {
		s.printf("%s of %s. %s\n", s.Style(terminal.Bold, tool), device, shown(text, maxShown))
	}
	return s.fill(ctx, f, input, args)
}

// fill asks for the fields of a form, and adds the values to args.
func (s *Session) fill(ctx context.Context, f form.Form, input json.RawMessage, args map[string]json.RawMessage) (json.RawMessage, error) {
	check, err := schema.Compile(input)
	if err != nil {
		check = nil // the gateway, or the device, says what is wrong
	}
	for _, field := range f.Fields {
		value, err := s.field(ctx, f, field, check)
		switch {
		case err != nil:
			return nil, err
		case value == nil:
		case field.Name == "":
			return value, nil
		default:
			args[field.Name] = value
		}
	}
	return json.Marshal(args)
}

// field asks for one field until its value is valid. The value is nil if it is left out.
func (s *Session) field(ctx context.Context, f form.Form, field form.Field, check *schema.Schema) (json.RawMessage, error) {
	for {
		text, err := s.read(ctx, s.prompt(field))
		switch {
		case errors.Is(err, terminal.ErrLine):
			s.complain(err.Error())
			continue
		case err != nil: // the end of the input, or Ctrl-C
			return nil, ErrDeclined
		}
		value, err := fieldValue(field, text)
		if err == nil && value != nil {
			err = checkField(f, field, check, value)
		}
		switch {
		case err != nil:
			s.complain(shown(label(field)+" "+err.Error(), maxShown))
		case value == nil && field.Required:
			s.complain(label(field) + " is required")
		default:
			return value, nil
		}
	}
}

// complain says what is wrong with what was typed.
func (s *Session) complain(text string) {
	s.printf("    %s\n", strings.Join(s.wrap(text+".", 4), "\n    "))
}

// label returns the name of a field as the person would type it.
func label(field form.Field) string { return shown(cmp.Or(field.Name, field.Label), maxShown) }

// prompt describes a field: its name, what it may be, and what Enter means. Each line of the
// terminal is indented.
func (s *Session) prompt(field form.Field) string {
	var b strings.Builder
	for _, line := range s.wrap(shown(field.Text, maxShown), 2) {
		if line != "" {
			fmt.Fprintf(&b, "  %s\n", s.Style(terminal.Faint, line))
		}
	}
	text := label(field)
	if what := describe(field); what != "" {
		text += fmt.Sprintf(" (%s)", shown(what, maxShown))
	}
	switch {
	case defaultText(field) != "":
		text += fmt.Sprintf(" [%s]", shown(defaultText(field), 80))
	case !field.Required:
		text += " [skip]"
	}
	lines := s.wrap(text+":", 4)
	if rest, ok := strings.CutPrefix(lines[0], label(field)); ok {
		lines[0] = s.Style(terminal.Bold, label(field)) + rest
	}
	return b.String() + "  " + strings.Join(lines, "\n    ") + " "
}

// describe says what a field may hold.
func describe(field form.Field) string {
	var words []string
	switch field.Kind {
	case form.Switch:
		words = append(words, "yes or no")
	case form.Select:
		var labels []string
		for _, o := range field.Options {
			labels = append(labels, o.Label)
		}
		words = append(words, strings.Join(labels, ", "))
	case form.Number, form.Slider:
		switch {
		case field.Min != "" && field.Max != "":
			words = append(words, "number from "+field.Min+" to "+field.Max)
		case field.Min != "":
			words = append(words, "number from "+field.Min)
		case field.Max != "":
			words = append(words, "number up to "+field.Max)
		default:
			words = append(words, "number")
		}
	case form.File:
		words = append(words, "path of a file")
	case form.JSON:
		words = append(words, "JSON")
	case form.Color:
		words = append(words, "color such as #2f7de1")
	default:
		words = append(words, "text")
	}
	if field.Unit != "" {
		words = append(words, field.Unit)
	}
	return strings.Join(words, ", ")
}

// defaultText returns the default of a field as the person would type it.
func defaultText(field form.Field) string {
	for _, o := range field.Options {
		if o.Value == field.Default {
			return o.Label
		}
	}
	if field.Kind == form.Switch {
		return map[string]string{"true": "yes", "false": "no"}[field.Default]
	}
	return field.Default
}

// fieldValue returns what a person typed as JSON. It is nil if nothing was typed and the
// device takes its own default.
func fieldValue(field form.Field, text string) (json.RawMessage, error) {
	if text == "" {
		if !field.Required || field.Default == "" {
			return nil, nil
		}
		return field.Value(field.Default)
	}
	switch field.Kind {
	case form.Switch:
		value, ok := boolean(text)
		if !ok {
			return nil, fmt.Errorf("must be yes or no, got %q", ferrule.Clean(text, ferrule.MaxWord))
		}
		return json.Marshal(value)
	case form.Select:
		return option(field, text)
	case form.File:
		return fileValue(text)
	case form.Text, form.LongText:
		if text == `""` { // the empty text
			return json.RawMessage(text), nil
		}
	}
	return field.Value(text)
}

// option returns the option that a person typed, by its label or its value.
func option(field form.Field, text string) (json.RawMessage, error) {
	var labels []string
	for _, o := range field.Options {
		if o.Label == text || o.Value == text {
			return json.RawMessage(o.Value), nil
		}
		labels = append(labels, o.Label)
	}
	if value, ok := boolean(text); ok { // a boolean that may be left out
		for _, o := range field.Options {
			if o.Value == fmt.Sprint(value) {
				return json.RawMessage(o.Value), nil
			}
		}
	}
	for _, o := range field.Options {
		if strings.EqualFold(o.Label, text) {
			return json.RawMessage(o.Value), nil
		}
	}
	return nil, fmt.Errorf("must be one of %s", strings.Join(labels, ", "))
}

// fileValue returns a file in base64.
func fileValue(path string) (json.RawMessage, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot be read: %w", err)
	case len(data) > maxFile:
		return nil, fmt.Errorf("must be a file of at most %d KB", maxFile>>10)
	}
	return json.Marshal(base64.StdEncoding.EncodeToString(data))
}

// checkField checks one value against the schema of all arguments.
func checkField(f form.Form, field form.Field, check *schema.Schema, value json.RawMessage) error {
	one := []byte(value)
	if field.Name != "" {
		var err error
		if one, err = json.Marshal(map[string]json.RawMessage{field.Name: value}); err != nil {
			return err
		}
	}
	args, _, err := schema.DecodeArgs(one)
	if err != nil || check == nil {
		return err
	}
	for _, violation := range check.Check(args) {
		if field.Name == "" {
			return errors.New(violation)
		}
		if about, rest := f.FieldOf(violation); about != nil && about.Name == field.Name {
			return errors.New(rest)
		}
	}
	return nil
}
