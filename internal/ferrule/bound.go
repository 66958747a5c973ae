package ferrule

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The bounds of a Manifest. Real boards stay far below them.
const (
	MaxManifest        = 1 << 20 // bytes of names, texts and schemas together
	MaxTools           = 1024
	MaxPins            = 1024
	MaxNotes           = 16
	MaxToolName        = 128
	MaxWord            = 128 // bytes of a model, a version, a pin's name
	MaxText            = 4096
	MaxSchema          = 64 << 10
	MaxItems           = 1024 // resources, prompts
	MaxURI             = 1024
	MaxIcons           = 4
	MaxIcon            = 16 << 10 // bytes of an icon's source
	MaxPromptArguments = 32       // arguments of a prompt
)

// Bound makes a manifest safe to keep and to show, whatever a device put into
// it: texts are cleaned and cut, surplus entries dropped with a note, and a tool
// that cannot be used is quarantined with its reason. The device is never
// refused for it.
func (m *Manifest) Bound() {
	m.Model, m.Version, m.Platform = Clean(m.Model, MaxWord), Clean(m.Version, MaxWord), Clean(m.Platform, MaxWord)
	m.Instructions, m.Title = Clean(m.Instructions, MaxText), Clean(m.Title, MaxWord)
	m.Icons = boundIcons(m.Icons)
	m.boundTools()
	m.boundPins()
	m.boundResources()
	m.boundPrompts()
	m.Operations = slices.Compact(slices.Sorted(slices.Values(m.Operations)))
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

// boundResources drops what cannot be named, and what is listed twice.
func (m *Manifest) boundResources() {
	m.Resources = keep(m, "resources", m.Resources, func(r *Resource) string {
		if r.URI == "" || len(r.URI) > MaxURI || Clean(r.URI, MaxURI) != r.URI {
			return ""
		}
		r.bound()
		return r.URI
	})
}

func (r *Resource) bound() {
	r.Name, r.Title, r.MIME = Clean(r.Name, MaxWord), Clean(r.Title, MaxWord), Clean(r.MIME, MaxWord)
	r.Text, r.Size, r.Icons = Clean(r.Text, MaxText), max(0, r.Size), boundIcons(r.Icons)
	r.Annotations = r.Annotations.bound()
}

// boundPrompts does the same for prompts.
func (m *Manifest) boundPrompts() {
	m.Prompts = keep(m, "prompts", m.Prompts, func(p *Prompt) string {
		if p.Name == "" || len(p.Name) > MaxToolName || Clean(p.Name, MaxToolName) != p.Name {
			return ""
		}
		p.Title, p.Text, p.Icons = Clean(p.Title, MaxWord), Clean(p.Text, MaxText), boundIcons(p.Icons)
		p.Arguments = p.Arguments[:min(len(p.Arguments), MaxPromptArguments)]
		for i := range p.Arguments {
			a := &p.Arguments[i]
			a.Name, a.Title, a.Text = Clean(a.Name, MaxToolName), Clean(a.Title, MaxWord), Clean(a.Text, MaxText)
		}
		return p.Name
	})
}

// keep is the entries of a list that have a name, each once, and as many as there may
// be. Bound makes an entry safe, and tells its name; empty if it cannot be used.
func keep[T any](m *Manifest, what string, all []T, bound func(*T) string) (kept []T) {
	seen, size := make(map[string]bool), 0
	for i := range all {
		name := bound(&all[i])
		data, err := json.Marshal(all[i])
		if size += len(data); name == "" || seen[name] || err != nil {
			continue
		}
		if len(kept) == MaxItems || size > MaxManifest {
			break
		}
		seen[name] = true
		kept = append(kept, all[i])
	}
	if n := len(all) - len(kept); n > 0 {
		m.note("%d of its %d %s cannot be used, are listed twice, or are too many", n, len(all), what)
	}
	return kept
}

// boundIcons keeps icons that are short and come from where a client would look.
func boundIcons(icons []Icon) (kept []Icon) {
	for _, icon := range icons {
		known := strings.HasPrefix(icon.Source, "https://") || strings.HasPrefix(icon.Source, "data:image/")
		if !known || len(icon.Source) > MaxIcon || Clean(icon.Source, MaxIcon) != icon.Source || len(kept) == MaxIcons {
			continue
		}
		icon.MIME, icon.Theme = Clean(icon.MIME, MaxWord), Clean(icon.Theme, MaxWord)
		icon.Sizes = slices.Clone(icon.Sizes[:min(len(icon.Sizes), MaxIcons)])
		for i, size := range icon.Sizes {
			icon.Sizes[i] = Clean(size, MaxWord)
		}
		kept = append(kept, icon)
	}
	return kept
}

// bound makes a regard safe; nil if it says nothing.
func (r *Annotations) bound() *Annotations {
	if r == nil {
		return nil
	}
	kept := &Annotations{Modified: Clean(r.Modified, MaxWord)}
	for _, who := range r.Audience {
		if (who == "user" || who == "assistant") && !slices.Contains(kept.Audience, who) {
			kept.Audience = append(kept.Audience, who)
		}
	}
	if p := r.Priority; p != nil && *p >= 0 && *p <= 1 {
		kept.Priority = p
	}
	if kept.Modified == "" && kept.Audience == nil && kept.Priority == nil {
		return nil
	}
	return kept
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
	t.Text, t.Title, t.Icons = Clean(t.Text, MaxText), Clean(t.Title, MaxWord), boundIcons(t.Icons)
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
