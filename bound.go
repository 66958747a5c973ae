package ferrule

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The bounds of a Manifest. Real boards stay far below them.
const (
	MaxManifest = 1 << 20 // bytes of names, texts and schemas together
	MaxTools    = 1024
	MaxPins     = 1024
	MaxNotes    = 16
	MaxToolName = 128
	MaxWord     = 128 // bytes of a model, a version, a pin's name
	MaxText     = 4096
	MaxSchema   = 64 << 10
)

// Bound makes a manifest safe to keep and to show, whatever a device put into
// it: texts are cleaned and cut, surplus entries dropped with a note, and a tool
// that cannot be used is quarantined with its reason. The device is never
// refused for it.
func (m *Manifest) Bound() {
	m.Model, m.Version, m.Platform = Clean(m.Model, MaxWord), Clean(m.Version, MaxWord), Clean(m.Platform, MaxWord)
	m.Instructions = Clean(m.Instructions, MaxText)
	m.boundTools()
	m.boundPins()
	if n := len(m.Notes); n > MaxNotes {
		m.Notes = append(m.Notes[:MaxNotes-1:MaxNotes-1], fmt.Sprintf("and %d more notes", n-MaxNotes+1))
	}
	for i, note := range m.Notes {
		m.Notes[i] = Clean(note, MaxText)
	}
}

func (m *Manifest) boundTools() {
	if n := len(m.Tools); n > MaxTools {
		m.note("it lists %d tools; the first %d are kept", n, MaxTools)
		m.Tools = m.Tools[:MaxTools]
	}
	seen := make(map[string]bool, len(m.Tools))
	size := 0
	for i := range m.Tools {
		t := &m.Tools[i]
		t.bound()
		if seen[t.Name] {
			t.quarantine("the device lists this name twice")
		}
		seen[t.Name] = true
		size += len(t.Name) + len(t.Text) + len(t.Input) + len(t.Output)
		if size > MaxManifest {
			m.note("its tools take more than %d bytes; the first %d of %d are kept", MaxManifest, i, len(m.Tools))
			m.Tools = m.Tools[:i]
			return
		}
	}
}

func (m *Manifest) boundPins() {
	if n := len(m.Pins); n > MaxPins {
		m.note("it lists %d pins; the first %d are kept", n, MaxPins)
		m.Pins = m.Pins[:MaxPins]
	}
	for i := range m.Pins {
		p := &m.Pins[i]
		p.Name, p.Type, p.Text = Clean(p.Name, MaxWord), Clean(p.Type, MaxWord), Clean(p.Text, MaxText)
	}
}

func (m *Manifest) note(format string, args ...any) {
	m.Notes = append(m.Notes, fmt.Sprintf(format, args...))
}

func (t *Tool) bound() {
	name := Clean(t.Name, MaxToolName)
	switch {
	case t.Name == "":
		t.quarantine("it has no name")
	case len(t.Name) > MaxToolName:
		t.quarantine("its name has %d bytes; at most %d are possible", len(t.Name), MaxToolName)
	case name != t.Name:
		t.quarantine("its name has characters that cannot be shown")
	}
	t.Name = name
	t.Text = Clean(t.Text, MaxText)
	if n := max(len(t.Input), len(t.Output)); n > MaxSchema {
		t.quarantine("its schema has %d bytes; at most %d are possible", n, MaxSchema)
		t.Input, t.Output = nil, nil
	}
	switch t.Effect {
	case "", Reads, Changes, Endangers:
	default:
		t.Effect = ""
	}
	if t.Poll < 0 {
		t.Poll = 0
	}
}

// quarantine sets the reason, unless there is one already.
func (t *Tool) quarantine(format string, args ...any) {
	if t.Quarantine == "" {
		t.Quarantine = fmt.Sprintf(format, args...)
	}
}

// Clean returns s fit to be shown to a person or a model: valid UTF-8 without
// control, invisible and direction-changing characters, at most limit bytes
// long. Line breaks and tabs stay.
func Clean(s string, limit int) string {
	if len(s) <= limit && clean(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			r = ' '
		}
		if b.Len()+utf8.RuneLen(r) > limit {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

func clean(s string) bool {
	for _, r := range s {
		if r == utf8.RuneError || hidden(r) {
			return false
		}
	}
	return true
}

// hidden tells whether r is a character that a reader would not see, or that
// changes what others look like.
func hidden(r rune) bool {
	if r < unicode.MaxASCII { // most are, and it is quicker
		return r < ' ' && r != '\n' && r != '\t'
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co) || r == '\u2028' || r == '\u2029'
}
