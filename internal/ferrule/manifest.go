package ferrule

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Manifest is what a device says about itself, without its identity. It is
// parsed once, bounded, untrusted and hashable: its hash is the [Kind].
//
// A Manifest is either original, as the device gave it, or effective, with all
// overlays applied. Both are shared between devices; once published they are
// read only.
type Manifest struct {
	Model        string `json:"model,omitempty"`
	Version      string `json:"version,omitempty"`
	Platform     string `json:"platform,omitempty"`
	Instructions string `json:"instructions,omitempty"`
	Tools        []Tool `json:"tools,omitempty"`
	Pins         []Pin  `json:"pins,omitempty"`
	// Resources includes resource templates.
	Resources []Resource `json:"resources,omitempty"`
	Prompts   []Prompt   `json:"prompts,omitempty"`
	// Operations lists what the device supports in addition to calling tools.
	Operations []Operation `json:"operations,omitempty"`
	Title      string      `json:"title,omitempty"`
	Icons      []Icon      `json:"icons,omitempty"`

	// PartOf is set if this is not all that the device says about itself: it is the part
	// that the owner accepted as that Kind, and overlays for that Kind still apply.
	// ListedOnly reports that other resources than those in the list are new or changed
	// and cannot be read. No device can set these fields.
	PartOf     Kind `json:"part_of,omitempty"`
	ListedOnly bool `json:"listed_only,omitempty"`

	// Notes are problems found while reading the manifest: an incomplete list,
	// dropped entries. They are not part of the Kind. On admission they move to
	// the Device.
	Notes []string `json:"notes,omitempty"`

	// Polls adds to or replaces the polls that follow from the manifest. It is
	// set in an effective manifest and not part of the Kind.
	Polls []Poll `json:"-"`
	// Questions is what the device may ask its callers. It is set in an effective
	// manifest and not part of the Kind.
	Questions QuestionLimits `json:"-"`
	// Views are the views of the device that its owner allows, by URI. It is set in an
	// effective manifest and not part of the Kind.
	Views map[string]AllowedView `json:"-"`
	// Stop is what the owner wants to be called when the device is stopped; nil if
	// nothing. It is set in an effective manifest and not part of the Kind.
	Stop *Action `json:"-"`
	// Entities are what the owner wants of the device in Home Assistant, by key. It is set
	// in an effective manifest and not part of the Kind.
	Entities map[string]Entity `json:"-"`
}

// Tool returns the tool with a name, or nil.
func (m *Manifest) Tool(name string) *Tool {
	for i := range m.Tools {
		if m.Tools[i].Name == name {
			return &m.Tools[i]
		}
	}
	return nil
}

// Supports reports whether the device supports an operation.
func (m *Manifest) Supports(op Operation) bool {
	return op == CallTool || slices.Contains(m.Operations, op)
}

// Resource is a document that can be read from a device.
type Resource struct {
	// URI is the device's own name for it. For a template it is a pattern in the
	// form of RFC 6570.
	URI         string       `json:"uri"`
	Template    bool         `json:"template,omitempty"`
	Name        string       `json:"name,omitempty"`
	Title       string       `json:"title,omitempty"`
	Text        string       `json:"text,omitempty"`
	MIME        string       `json:"mime,omitempty"`
	Size        int64        `json:"size,omitempty"`
	Annotations *Annotations `json:"annotations,omitempty"`
	Icons       []Icon       `json:"icons,omitempty"`
}

// Prompt is a text for models, with arguments to fill in.
type Prompt struct {
	Name      string           `json:"name"`
	Title     string           `json:"title,omitempty"`
	Text      string           `json:"text,omitempty"`
	Arguments []PromptArgument `json:"arguments,omitempty"`
	Icons     []Icon           `json:"icons,omitempty"`
}

// PromptArgument is an argument of a Prompt. Its value is a string.
type PromptArgument struct {
	Name     string `json:"name"`
	Title    string `json:"title,omitempty"`
	Text     string `json:"text,omitempty"`
	Required bool   `json:"required,omitempty"`
}

// Icon is an image for display.
type Icon struct {
	Source string   `json:"source"`
	MIME   string   `json:"mime,omitempty"`
	Sizes  []string `json:"sizes,omitempty"`
	Theme  string   `json:"theme,omitempty"`
}

// Pin is a connection of a board to its surroundings.
type Pin struct {
	Number int    `json:"number"`
	Name   string `json:"name,omitempty"`
	// Type is the device's own word for the use of the pin, for example
	// digital_output.
	Type string `json:"type,omitempty"`
	Text string `json:"text,omitempty"`
	// Abilities lists what the device keeps about the pin, for example summary or
	// buffer.
	Abilities []string `json:"abilities,omitempty"`
	// Sampling is nil if the device does not sample the pin.
	Sampling *Sampling `json:"sampling,omitempty"`
}

// Sampling is how often a device samples a pin and how many samples it keeps.
type Sampling struct {
	Interval Duration `json:"interval"`
	Size     int      `json:"size"`
}

// The limits of a Manifest. Real boards stay far below them.
const (
	MaxManifest        = 1 << 20 // bytes of names, texts and schemas together
	MaxTools           = 1024
	MaxPins            = 1024
	MaxAbilities       = 16 // of a pin
	MaxNotes           = 16
	MaxToolName        = 128
	MaxWord            = 128 // bytes of a short text: a model, a version, a pin's name
	MaxText            = 4096
	MaxSchema          = 64 << 10
	MaxItems           = 1024 // resources; prompts
	MaxURI             = 1024
	MaxIcons           = 4
	MaxIcon            = 16 << 10 // bytes of an icon's source
	MaxPromptArguments = 32
)

