package hass

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/entity"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The limits of a device.
const (
	maxEntities = 1024
	maxStates   = 1024
	maxNotes    = 200 // before the manifest bounds them
	maxNote     = 512 // bytes
)

// description is a device as its configs describe it.
type description struct {
	manifest *ferrule.Manifest
	// tools are sorted by name, states by topic.
	tools  []tool
	states []state
	// publisher is the software that speaks for the device, as it says itself.
	publisher string
}

// tool is what a session needs for calls of a tool.
type tool struct {
	name    string
	entity  int // that its states belong to
	refusal string
	command func(args map[string]any) (entity.Command, error)
}

// part is one entity of a device.
type part struct {
	*discovery.Entity
	entity.Described
	order string // tie-breaker that does not depend on topics
}

// describe reads an offer. It never fails: what cannot be used becomes a note.
func describe(o *offer) *description {
	d := &description{manifest: &ferrule.Manifest{}}
	parts := d.parse(o)
	slices.SortStableFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.Component, b.Component), cmp.Compare(a.ObjectID, b.ObjectID), cmp.Compare(a.order, b.order), cmp.Compare(a.NodeID, b.NodeID))
	})
	d.addStates(parts)
	d.addTools(parts)
	slices.SortFunc(d.tools, func(a, b tool) int { return cmp.Compare(a.name, b.name) })
	slices.SortStableFunc(d.states, func(a, b state) int { return cmp.Compare(a.Topic, b.Topic) })
	return d
}

// parse returns the entities of an offer, and sets what the manifest says about the device.
func (d *description) parse(o *offer) (parts []part) {
	var about about
configs:
	for _, c := range o.Configs {
		runtime.Gosched() // calls of other devices are more urgent
		m, err := discovery.Parse(c.topic(), []byte(c.Payload))
		if err != nil {
			d.note("%s %s: %v", c.Component, c.Object, err)
			continue
		}
		about.add(m)
		for _, note := range m.Notes {
			d.note("%s", note)
		}
		for i := range m.Entities {
			e := &m.Entities[i]
			switch {
			case len(parts) == maxEntities:
				d.note("more than %d entities; the others are not used", maxEntities)
				break configs
			case removed(e), !o.Disabled && !e.Options.Bool("enabled_by_default", true):
			default:
				parts = append(parts, d.newPart(e, o))
			}
		}
	}
	about.describe(d)
	return parts
}

// removed reports whether an entity has nothing but its platform, which removes it.
func removed(e *discovery.Entity) bool {
	for key := range e.Options {
		if key != "platform" {
			return false
		}
	}
	return true
}

func (d *description) newPart(e *discovery.Entity, o *offer) part {
	p := part{Entity: e, Described: entity.Describe(e)}
	for _, note := range p.Notes {
		d.note("%s", note)
	}
	for i := range p.Tools {
		t := &p.Tools[i]
		t.UserOnly = t.UserOnly && !o.Settings
		if reason := quarantine(*t, o); reason != "" && t.Quarantine == "" {
			t.Quarantine = reason
		}
		data, _ := json.Marshal(t.Tool) // only breaks ties
		p.order += string(data)
	}
	return p
}

// note adds a note to the manifest.
func (d *description) note(format string, args ...any) {
	if len(d.manifest.Notes) < maxNotes {
		d.manifest.Notes = append(d.manifest.Notes, ferrule.Clean(fmt.Sprintf(format, args...), maxNote))
	}
}

// about is what the configs of a device say about it: the first that says something counts.
type about struct {
	maker, model, modelID, version, publisher string
}

func (a *about) add(m *discovery.Message) {
	first := func(to *string, text string) {
		if *to == "" {
			*to = ferrule.Clean(text, ferrule.MaxWord)
		}
	}
	first(&a.maker, m.Device.Manufacturer)
	first(&a.model, m.Device.Model)
	first(&a.modelID, m.Device.ModelID)
	first(&a.version, m.Device.Version)
	first(&a.publisher, m.Origin.Name)
}

// describe puts it into the manifest, without the name: that is of one device, and the
// manifest of all devices of a kind.
func (a *about) describe(d *description) {
	d.publisher = a.publisher
	d.manifest.Model, d.manifest.Version, d.manifest.Platform = cmp.Or(a.modelID, a.model), a.version, a.publisher
	text := strings.TrimSpace(a.maker + " " + a.model)
	if a.publisher != "" {
		text = strings.TrimSpace(text + " via " + a.publisher)
	}
	d.manifest.Instructions = text
}

// addStates adds the states of all entities under unique names.
func (d *description) addStates(parts []part) {
	var names, components []string
	for i, p := range parts {
		for _, s := range p.States {
			if len(d.states) == maxStates {
				d.note("more than %d states; the others are not used", maxStates)
				break
			}
			d.states = append(d.states, state{State: s, local: s.Name, entity: i})
			names, components = append(names, cmp.Or(ferrule.SignalName(s.Name), p.Component)), append(components, p.Component)
		}
	}
	topics := make(map[string]string)
	for i, name := range unique(names, components, ferrule.MaxSignal) {
		s := &d.states[i]
		if name != s.local { // else they share their memory
			s.Name = name
		}
		if topic, ok := topics[s.Topic]; ok {
			s.Topic = topic
		} else {
			topics[s.Topic] = s.Topic
		}
	}
	d.states = slices.Clone(d.states) // without spare capacity
}

// addTools adds the tools of all entities under unique names, and the one that reads.
func (d *description) addTools(parts []part) {
	var names, components []string
	for _, p := range parts {
		for _, t := range p.Tools {
			names, components = append(names, t.Name), append(components, p.Component)
		}
	}
	names = unique(names, components, ferrule.MaxToolName, toolState)
	d.manifest.Tools, d.tools = make([]ferrule.Tool, 0, len(names)+1), make([]tool, 0, len(names))
	for i, p := range parts {
		for _, t := range p.Tools {
			t.Name, names = names[0], names[1:]
			d.manifest.Tools = append(d.manifest.Tools, t.Tool)
			d.tools = append(d.tools, tool{name: t.Name, entity: i, refusal: t.Quarantine, command: t.Command})
		}
	}
	d.manifest.Tools = append(d.manifest.Tools, d.stateTool())
}

// unique returns names that are all different. Names that occur twice, or are reserved, get
// the component as prefix, all of them: then a name never changes its meaning when an entity
// is added. If that is not enough, numbers follow.
func unique(names, components []string, limit int, reserved ...string) []string {
	names = slices.Clone(names)
	count := make(map[string]int, len(names))
	for i, name := range names {
		names[i] = name[:min(len(name), limit)]
		count[names[i]]++
	}
	for _, name := range reserved {
		count[name] += 2
	}
	out, taken := slices.Clone(names), make(map[string]bool, len(names))
	for _, name := range reserved {
		taken[name] = true
	}
	for _, name := range names { // those that keep their names come first
		taken[name] = taken[name] || count[name] == 1
	}
	for i, name := range names {
		if count[name] == 1 {
			continue
		}
		base := components[i] + "_" + name
		out[i] = base[:min(len(base), limit)]
		for n := 2; taken[out[i]]; n++ {
			suffix := fmt.Sprintf("_%d", n)
			out[i] = base[:min(len(base), limit-len(suffix))] + suffix
		}
		taken[out[i]] = true
	}
	return out
}

// topics returns all topics of states, each once.
func (d *description) topics() (all []string) {
	for _, s := range d.states {
		if n := len(all); n == 0 || all[n-1] != s.Topic {
			all = append(all, s.Topic)
		}
	}
	return all
}
