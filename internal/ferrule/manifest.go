package ferrule

import (
	"encoding/json"
	"slices"
	"time"
)

// Manifest is what a device says of itself, without its identity. It is parsed
// once, bounded, never trusted, and hashable: its hash is the [Kind].
//
// A Manifest is either as the device gave it, or laid: with what the owner
// added to it. Both are shared between devices and read only once they are
// handed on.
type Manifest struct {
	Model        string `json:"model,omitempty"`
	Version      string `json:"version,omitempty"`
	Platform     string `json:"platform,omitempty"`
	Instructions string `json:"instructions,omitempty"`
	Tools        []Tool `json:"tools,omitempty"`
	Pins         []Pin  `json:"pins,omitempty"`
	// Resources are what can be read, templates among them.
	Resources []Resource `json:"resources,omitempty"`
	Prompts   []Prompt   `json:"prompts,omitempty"`
	// Acts names what can be asked of the device beside calling tools.
	Operations []Operation `json:"operations,omitempty"`
	Title      string      `json:"title,omitempty"`
	Icons      []Icon      `json:"icons,omitempty"`

	// Notes is what was noticed while the manifest was read: a list that came
	// incomplete, entries that were dropped. The device did not say it, so it
	// is no part of the Kind, and it is moved to the Device on admission.
	Notes []string `json:"notes,omitempty"`

	// Probes is what is to be measured beside, or otherwise than, what the device says.
	// It is set in a laid manifest, and no part of the Kind.
	Polls []Poll `json:"-"`
}

// Tool returns the tool of that name, or nil.
func (m *Manifest) Tool(name string) *Tool {
	for i := range m.Tools {
		if m.Tools[i].Name == name {
			return &m.Tools[i]
		}
	}
	return nil
}

// Can tells whether something can be asked of the device.
func (m *Manifest) Supports(act Operation) bool {
	return act == CallTool || slices.Contains(m.Operations, act)
}

// Resource is something that can be read.
type Resource struct {
	// URI is the device's own name for it, or, of a template, a pattern of such
	// names in the form of RFC 6570.
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

// Prompt is a text that a device has ready for models, with places to fill in.
type Prompt struct {
	Name      string           `json:"name"`
	Title     string           `json:"title,omitempty"`
	Text      string           `json:"text,omitempty"`
	Arguments []PromptArgument `json:"arguments,omitempty"`
	Icons     []Icon           `json:"icons,omitempty"`
}

// PromptArgument is one place to fill in.
type PromptArgument struct {
	Name     string `json:"name"`
	Title    string `json:"title,omitempty"`
	Text     string `json:"text,omitempty"`
	Required bool   `json:"required,omitempty"`
}

// Icon is a picture that something is shown with.
type Icon struct {
	Source string   `json:"source"`
	MIME   string   `json:"mime,omitempty"`
	Sizes  []string `json:"sizes,omitempty"`
	Theme  string   `json:"theme,omitempty"`
}

// Tool is one verb of a device.
type Tool struct {
	Name string `json:"name"`
	Text string `json:"text,omitempty"`
	// Title is a name for people to read.
	Title string `json:"title,omitempty"`
	Icons []Icon `json:"icons,omitempty"`
	// Input and Output are JSON Schemas; empty where none was given.
	Input  json.RawMessage `json:"input,omitempty"`
	Output json.RawMessage `json:"output,omitempty"`
	// Effect is empty where the device declares none; in a laid manifest it
	// never is.
	Effect     Effect `json:"effect,omitempty"`
	Idempotent bool   `json:"idempotent,omitempty"`
	// UserOnly marks a tool that a person may call and an agent may not.
	UserOnly bool `json:"user_only,omitempty"`
	// Poll is how often the device asks to be asked.
	Poll Duration `json:"poll,omitempty"`

	// What follows is not said by the device and is no part of the Kind.

	// Deadline bounds a call of this tool, where its owner said so.
	Deadline Duration `json:"deadline,omitempty"`
	// Cache is how long an answer is kept, where its owner said so: zero is not
	// at all, and nil is that nothing was said.
	Cache *Duration `json:"cache,omitempty"`
	// Quarantine is why the tool cannot be called; empty if it can.
	Quarantine string `json:"quarantine,omitempty"`
	// Whole is the schema that Input was made of, with what no client of every sort
	// reads; it is set in a laid manifest, and empty where Input says as much.
	FullInput json.RawMessage `json:"-"`
	// Check names everything that is wrong with a call's decoded arguments. It
	// is set in a laid manifest, and nil where nothing is known about them.
	Check func(args map[string]any) []string `json:"-"`
	// CheckAnswer does so with the device's answer, where it declares an Output.
	CheckOutput func(value json.RawMessage) []string `json:"-"`
}

// MaxCache is the longest that an answer is kept.
const MaxCache = time.Hour

// Repeatable tells whether a call of t may be sent a second time.
func (t *Tool) Repeatable() bool { return t.Effect == Reads || t.Idempotent }

// Effect is what calling a tool does to the world.
type Effect string

// The effects. A tool without one is taken to change the world.
const (
	Reads     Effect = "reads"
	Changes   Effect = "changes"
	Endangers Effect = "endangers"
)

// Pin is one connection of a board to its surroundings.
type Pin struct {
	Number int    `json:"number"`
	Name   string `json:"name,omitempty"`
	// Type is what the pin is for, in the device's own words, such as
	// digital_output.
	Type string `json:"type,omitempty"`
	Text string `json:"text,omitempty"`
	// Abilities names what the device keeps about the pin, such as summary or
	// buffer.
	Abilities []string `json:"abilities,omitempty"`
	// Sampling tells how the pin is sampled; nil if it is not.
	Sampling *Sampling `json:"sampling,omitempty"`
}

// Sampling is how often a device samples a pin and how many samples it keeps.
type Sampling struct {
	Interval Duration `json:"interval"`
	Size     int      `json:"size"`
}
