package overlay

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// checkEntities checks what can be checked without the device.
func (f *File) checkEntities() error {
	if n := len(f.Entities); n > ferrule.MaxEntities {
		return fmt.Errorf("entities: has %d entries; limit is %d", n, ferrule.MaxEntities)
	}
	for _, key := range slices.Sorted(maps.Keys(f.Entities)) {
		if err := ferrule.CheckSignal(key); err != nil {
			return fmt.Errorf("entities: %w", err)
		}
		if err := checkEntity(f.Entities[key]); err != nil {
			return errorIn(err, "entities", key)
		}
	}
	return nil
}

func checkEntity(e ferrule.Entity) error {
	known, ok := ferrule.EntityCommands(e.Component)
	switch {
	case !ok:
		return fmt.Errorf("component: must be a component that Ferrule publishes, such as switch, lock, cover, valve or none, got %q", ferrule.Clean(e.Component, ferrule.MaxWord))
	case e.Name != ferrule.Clean(e.Name, ferrule.MaxWord):
		return errors.New("name: must be a short line of plain text")
	case e.Class != ferrule.SignalName(e.Class):
		return fmt.Errorf("class: must be a device class of Home Assistant, got %q", ferrule.Clean(e.Class, ferrule.MaxWord))
	case e.Signal != "" && ferrule.CheckSignal(e.Signal) != nil:
		return fmt.Errorf("signal: %w", ferrule.CheckSignal(e.Signal))
	case e.Signal == "" && strings.HasSuffix(e.Component, "sensor"):
		return fmt.Errorf("signal: must be set for a %s", e.Component)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Commands)) {
		c := e.Commands[name]
		if !slices.Contains(known, name) {
			return fmt.Errorf("commands: a %s can have %s, got %q", e.Component, strings.Join(known, ", "), ferrule.Clean(name, ferrule.MaxWord))
		}
		if err := checkAction(c.Action); err != nil {
			return fmt.Errorf("commands.%s.%w", name, err)
		}
		if (name == "set") != (c.Argument != "") || c.Argument != ferrule.Clean(c.Argument, ferrule.MaxToolName) {
			return fmt.Errorf("commands.%s.argument: must be the name of an argument for set, and only for set", name)
		}
	}
	_, moves := e.Commands["set"]
	for _, name := range known[:min(len(known), 2)] {
		if _, given := e.Commands[name]; !given && !moves {
			return fmt.Errorf("commands: a %s must have %s", e.Component, name)
		}
	}
	return nil
}

// entities returns how a device appears in Home Assistant. More specific files replace
// what others say about a key.
func (s *Set) entities(of subject) (all map[string]ferrule.Entity) {
	for _, f := range s.files {
		if len(f.Entities) == 0 || !f.Match.matches(of) {
			continue
		}
		if all == nil {
			all = make(map[string]ferrule.Entity)
		}
		maps.Copy(all, f.Entities)
	}
	return all
}

// entityNotes returns a note for each tool that an entity uses and the device does not have.
func (f *File) entityNotes(m *ferrule.Manifest) (notes []string) {
	for _, key := range slices.Sorted(maps.Keys(f.Entities)) {
		commands := f.Entities[key].Commands
		for _, name := range slices.Sorted(maps.Keys(commands)) {
			if tool := commands[name].Tool; m.Tool(tool) == nil {
				notes = append(notes, fmt.Sprintf("entity %s of an overlay uses the tool %q, which the device does not have", key, tool))
			}
		}
	}
	return notes
}
