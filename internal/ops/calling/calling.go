// Package calling is `ferrule call` for people: it asks for arguments, shows progress,
// passes on the questions of a device, completes what is typed, and calls many devices.
//
//	schema ─ Arguments ─▶ person ─▶ arguments
//	device ─ progress, questions ─▶ Session ─▶ person ─▶ answers
//	pattern ─ Select ─▶ devices ─ Many ─▶ one outcome each
//
// Everything that a device wrote is cleaned before it is shown: it cannot move the cursor
// or look like another line.
package calling

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/terminal"
)

// Limits of what is shown of a device's texts, in characters.
const (
	maxShown    = 300
	maxQuestion = 4000
)

// Session is a person at a terminal, during one call or several.
type Session struct {
	// Out is where prompts and progress are shown.
	Out io.Writer
	// Lines reads what the person types; nil if nobody can be asked.
	Lines *terminal.Reader
	// Width returns the width of the terminal; nil if lines cannot be redrawn.
	Width func() int
	Style terminal.Style

	ask sync.Mutex // one question at a time
	mu  sync.Mutex // guards the output
	bar bool       // the cursor is in the line of the progress bar
}

// Asks reports whether the person can be asked.
func (s *Session) Asks() bool { return s.Lines != nil }

// printf prints text below the progress bar, which is drawn again later.
func (s *Session) printf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveBar()
	fmt.Fprintf(s.Out, format, args...)
}

// read shows a prompt and returns the answer, without spaces around it.
func (s *Session) read(ctx context.Context, prompt string) (string, error) {
	s.printf("%s", prompt)
	text, err := s.Lines.Line(ctx)
	if err != nil {
		s.printf("\n")
	}
	return strings.TrimSpace(text), err
}

// Confirm asks a question that is answered with yes or no.
func (s *Session) Confirm(ctx context.Context, question string) bool {
	s.ask.Lock()
	defer s.ask.Unlock()
	return s.confirm(ctx, question)
}

func (s *Session) confirm(ctx context.Context, question string) bool {
	text, err := s.read(ctx, question+" [y/N] ")
	yes, ok := boolean(text)
	return err == nil && ok && yes
}

// boolean returns what a person means by a word.
func boolean(text string) (value, ok bool) {
	switch strings.ToLower(text) {
	case "y", "yes", "true", "on", "1":
		return true, true
	case "n", "no", "false", "off", "0":
		return false, true
	}
	return false, false
}

// shown returns a text of a device in one line.
func shown(text string, limit int) string {
	return ferrule.OneLine(ferrule.Clean(text, ferrule.MaxText), limit)
}
