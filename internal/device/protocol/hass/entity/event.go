package entity

import (
	"encoding/json"
	"math"
	"slices"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// event describes something that happens, with a type and maybe more.
func (b *builder) event() {
	types := b.Options.List("event_types")
	b.state(State{Event: true, Convert: func(text string) (Value, bool) {
		var said struct {
			Type string `json:"event_type"`
		}
		if json.Unmarshal([]byte(text), &said) != nil || !slices.Contains(types, said.Type) || len(text) > ferrule.MaxParams {
			return Value{}, false
		}
		return Value{JSON: ferrule.CleanJSON(json.RawMessage(text)), Number: math.NaN()}, true
	}}, "state_topic", "value_template")
}

// deviceTrigger describes a trigger, for example a button that is pressed twice.
func (b *builder) deviceTrigger() {
	if kind := b.Options.Text("automation_type", ""); kind != "trigger" {
		b.note("automation of type %q", kind)
		return
	}
	said, _ := json.Marshal(map[string]string{ // texts can be encoded
		"type":    ferrule.Clean(b.Options.Text("type", ""), ferrule.MaxWord),
		"subtype": ferrule.Clean(b.Options.Text("subtype", ""), ferrule.MaxWord),
	})
	payload, only := b.Options.Text("payload", ""), b.Options.Has("payload")
	b.state(State{Event: true, Convert: func(text string) (Value, bool) {
		return Value{JSON: said, Number: math.NaN()}, text == payload || !only && text != ""
	}}, "topic", "value_template")
}

// tag describes a reader of tags.
func (b *builder) tag() {
	b.state(State{Event: true, Convert: toText}, "topic", "value_template")
}

// personal notes components that show people or where they are.
func (b *builder) personal() { b.note("left out: it shows people or where they are") }
