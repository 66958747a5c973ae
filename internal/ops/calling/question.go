package calling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/terminal"
	"github.com/ferrulehq/ferrule/internal/schema/form"
)

// Askable is who a Session can ask.
var Askable = []ferrule.AskTarget{ferrule.User, ferrule.Page}

// Question asks the person a question of a device; it is the Ask of a call. One that is
// not answered when ctx ends is dismissed.
func (s *Session) Question(ctx context.Context, q ferrule.Question) (ferrule.Answer, error) {
	switch q.Needs() {
	case ferrule.User, ferrule.Page:
	default:
		return ferrule.Answer{}, fmt.Errorf("nobody at a terminal answers a question to %s", ferrule.Clean(string(q.Target), ferrule.MaxWord))
	}
	s.ask.Lock()
	defer s.ask.Unlock()
	if err := ctx.Err(); err != nil {
		return ferrule.Answer{}, err
	}
	s.Lines.Discard() // it was typed before the question, perhaps for another device
	s.printf("\n%s\n%s\n", s.Style(terminal.Bold, "The device asks:"), s.quoted(q.Text))
	if q.URL != "" {
		s.printf("%s\n", s.quoted(shown(q.URL, maxQuestion)))
		return s.answered(ctx, "Open this page yourself, if you trust it. Have you done what it asks for?")
	}
	f := form.For(q.Schema)
	if len(f.Fields) == 0 {
		return s.answered(ctx, "Agree?")
	}
	if slices.ContainsFunc(f.Fields, func(field form.Field) bool { return field.Kind == form.File }) {
		s.printf("  It asks for the content of a file. Files are not sent as answers: the question was declined.\n")
		return ferrule.Answer{}, nil
	}
	s.printf("%s\n", s.Style(terminal.Faint, "  What you type goes to the device. Ctrl-D declines."))
	value, err := s.fill(ctx, f, q.Schema, make(map[string]json.RawMessage))
	switch {
	case ctx.Err() != nil:
		return ferrule.Answer{}, ctx.Err()
	case errors.Is(err, ErrDeclined):
		return ferrule.Answer{}, nil
	case err != nil:
		return ferrule.Answer{}, err
	}
	return ferrule.Answer{Given: true, Value: value}, nil
}

// answered asks for agreement.
func (s *Session) answered(ctx context.Context, question string) (ferrule.Answer, error) {
	agreed := s.confirm(ctx, "  "+question)
	if err := ctx.Err(); err != nil {
		return ferrule.Answer{}, err
	}
	if !agreed {
		return ferrule.Answer{}, nil
	}
	return ferrule.Answer{Given: true, Value: json.RawMessage("{}")}, nil
}

// quoted returns a text of a device with a mark at each line of the terminal, so that it
// cannot look like a prompt of the program.
func (s *Session) quoted(text string) string {
	const mark = "  | "
	var lines []string
	text = strings.ReplaceAll(ferrule.Clean(strings.TrimSpace(text), maxQuestion), "\t", " ")
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, s.wrap(line, len(mark))...)
	}
	return mark + strings.Join(lines, "\n"+mark)
}

// wrap splits a line so that its parts fit on the terminal behind an indentation.
func (s *Session) wrap(line string, indent int) (lines []string) {
	width := 80
	if s.Width != nil {
		width = s.Width()
	}
	width = max(width-indent-1, minWrap)
	for {
		end, space := fitting(line, width)
		switch {
		case end == len(line):
			return append(lines, line)
		case space > 0:
			end = space
		}
		lines = append(lines, line[:end])
		line = strings.TrimLeft(line[end:], " ")
	}
}

// fitting returns how many bytes of a line fit into a number of columns, and the index of the
// last space in them; 0 if there is none.
func fitting(line string, width int) (end, space int) {
	columns := 0
	for i, r := range line {
		if columns++; r > unicode.MaxASCII {
			columns++ // it may be a wide one
		}
		if columns > width {
			return i, space
		}
		if r == ' ' {
			space = i
		}
	}
	return len(line), space
}

// minWrap is the least length of a line, in columns.
const minWrap = 16
