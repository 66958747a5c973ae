// Package entity knows what the entities of MQTT discovery mean: which tools they offer,
// what a call publishes, what confirms it, and what their state topics say. Each component
// is one function in a table.
//
//	discovery.Entity --Describe--> Described{Tools, States, Notes}
//	Tool.Command(args) --> Command{Publish, Expect}
package entity

import (
	"encoding/json"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/template"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Described is what an entity offers. Names are unique within a device after the caller
// has made them so.
type Described struct {
	Tools  []Tool
	States []State
	// Notes say what was left out and why; everything of an entity is a tool, a state or
	// in a note.
	Notes []string
}

// Tool is a tool of an entity.
type Tool struct {
	// Tool has name, text, schema, Class and Quarantine, without any topic or identifier:
	// devices of one model have equal ones. Effect and Idempotent are left to overlays.
	ferrule.Tool
	// Topics are all that Command may publish to.
	Topics []string
	// Command returns what a call with these arguments publishes. Arguments have passed
	// the schema. Values of secrets (codes) appear in no error.
	Command func(args map[string]any) (Command, error)
}

// Command is what one call publishes, and what confirms it.
type Command struct {
	Publish []Publication
	// Expect lists what confirms the call: all of it must be heard after the last message
	// was sent. It is empty if the state is assumed.
	Expect []Expectation
	// Window is how long to wait for that.
	Window time.Duration
	// Rest is the name of a state that must stop changing before the call has ended, for
	// example the position of a cover; empty for none.
	Rest string
}

// Publication is a message to publish.
type Publication struct {
	Topic   string
	Payload []byte
}

// Expectation is a state that confirms a command.
type Expectation struct {
	// State is the name of the state.
	State string
	// Matches reports whether the value is what was asked for.
	Matches func(v Value) bool
	// Fresh reports that the value has to be heard after the command. That it was so before
	// says nothing: a cover that is told to stop may be moving without a word.
	Fresh bool
}

// State is something that an entity says on a topic.
type State struct {
	Name  string // unique within the device
	Topic string
	// Template extracts the value; nil for the payload itself.
	Template *template.Template
	// Convert turns the rendered text into a value; false to ignore it (for example an
	// empty text).
	Convert func(text string) (Value, bool)
	Unit    string
	// Signal reports that numbers of it are recorded; Discrete, that only changes are.
	Signal, Discrete bool
	// Event reports that it is not a state but something that happens. It is passed on
	// as a notification, and never from a retained message.
	Event bool
	// Secret keeps the value out of everything.
	Secret bool
	// ExpireAfter is after how much silence the value is unknown; OffDelay is after how
	// much the state falls back to off. Zero for never.
	ExpireAfter, OffDelay time.Duration
}

// Value is the value of a state.
type Value struct {
	// JSON is what the state tool returns; null if it is unknown.
	JSON json.RawMessage
	// Number is what is recorded; NaN for nothing.
	Number float64
}

// components has what each component offers. A component that is not in it is noted.
var components = map[string]func(*builder){
	"alarm_control_panel": (*builder).alarm,
	"binary_sensor":       (*builder).binarySensor,
	"button":              (*builder).button,
	"camera":              (*builder).personal,
	"climate":             (*builder).climate,
	"cover":               (*builder).cover,
	"date":                (*builder).date,
	"datetime":            (*builder).datetime,
	"device_automation":   (*builder).deviceTrigger,
	"device_tracker":      (*builder).personal,
	"event":               (*builder).event,
	"fan":                 (*builder).fan,
	"humidifier":          (*builder).humidifier,
	"image":               (*builder).personal,
	"infrared":            (*builder).infrared,
	"lawn_mower":          (*builder).lawnMower,
	"light":               (*builder).light,
	"lock":                (*builder).lock,
	"notify":              (*builder).notify,
	"number":              (*builder).number,
	"scene":               (*builder).scene,
	"select":              (*builder).choice,
	"sensor":              (*builder).sensor,
	"siren":               (*builder).siren,
	"switch":              (*builder).toggle,
	"tag":                 (*builder).tag,
	"text":                (*builder).text,
	"time":                (*builder).time,
	"update":              (*builder).update,
	"vacuum":              (*builder).vacuum,
	"valve":               (*builder).valve,
	"water_heater":        (*builder).waterHeater,
}

// Describe returns what an entity offers. Tools that change a setting of the device are
// UserOnly.
func Describe(e *discovery.Entity) Described {
	b := newBuilder(e)
	if describe := components[e.Component]; describe != nil {
		describe(b)
	} else {
		b.note("the component %s is unknown", ferrule.Clean(e.Component, ferrule.MaxWord))
	}
	if len(b.out.Tools)+len(b.out.States)+len(b.out.Notes) == 0 {
		b.note("no topic to send to or to read")
	}
	return b.out
}
