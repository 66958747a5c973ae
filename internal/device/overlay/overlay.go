// Package overlay adds to a manifest what the device cannot say: a protocol
// describes its own methods, an owner describes their device.
//
//	manifest as the device gave it
//	  + files that match its protocol     built-in ones first
//	  + files that match its Kind
//	  + files that match its ID
//	  --------------------------------
//	  = effective manifest: every tool has an effect, a schema that all clients
//	    understand and a Check, or a reason for its quarantine
//
// An overlay is data. Each field that it sets for a tool or a poll replaces the
// field of the layer below. The Kind is computed before overlays are applied.
//
// Computing an effective manifest is slow. A [Cache] does it once for each Kind.
package overlay

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// File is one overlay: changes to the tools and polls of the devices that match.
type File struct {
	// About is a comment.
	About string          `json:"about,omitempty"`
	Match Match           `json:"match,omitzero"`
	Tools map[string]Tool `json:"tools"`
	// Classes changes all tools of a class. Its keys are classes, in which * stands for one
	// part: cover.*.open. Keys with fewer * take precedence, and Tools before all of them.
	Classes map[string]Tool `json:"classes,omitempty"`
	// Polls is keyed by the name of the poll.
	Polls map[string]Poll `json:"polls,omitempty"`
	// Questions is what the devices may ask their callers.
	Questions *Questions `json:"questions,omitempty"`
	// Views are the devices' own views that agents get beside those of other devices, by
	// URI.
	Views map[string]ferrule.AllowedView `json:"views,omitempty"`
	// Stop is what is called when the devices are stopped.
	Stop *ferrule.Action `json:"stop,omitempty"`
	// Entities are how the devices appear in Home Assistant, by key: that of a tool or a
	// signal, or a new one.
	Entities map[string]ferrule.Entity `json:"entities,omitempty"`
}

// Match selects the devices that a File applies to. All fields that are set must
// match. An empty Match selects every device.
type Match struct {
	Protocol string `json:"protocol,omitempty"`
	// Kind is a Kind or a prefix of one, at least twelve digits.
	Kind   ferrule.Kind `json:"kind,omitempty"`
	Device string       `json:"device,omitempty"`
}

// Tool changes one tool. Fields that are not set stay as they are.
type Tool struct {
	About      string           `json:"about,omitempty"`
	Text       string           `json:"text,omitempty"`
	Effect     ferrule.Effect   `json:"effect,omitempty"`
	Idempotent *bool            `json:"idempotent,omitempty"`
	UserOnly   *bool            `json:"user_only,omitempty"`
	Deadline   ferrule.Duration `json:"deadline,omitempty"`
	// Task is slow or only; see ferrule.TaskMode.
	Task ferrule.TaskMode `json:"task,omitempty"`
	// Cache is how long an answer is cached; zero disables the cache.
	Cache *ferrule.Duration `json:"cache,omitempty"`
	// Input is a merge patch (RFC 7396) for the schema of the tool's arguments:
	// it adds or replaces members; null removes one.
	Input json.RawMessage `json:"input,omitempty"`
	// Pins limits an argument to the numbers of some of the device's pins.
	Pins map[string]Pins `json:"pins,omitempty"`
	// Limits and Lease bound what calls do to the world.
	Limits *Limits        `json:"limits,omitempty"`
	Lease  *ferrule.Lease `json:"lease,omitempty"`
	// Job says that the tool only begins some work.
	Job *Job `json:"job,omitempty"`
}

// Pins selects pins of a device.
type Pins struct {
	// Types lists the allowed types; empty allows any.
	Types []string `json:"types,omitempty"`
	// Ability is what the device must keep about the pin, for example buffer. It
	// is ignored if the device lists no abilities at all.
	Ability string `json:"ability,omitempty"`
}

// maxFile is the maximum size of an overlay in bytes.
const maxFile = 1 << 20

// Parse reads an overlay as JSON. An unknown member is an error.
func Parse(data []byte) (*File, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("overlay has %d bytes; limit is %d", len(data), maxFile)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	dec.UseNumber()
	var f File
	var wrong *json.UnmarshalTypeError
	switch err := dec.Decode(&f); {
	case errors.As(err, &wrong):
		return nil, err
	case err != nil:
		return nil, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("unexpected data after the overlay")
	}
	return &f, f.check()
}

// Error is an error in one part of an overlay.
type Error struct {
	// Path leads to the part, for example tools, gpio_write, effect.
	Path []string
	Err  error
}

