// Package overlay lays on a manifest what the device cannot say and others can:
// the grammar about its own methods, the owner about their device.
//
//	manifest as the device gave it
//	  + files that match its dialect      the grammar's own come first
//	  + files that match its Kind
//	  + files that match its ID
//	  ────────────────────────────────
//	  = laid manifest: every tool has an effect, a schema that clients can read
//	    and a Check, or a reason why it is in quarantine
//
// An overlay is data; what it says about a tool or a probe replaces what was said before,
// word by word. The Kind is taken before anything is laid on.
package overlay

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// File is one overlay: what to say about the tools of the devices that match, and about
// what they measure.
type File struct {
	// About is for whoever reads the file.
	About string          `json:"about,omitempty"`
	Match Match           `json:"match,omitzero"`
	Tools map[string]Tool `json:"tools"`
	// Probes are by the name of the probe.
	Polls map[string]Poll `json:"polls,omitempty"`
}

// Match tells which devices a File is about: all that it names must be so.
// Without any, it is about every device.
type Match struct {
	Protocol string `json:"protocol,omitempty"`
	// Kind is a Kind, or its first digits, twelve at least.
	Kind   ferrule.Kind `json:"kind,omitempty"`
	Device string       `json:"device,omitempty"`
}

// Tool is what a File says about one tool. What it leaves out stays as it was.
type Tool struct {
	About      string           `json:"about,omitempty"`
	Text       string           `json:"text,omitempty"`
	Effect     ferrule.Effect   `json:"effect,omitempty"`
	Idempotent *bool            `json:"idempotent,omitempty"`
	UserOnly   *bool            `json:"user_only,omitempty"`
	Deadline   ferrule.Duration `json:"deadline,omitempty"`
	// Cache is how long an answer is kept; zero is not at all.
	Cache *ferrule.Duration `json:"cache,omitempty"`
	// Input is a merge patch (RFC 7396) to the schema of the tool's arguments:
	// members are added or replaced, null removes one.
	Input json.RawMessage `json:"input,omitempty"`
	// Pins limits an argument to the numbers of some of the device's own pins.
	Pins map[string]Pins `json:"pins,omitempty"`
}

// Pins chooses pins of a device.
type Pins struct {
	// Types names the types that a pin may have; any if there are none.
	Types []string `json:"types,omitempty"`
	// Ability is what the device must keep about the pin, such as a buffer. It
	// is not asked for where the device tells of no abilities at all.
	Ability string `json:"ability,omitempty"`
}

// maxFile is the size of the largest overlay.
const maxFile = 1 << 20

// Parse reads an overlay as JSON. A member that is not known is an error.
func Parse(data []byte) (*File, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("an overlay of %d bytes; at most %d are possible", len(data), maxFile)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var f File
	if err := dec.Decode(&f); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("something follows the overlay")
	}
	return &f, f.check()
}

var kindPrefix = regexp.MustCompile(`^[0-9a-f]{12,64}$`)

func (f *File) check() error {
	if k := f.Match.Kind; k != "" && !kindPrefix.MatchString(string(k)) {
		return fmt.Errorf("match.kind: want 12 to 64 hexadecimal digits, got %q", k)
	}
	if id := f.Match.Device; id != "" {
		if err := ferrule.CheckID(id); err != nil {
			return fmt.Errorf("match.device: %w", err)
		}
	}
	for name, t := range f.Tools {
		if err := t.check(); err != nil {
			return fmt.Errorf("tools.%s.%w", name, err)
		}
	}
	for name, p := range f.Polls {
		if err := ferrule.CheckSignal(name); err != nil {
			return fmt.Errorf("probes: %w", err)
		}
		if err := p.check(); err != nil {
			return fmt.Errorf("probes.%s.%w", name, err)
		}
	}
	return nil
}

func (t Tool) check() error {
	switch t.Effect {
	case "", ferrule.Reads, ferrule.Changes, ferrule.Endangers:
	default:
		return fmt.Errorf("effect: want reads, changes or endangers, got %q", t.Effect)
	}
	if t.Deadline < 0 {
		return fmt.Errorf("deadline: %v is less than nothing", t.Deadline)
	}
	if c := t.Cache; c != nil && (*c < 0 || *c > ferrule.Duration(ferrule.MaxCache)) {
		return fmt.Errorf("cache: want from 0s to %v, got %v", ferrule.MaxCache, *c)
	}
	if t.Input != nil {
		if len(t.Input) > ferrule.MaxSchema {
			return fmt.Errorf("input: %d bytes; at most %d are possible", len(t.Input), ferrule.MaxSchema)
		}
		if !strings.HasPrefix(string(t.Input), "{") {
			return errors.New("input: want an object")
		}
	}
	for arg, p := range t.Pins {
		if len(p.Types) == 0 && p.Ability == "" {
			return fmt.Errorf("pins.%s: want types, or an ability", arg)
		}
	}
	return nil
}

// Set is all overlays of a gateway. It never changes.
type Set struct{ files []*File }

// NewSet orders overlays: those that match less come first, and are laid under
// those that match more; between equals the given order counts.
func NewSet(files ...*File) *Set {
	ordered := slices.Clone(files)
	slices.SortStableFunc(ordered, func(a, b *File) int { return cmp.Compare(a.Match.rank(), b.Match.rank()) })
	return &Set{ordered}
}

func (m Match) rank() int {
	switch {
	case m.Device != "":
		return 2
	case m.Kind != "":
		return 1
	}
	return 0
}

func (m Match) matches(dialect string, kind ferrule.Kind, device string) bool {
	return (m.Protocol == "" || m.Protocol == dialect) &&
		(m.Kind == "" || strings.HasPrefix(string(kind), string(m.Kind))) &&
		(m.Device == "" || m.Device == device)
}

// Names tells whether an overlay is about this one device. Others share what is
// laid for their Kind.
func (s *Set) MatchesDevice(device string) bool {
	return device != "" && slices.ContainsFunc(s.files, func(f *File) bool { return f.Match.Device == device })
}

// Misses tells of tools that an overlay for this device or its Kind speaks of, or has
// asked, and that the device does not have: somebody may have misspelt one.
func (s *Set) UnknownTools(dialect string, kind ferrule.Kind, device string, m *ferrule.Manifest) []string {
	var notes []string
	for _, f := range s.files {
		if f.Match.rank() == 0 || !f.Match.matches(dialect, kind, device) {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(f.Tools)) {
			if m.Tool(name) == nil {
				notes = append(notes, fmt.Sprintf("an overlay speaks of a tool %q, which it does not have", name))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(f.Polls)) {
			if tool := f.Polls[name].Tool; tool != "" && m.Tool(tool) == nil {
				notes = append(notes, fmt.Sprintf("an overlay has its probe %s ask a tool %q, which it does not have", name, tool))
			}
		}
	}
	return notes
}

// Lay returns a copy of m with everything laid on it that is about the device.
func (s *Set) Apply(dialect string, kind ferrule.Kind, device string, m *ferrule.Manifest) *ferrule.Manifest {
	laid := *m
	laid.Tools = slices.Clone(m.Tools)
	for i := range laid.Tools {
		t := &laid.Tools[i]
		var says []Tool
		for _, f := range s.files {
			if about, ok := f.Tools[t.Name]; ok && f.Match.matches(dialect, kind, device) {
				says = append(says, about)
			}
		}
		lay(t, says, m.Pins)
	}
	laid.Polls = s.probes(dialect, kind, device)
	return &laid
}
