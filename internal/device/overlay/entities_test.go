package overlay_test

import (
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestEntities: an overlay says how a device appears in Home Assistant. Mistakes are reported
// with their path.
func TestEntities(t *testing.T) {
	parse := func(entities string) (*overlay.File, error) {
		return overlay.Parse([]byte(`{"match":{"device":"robot"},"tools":{},"entities":{` + entities + `}}`))
	}
	file, err := parse(`"door":{"component":"lock","signal":"locked","commands":{"lock":{"tool":"lock"},"unlock":{"tool":"unlock","args":{"fast":true}}}},"beep":{"component":"none"}`)
	if err != nil {
		t.Fatal(err)
	}
	set := overlay.NewSet(file)
	m := &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "lock"}}}
	if got := set.Apply("mcp", "k", "robot", m).Entities; len(got) != 2 || string(got["door"].Commands["unlock"].Args) != `{"fast":true}` {
		t.Errorf("got %+v", got)
	}
	if got := set.Apply("mcp", "k", "other", m).Entities; got != nil {
		t.Errorf("got %+v", got)
	}
	if notes := set.UnknownTools("mcp", "k", "robot", m); len(notes) != 1 || !strings.Contains(notes[0], `entity door of an overlay uses the tool "unlock"`) {
		t.Errorf("got %q", notes)
	}
	for entities, want := range map[string]string{
		`"a b":{"component":"none"}`:                                                                    "entities: must be",
		`"x":{"component":"rocket"}`:                                                                    "entities.x.component: must be a component",
		`"x":{"component":"sensor"}`:                                                                    "entities.x.signal: must be set for a sensor",
		`"x":{"component":"lock","commands":{"lock":{"tool":"a"}}}`:                                     "entities.x.commands: a lock must have unlock",
		`"x":{"component":"button","commands":{"push":{"tool":"a"}}}`:                                   "entities.x.commands: a button can have press",
		`"x":{"component":"button","commands":{"press":{"tool":""}}}`:                                   "entities.x.commands.press.tool: must be",
		`"x":{"component":"number","commands":{"set":{"tool":"a"}}}`:                                    "entities.x.commands.set.argument: must be",
		`"x":{"component":"switch","commands":{"on":{"tool":"a","args":5},"off":{"tool":"a"}}}`:         "entities.x.commands.on.args: must be an object",
		`"x":{"component":"cover","class":"a b","commands":{"open":{"tool":"a"},"close":{"tool":"a"}}}`: "entities.x.class: must be",
		`"x":{"component":"switch","signal":"a b","commands":{"on":{"tool":"a"},"off":{"tool":"a"}}}`:   "entities.x.signal: must be",
		`"x":{"component":"switch","commands":{"on":{"tool":"a","argument":"b"},"off":{"tool":"a"}}}`:   "entities.x.commands.on.argument: must be",
		`"x":{"component":"switch","name":"a\u001b","commands":{"on":{"tool":"a"},"off":{"tool":"a"}}}`: "entities.x.name: must be",
		`"x":{"component":"switch","retain":true,"commands":{"on":{"tool":"a"},"off":{"tool":"a"}}}`:    "unknown field",
	} {
		if _, err := parse(entities); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", entities, err, want)
		}
	}
}