// Bound makes an untrusted manifest safe to store and to show. It cleans and
// cuts texts, drops surplus entries with a note, and quarantines unusable tools.
// It never rejects the device.
func (m *Manifest) Bound() {
	m.Model, m.Version, m.Platform = Clean(m.Model, MaxWord), Clean(m.Version, MaxWord), Clean(m.Platform, MaxWord)
	m.Instructions, m.Title = Clean(m.Instructions, MaxText), Clean(m.Title, MaxWord)
	m.Icons, m.PartOf = boundIcons(m.Icons), Kind(Clean(string(m.PartOf), MaxWord))
	m.boundTools()
	m.boundPins()
	m.boundResources()
	m.boundPrompts()
	m.Operations = slices.DeleteFunc(m.Operations, func(op Operation) bool { return !Visible(string(op)) })
	m.Operations = slices.Compact(slices.Sorted(slices.Values(m.Operations)))
	if n := len(m.Notes); n > MaxNotes {
		m.Notes = append(m.Notes[:MaxNotes-1:MaxNotes-1], fmt.Sprintf("%d more notes", n-MaxNotes+1))
	}
	for i, note := range m.Notes {
		m.Notes[i] = Clean(note, MaxText)
	}
}

func (m *Manifest) boundTools() {
	if n := len(m.Tools); n > MaxTools {
		m.note("lists %d tools; only the first %d are used", n, MaxTools)
		m.Tools = m.Tools[:MaxTools]
	}
	seen := make(map[string]bool, len(m.Tools))
	size := 0
	for i := range m.Tools {
		t := &m.Tools[i]
		t.bound()
		if seen[t.Name] {
			t.quarantine("duplicate name")
		}
		seen[t.Name] = true
		size += len(t.Name) + len(t.Text) + len(t.Input) + len(t.Output)
		if size > MaxManifest {
			m.note("tools exceed %d bytes; only the first %d of %d are used", MaxManifest, i, len(m.Tools))
			m.Tools = m.Tools[:i]
			return
		}
	}
}

func (m *Manifest) boundPins() {
	if n := len(m.Pins); n > MaxPins {
		m.note("lists %d pins; only the first %d are used", n, MaxPins)
		m.Pins = m.Pins[:MaxPins]
	}
	for i := range m.Pins {
		p := &m.Pins[i]
		p.Name, p.Type, p.Text = Clean(p.Name, MaxWord), Clean(p.Type, MaxWord), Clean(p.Text, MaxText)
		p.Abilities = slices.Clone(p.Abilities[:min(len(p.Abilities), MaxAbilities)])
		for i, ability := range p.Abilities {
			p.Abilities[i] = Clean(ability, MaxWord)
		}
	}
}

// boundResources drops resources with an unusable or duplicate URI.
func (m *Manifest) boundResources() {
	m.Resources = boundList(m, "resources", m.Resources, func(r *Resource) string {
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

// boundPrompts drops prompts with an unusable or duplicate name.
func (m *Manifest) boundPrompts() {
	m.Prompts = boundList(m, "prompts", m.Prompts, func(p *Prompt) string {
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

// boundList returns the usable entries of a list, without duplicates and within
// the limits. The function bound makes an entry safe and returns its name, or ""
// if the entry is unusable.
func boundList[T any](m *Manifest, what string, all []T, bound func(*T) string) (kept []T) {
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
		m.note("%d of %d %s dropped: unusable, duplicate or over the limit", n, len(all), what)
	}
	return kept
}

// boundIcons keeps small icons from https and data URLs; clients load no others.
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

// bound returns safe annotations, or nil if nothing is left.
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
		t.quarantine("no name")
	case len(t.Name) > MaxToolName:
		t.quarantine("name has %d bytes; limit is %d", len(t.Name), MaxToolName)
	case name != t.Name:
		t.quarantine("name contains unprintable characters")
	}
	t.Name, t.Quarantine = name, Clean(t.Quarantine, MaxText)
	t.Text, t.Title, t.Icons = Clean(t.Text, MaxText), Clean(t.Title, MaxWord), boundIcons(t.Icons)
	t.Class, t.View = Clean(t.Class, MaxWord), t.View.bounded()
	if t.Task != TaskSlow && t.Task != TaskOnly {
		t.Task = ""
	}
	for i, name := range t.Secrets {
		t.Secrets[i] = Clean(name, MaxToolName)
	}
	t.boundSchemas()
	switch t.Effect {
	case "", Reads, Changes, Endangers:
	default:
		t.Effect = ""
	}
	if t.Poll < 0 {
		t.Poll = 0
	}
}

// boundSchemas limits the schemas and normalizes them. Devices of one Kind share them,
// so they must not differ in ways that the Kind does not show, such as a number with
// a thousand digits.
func (t *Tool) boundSchemas() {
	for _, schema := range []*json.RawMessage{&t.Input, &t.Output} {
		const escaped = 6 // encoding/json writes < in six bytes
		n := len(*schema)
		if n > 0 && n <= escaped*MaxSchema {
			normal, err := normalJSON(*schema)
			if err != nil {
				t.quarantine("a schema is not JSON")
			}
			*schema, n = normal, len(normal)
		}
		if n > MaxSchema {
			t.quarantine("schema has %d bytes; limit is %d", n, MaxSchema)
			t.Input, t.Output = nil, nil
			return
		}
	}
}

// LacksPin reports whether the only reason for the quarantine is that the device has no pin
// for the tool. Firmware lists its built-in tools in any case, so nothing is wrong then.
func (t *Tool) LacksPin() bool { return strings.HasPrefix(t.Quarantine, "the device has no pin ") }

// quarantine sets the reason, unless one is set.
func (t *Tool) quarantine(format string, args ...any) {
	if t.Quarantine == "" {
		t.Quarantine = fmt.Sprintf(format, args...)
	}
}
