package entity_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/entity"
	"github.com/ferrulehq/ferrule/internal/schema"
	"github.com/ferrulehq/ferrule/internal/testenv/zigbee"
)

// tally counts what became of the entities of one component.
type tally struct{ Entities, Commandable, Callable, Tools, States, Noted int }

// TestCorpus describes every entity of every device that Zigbee2MQTT supports. Nothing may
// be lost without a note, and what takes commands must be callable.
func TestCorpus(t *testing.T) {
	all, ignored := map[string]*tally{}, 0
	for _, m := range zigbee.Corpus(t) {
		topic, ok := discovery.ParseTopic("homeassistant", m.Topic)
		if !ok {
			ignored++ // Home Assistant drops these: an ID with a space
			continue
		}
		message, err := discovery.Parse(topic, []byte(m.Payload))
		if err != nil || len(message.Entities) != 1 {
			t.Fatalf("%s: %v", m.Topic, err)
		}
		e := &message.Entities[0]
		count := all[e.Component]
		if count == nil {
			count = &tally{}
			all[e.Component] = count
		}
		count.add(t, m.Topic, e)
	}
	want := map[string]tally{
		"binary_sensor": {1751, 0, 0, 0, 1751, 0},
		"button":        {1099, 1099, 1099, 1099, 0, 0},
		"climate":       {269, 269, 269, 631, 1118, 0},
		"cover":         {174, 174, 174, 714, 366, 0},
		"fan":           {12, 12, 12, 34, 34, 0},
		"infrared":      {8, 4, 4, 4, 4, 0},
		"light":         {1763, 1763, 1763, 3335, 6923, 0},
		"lock":          {50, 50, 50, 100, 100, 0},
		"number":        {4499, 4499, 4499, 4499, 4499, 0},
		"select":        {6085, 6085, 6085, 6085, 5008, 0},
		"sensor":        {12133, 0, 0, 0, 12132, 1},
		"siren":         {29, 29, 29, 58, 0, 0},
		"switch":        {3705, 3705, 3705, 3705, 3705, 0},
		"text":          {1032, 1032, 1032, 1032, 429, 0},
		"update":        {1563, 1563, 1563, 1563, 1563, 0},
	}
	commandable, callable := 0, 0
	for _, component := range slices.Sorted(maps.Keys(all)) {
		count := all[component]
		t.Logf("%-14s %+v", component, *count)
		if *count != want[component] {
			t.Errorf("%s: got %+v, want %+v", component, *count, want[component])
		}
		commandable, callable = commandable+count.Commandable, callable+count.Callable
	}
	if len(all) != len(want) || ignored != 2 || commandable != 20_284 || callable*100 < commandable*99 {
		t.Errorf("%d components, %d ignored, %d of %d callable", len(all), ignored, callable, commandable)
	}
}

// add describes an entity, and checks its tools.
func (c *tally) add(t *testing.T, topic string, e *discovery.Entity) {
	d := entity.Describe(e)
	c.Entities, c.Tools, c.States, c.Noted = c.Entities+1, c.Tools+len(d.Tools), c.States+len(d.States), c.Noted+min(1, len(d.Notes))
	if len(d.Tools)+len(d.States)+len(d.Notes) == 0 {
		t.Errorf("%s: lost without a note", topic)
	}
	callable := false
	for i := range d.Tools {
		if tool := &d.Tools[i]; tool.Quarantine == "" {
			callable = true
			checkTool(t, topic, tool)
		}
	}
	for key := range e.Options {
		if strings.HasSuffix(key, "command_topic") {
			c.Commandable++
			if callable {
				c.Callable++
			}
			break
		}
	}
}

// checkTool checks that a tool takes arguments that its schema describes, refuses others,
// and publishes only on its topics.
func checkTool(t *testing.T, topic string, tool *entity.Tool) {
	t.Helper()
	s, err := schema.Compile(tool.Input)
	if err != nil {
		t.Errorf("%s: %s: %v", topic, tool.Name, err)
		return
	}
	var doc struct {
		Properties map[string]map[string]any
		Required   []string
		AtLeast    int `json:"minProperties"`
	}
	d := json.NewDecoder(strings.NewReader(string(tool.Input)))
	d.UseNumber()
	if err := d.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	args := map[string]any{}
	for _, name := range doc.Required {
		args[name] = sample(doc.Properties[name])
	}
	for name := range doc.Properties {
		if len(args) < doc.AtLeast {
			args[name] = sample(doc.Properties[name])
		}
	}
	if wrong := s.Check(args); len(wrong) > 0 {
		t.Errorf("%s: %s refuses %v: %v", topic, tool.Name, args, wrong)
		return
	}
	for name, property := range doc.Properties {
		for _, value := range outside(property) {
			bad := maps.Clone(args)
			bad[name] = value
			if len(s.Check(bad)) == 0 {
				t.Errorf("%s: %s accepts %v", topic, tool.Name, bad)
			}
		}
	}
	command, err := tool.Command(args)
	if err != nil || len(command.Publish) == 0 {
		t.Errorf("%s: %s with %v: %v", topic, tool.Name, args, err)
	}
	for _, p := range command.Publish {
		if !slices.Contains(tool.Topics, p.Topic) {
			t.Errorf("%s: %s publishes on %s, and declares %v", topic, tool.Name, p.Topic, tool.Topics)
		}
	}
}

// sample returns a value that fits a property.
func sample(property map[string]any) any {
	if enum, ok := property["enum"].([]any); ok {
		return enum[0]
	}
	if alternatives, ok := property["oneOf"].([]any); ok {
		return sample(alternatives[0].(map[string]any))
	}
	switch property["type"] {
	case "boolean":
		return true
	case "string":
		return "1234"
	case "object":
		object := map[string]any{}
		for name, p := range property["properties"].(map[string]any) {
			object[name] = sample(p.(map[string]any))
		}
		return object
	}
	return property["minimum"]
}

// outside returns values that do not fit a property.
func outside(property map[string]any) (values []any) {
	if _, ok := property["enum"]; ok {
		values = append(values, "no such option")
	}
	for _, limit := range []string{"minimum", "maximum"} {
		if n, ok := property[limit].(json.Number); ok {
			f, _ := n.Float64()
			f += map[string]float64{"minimum": -1, "maximum": 1}[limit]
			values = append(values, json.Number(strconv.FormatFloat(f, 'f', -1, 64)))
		}
	}
	return append(values, []any{})
}