func (e *Error) Error() string { return strings.Join(e.Path, ".") + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// errorIn returns the error of a part. The error begins with the key in it.
func errorIn(err error, path ...string) error {
	key, text, _ := strings.Cut(err.Error(), ": ")
	return &Error{append(path, strings.Split(key, ".")...), errors.New(text)}
}

var kindPrefix = regexp.MustCompile(`^[0-9a-f]{12,64}$`)

func (f *File) check() error {
	if k := f.Match.Kind; k != "" && !kindPrefix.MatchString(string(k)) {
		return fmt.Errorf("match.kind: must be 12 to 64 hexadecimal digits, got %q", k)
	}
	if id := f.Match.Device; id != "" {
		if err := ferrule.CheckID(id); err != nil {
			return fmt.Errorf("match.device: %w", err)
		}
	}
	for name, t := range f.Tools {
		if err := t.check(); err != nil {
			return errorIn(err, "tools", name)
		}
	}
	if err := f.checkClasses(); err != nil {
		return err
	}
	for name, p := range f.Polls {
		if err := ferrule.CheckSignal(name); err != nil {
			return fmt.Errorf("polls: %w", err)
		}
		if err := p.check(); err != nil {
			return errorIn(err, "polls", name)
		}
	}
	if err := f.Questions.check(); err != nil {
		return fmt.Errorf("questions.%w", err)
	}
	if err := f.checkViews(); err != nil {
		return err
	}
	if f.Stop != nil {
		if err := checkAction(*f.Stop); err != nil {
			return errorIn(err, "stop")
		}
	}
	return f.checkEntities()
}

// checkAction checks what can be checked without the device.
func checkAction(a ferrule.Action) error {
	if a.Tool == "" || a.Tool != ferrule.Clean(a.Tool, ferrule.MaxToolName) {
		return fmt.Errorf("tool: must be a printable name of 1 to %d bytes, got %q", ferrule.MaxToolName, ferrule.Clean(a.Tool, ferrule.MaxWord))
	}
	return checkArgs(a.Args)
}

// checkArgs checks the arguments of a configured call.
func checkArgs(args json.RawMessage) error {
	switch {
	case args == nil:
	case len(args) > maxArgs:
		return fmt.Errorf("args: has %d bytes; limit is %d", len(args), maxArgs)
	case !strings.HasPrefix(string(args), "{"):
		return errors.New("args: must be an object")
	}
	return nil
}

func (t Tool) check() error {
	switch t.Effect {
	case "", ferrule.Reads, ferrule.Changes, ferrule.Endangers:
	default:
		return fmt.Errorf("effect: must be reads, changes or endangers, got %q", t.Effect)
	}
	if t.Task != "" && t.Task != ferrule.TaskSlow && t.Task != ferrule.TaskOnly {
		return fmt.Errorf("task: must be %s or %s, got %q", ferrule.TaskSlow, ferrule.TaskOnly, t.Task)
	}
	if t.Deadline < 0 {
		return fmt.Errorf("deadline: must not be negative, got %v", t.Deadline)
	}
	if c := t.Cache; c != nil && (*c < 0 || *c > ferrule.Duration(ferrule.MaxCache)) {
		return fmt.Errorf("cache: must be from 0s to %v, got %v", ferrule.MaxCache, *c)
	}
	if t.Input != nil {
		if len(t.Input) > ferrule.MaxSchema {
			return fmt.Errorf("input: has %d bytes; limit is %d", len(t.Input), ferrule.MaxSchema)
		}
		if !strings.HasPrefix(string(t.Input), "{") {
			return errors.New("input: must be an object")
		}
	}
	for arg, p := range t.Pins {
		if len(p.Types) == 0 && p.Ability == "" {
			return fmt.Errorf("pins.%s: must have types or an ability", arg)
		}
	}
	if err := t.Limits.check(); err != nil {
		return err
	}
	if err := checkLease(t.Lease); err != nil {
		return err
	}
	return t.Job.check()
}

// Set holds all overlays of a gateway. It is immutable.
type Set struct{ files []*File }

// NewSet returns a Set. Files with a more specific Match take precedence; among
// equals, later files do.
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

// subject is what a Match is compared with.
type subject struct {
	protocol string
	kind     ferrule.Kind
	// partOf is the accepted Kind, if kind is a part of it: a device must not shed an
	// overlay by a change of its manifest.
	partOf ferrule.Kind
	device string
}

func (m Match) matches(s subject) bool {
	ofKind := func(kind ferrule.Kind) bool { return strings.HasPrefix(string(kind), string(m.Kind)) }
	return (m.Protocol == "" || m.Protocol == s.protocol) &&
		(m.Kind == "" || ofKind(s.kind) || ofKind(s.partOf)) &&
		(m.Device == "" || m.Device == s.device)
}

// equalFor reports whether two sets have the same overlays for a device.
func (s *Set) equalFor(other *Set, of subject) bool {
	matching := func(files []*File) []*File {
		return slices.DeleteFunc(slices.Clone(files), func(f *File) bool { return !f.Match.matches(of) })
	}
	return slices.EqualFunc(matching(s.files), matching(other.files), func(a, b *File) bool { return a == b || reflect.DeepEqual(a, b) })
}

// MatchesDevice reports whether an overlay is for this device only. All other
// devices share the effective manifest of their Kind.
func (s *Set) MatchesDevice(device string) bool {
	return device != "" && slices.ContainsFunc(s.files, func(f *File) bool { return f.Match.Device == device })
}

// UnknownTools returns a note for each tool that an overlay for this device or its
// Kind names and that the device does not have: the name may be misspelled. It also returns
// one if the device cannot be stopped because the tool for that is in quarantine.
func (s *Set) UnknownTools(protocol string, kind ferrule.Kind, device string, m *ferrule.Manifest) []string {
	var notes []string
	of := subject{protocol, kind, m.PartOf, device}
	for _, f := range s.files {
		if f.Match.rank() == 0 || !f.Match.matches(of) {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(f.Tools)) {
			if m.Tool(name) == nil {
				notes = append(notes, fmt.Sprintf("an overlay names the tool %q, which the device does not have", name))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(f.Polls)) {
			if tool := f.Polls[name].Tool; tool != "" && m.Tool(tool) == nil {
				notes = append(notes, fmt.Sprintf("poll %s of an overlay uses the tool %q, which the device does not have", name, tool))
			}
		}
		if f.Stop != nil {
			notes = append(notes, stopNotes(f.Stop, m)...)
		}
		notes = append(notes, f.entityNotes(m)...)
	}
	if stop := s.stop(of); stop != nil {
		if tool := m.Tool(stop.Tool); tool != nil && tool.Quarantine != "" {
			notes = append(notes, fmt.Sprintf("stop of an overlay uses the tool %q, which cannot be called: %s", stop.Tool, tool.Quarantine))
		}
	}
	return notes
}

// Apply returns a copy of m with all overlays for the device applied.
func (s *Set) Apply(protocol string, kind ferrule.Kind, device string, m *ferrule.Manifest) *ferrule.Manifest {
	of := subject{protocol, kind, m.PartOf, device}
	effective := *m
	effective.Tools = slices.Clone(m.Tools)
	for i := range effective.Tools {
		t := &effective.Tools[i]
		var patches []Tool
		for _, f := range s.files {
			if f.Match.matches(of) {
				patches = append(patches, f.patches(t)...)
			}
		}
		apply(t, patches, m.Pins)
		applyBounds(t, patches)
		applyJob(t, patches)
	}
	checkBounds(&effective)
	checkJobs(&effective)
	effective.Polls = s.polls(of)
	effective.Questions = s.questions(of)
	effective.Views = s.views(of)
	effective.Stop = s.stop(of)
	effective.Entities = s.entities(of)
	return &effective
}

// stop returns what the most specific of the matching files wants to be called when the
// device is stopped.
func (s *Set) stop(of subject) (action *ferrule.Action) {
	for _, f := range s.files {
		if f.Stop != nil && f.Match.matches(of) {
			action = f.Stop
		}
	}
	return action
}

// stopNotes says why a device cannot do what an overlay wants when it is stopped.
func stopNotes(stop *ferrule.Action, m *ferrule.Manifest) []string {
	tool := m.Tool(stop.Tool)
	if tool == nil {
		return []string{fmt.Sprintf("stop of an overlay uses the tool %q, which the device does not have", stop.Tool)}
	}
	if tool.Check == nil {
		return nil
	}
	args := map[string]any{}
	dec := json.NewDecoder(bytes.NewReader(stop.Args))
	dec.UseNumber()
	if len(stop.Args) > 0 && dec.Decode(&args) != nil {
		return []string{"stop of an overlay has arguments that are not JSON"}
	}
	if wrong := tool.Check(args); len(wrong) > 0 {
		return []string{fmt.Sprintf("stop of an overlay has invalid arguments for %s: %s", stop.Tool, strings.Join(wrong, "; "))}
	}
	return nil
}
