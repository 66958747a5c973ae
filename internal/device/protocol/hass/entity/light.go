package entity

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
)

// light describes a light. Its three schemas differ in how they publish and in what they
// say; the tools are the same.
func (b *builder) light() {
	l := &light{scale: b.scale("brightness_scale")}
	switch b.Options.Text("schema", "basic") {
	case "json":
		b.jsonLight(l)
	case "template":
		b.templateLight(l)
	default:
		b.basicLight(l)
	}
}

// scale returns the highest brightness, which is an option.
func (b *builder) scale(key string) float64 {
	const usual, most = 255, 1 << 16
	if n := math.Trunc(b.Options.Number(key, usual)); n >= 1 && n <= most {
		return n
	}
	return usual
}

// light is what a light can do, and the names of the states that confirm it.
type light struct {
	scale      float64 // the highest brightness
	brightness bool
	white      float64 // the highest brightness of white light; 0 if it has none
	temp       *colorTemp
	colors     []*colorMode

	on, brightnessState, tempState, effectState string
	colorStates                                 []string // one for each of colors
}

// colorTemp is the range of a color temperature.
type colorTemp struct {
	low, high float64
	unit      string
	tolerance float64
}

// colorTemp reads the range of the color temperature. In mireds, devices round by one;
// in kelvins, that is up to 50.
func (b *builder) colorTemp() *colorTemp {
	t := colorTemp{153, 500, "mired", 1}
	if b.Options.Bool("color_temp_kelvin", false) {
		t = colorTemp{2000, 6535, "K", 50}
		return t.limit(b.Options.Number("min_kelvin", t.low), b.Options.Number("max_kelvin", t.high))
	}
	low, high := t.low, t.high
	if k := b.Options.Number("max_kelvin", 0); k > 0 {
		low = math.Floor(1e6 / k)
	}
	if k := b.Options.Number("min_kelvin", 0); k > 0 {
		high = math.Floor(1e6 / k)
	}
	return t.limit(b.Options.Number("min_mireds", low), b.Options.Number("max_mireds", high))
}

// limit returns the range with limits of the device, unless they make no sense.
func (t colorTemp) limit(low, high float64) *colorTemp {
	if low >= 1 && low <= high && high <= 1e6 {
		t.low, t.high = math.Ceil(low), math.Floor(high)
	}
	return &t
}

// colorMode is a way to say a color.
type colorMode struct {
	name string
	// keys are those of JSON, vars those of templates. most has the highest value of each,
	// and tolerance is by how much each may differ afterwards.
	keys, vars []string
	most       []float64
	tolerance  float64
}

// colorModes are all color modes. Devices convert colors into what their LEDs can show, so
// that they come back a little changed.
var colorModes = []*colorMode{
	{"xy", []string{"x", "y"}, []string{"x", "y"}, []float64{1, 1}, 0.02},
	{"hs", []string{"h", "s"}, []string{"hue", "sat"}, []float64{360, 100}, 3},
	{"rgb", []string{"r", "g", "b"}, []string{"red", "green", "blue"}, []float64{255, 255, 255}, 4},
	{"rgbw", []string{"r", "g", "b", "w"}, []string{"red", "green", "blue", "white"}, []float64{255, 255, 255, 255}, 4},
	{"rgbww", []string{"r", "g", "b", "c", "w"}, []string{"red", "green", "blue", "cold_white", "warm_white"}, []float64{255, 255, 255, 255, 255}, 4},
}

// schema is that of a color in this mode.
func (m *colorMode) schema() map[string]any {
	properties := map[string]any{}
	for i, key := range m.keys {
		properties[key] = map[string]any{"type": "number", "minimum": 0, "maximum": m.most[i]}
		if m.most[i] == 255 {
			properties[key] = map[string]any{"type": "integer", "minimum": 0, "maximum": 255}
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": m.keys, "additionalProperties": false}
}

// values returns the parts of a color, or false if it has others.
func (m *colorMode) values(color map[string]any) ([]float64, bool) {
	if len(color) != len(m.keys) {
		return nil, false
	}
	values := make([]float64, len(m.keys))
	for i, key := range m.keys {
		n, ok := argNumber(color, key)
		if !ok {
			return nil, false
		}
		values[i] = n
	}
	return values, true
}

// parse is the converter of a color as numbers with commas between them.
func (m *colorMode) parse(text string) (Value, bool) {
	parts := strings.SplitN(text, ",", len(m.keys)+1)
	if len(parts) != len(m.keys) {
		return Value{}, false
	}
	color := make(map[string]json.Number, len(parts))
	for i, part := range parts {
		n, ok := parseNumber(strings.TrimSpace(part))
		if !ok {
			return Value{}, false
		}
		color[m.keys[i]] = json.Number(formatNumber(n))
	}
	encoded, err := json.Marshal(color)
	return Value{JSON: encoded, Number: math.NaN()}, err == nil
}

// near returns the condition that a color is nearly this one.
func (m *colorMode) near(want []float64) func(Value) bool {
	return func(v Value) bool {
		var color map[string]any
		if json.Unmarshal(v.JSON, &color) != nil {
			return false
		}
		got, ok := m.values(color)
		for i := range got {
			off := math.Abs(got[i] - want[i])
			if m.keys[i] == "h" { // a circle
				off = min(off, 360-off)
			}
			ok = ok && off <= m.tolerance
		}
		return ok
	}
}

// change is what a call asks of a light.
type change struct {
	on         bool
	brightness *float64
	white      *float64
	temp       *float64
	mode       *colorMode
	color      []float64
	effect     string
}

var (
	errOff   = errors.New("on is false: leave out the other arguments")
	errColor = errors.New("color, color_temp and white exclude each other")
)

// read reads the arguments of a call. A light that gets a brightness or a color is
// switched on, unless the call says off.
func (l *light) read(args map[string]any) (change, error) {
	c := change{on: true}
	if on, given := argBool(args, "on"); given && !on {
		c.on = false
		if len(args) > 1 {
			return c, errOff
		}
	}
	number := func(name string) *float64 {
		if n, given := argNumber(args, name); given {
			return &n
		}
		return nil
	}
	c.brightness, c.white, c.temp = number("brightness"), number("white"), number("color_temp")
	color, given := args["color"].(map[string]any)
	exclusive := 0
	for _, is := range []bool{c.white != nil, c.temp != nil, given} {
		if is {
			exclusive++
		}
	}
	if exclusive > 1 || c.white != nil && c.brightness != nil {
		return c, errColor
	}
	for _, mode := range l.colors {
		if values, ok := mode.values(color); ok {
			c.mode, c.color = mode, values
		}
	}
	if given && c.mode == nil {
		return c, errColor
	}
	return c, nil
}

// confirm returns what confirms a change. Devices round a brightness by one.
func (l *light) confirm(c change) (all []Expectation) {
	all = expect(l.on, boolValue(c.on))
	if c.brightness != nil {
		all = append(all, expectation(l.brightnessState, within(*c.brightness, 1))...)
	}
	if c.temp != nil {
		all = append(all, expectation(l.tempState, within(*c.temp, l.temp.tolerance))...)
	}
	if c.mode != nil {
		all = append(all, expectation(l.colorStates[slices.Index(l.colors, c.mode)], c.mode.near(c.color))...)
	}
	return all
}

// lightTools adds the tools of a light. Effects have one of their own: most are over after
// a while, so that a call is not the same as two.
func (b *builder) lightTools(l *light, effects string, senders []*sender, publish func(c change) ([]Publication, error)) {
	args, exclusive := []property{boolArg("on", "").opt()}, ""
	if len(l.colors) > 0 {
		exclusive = " Not together with color."
	}
	if l.brightness {
		args = append(args, numberArg("brightness", "", 1, l.scale, 1).opt())
	}
	if l.temp != nil {
		args = append(args, numberArg("color_temp", "In "+l.temp.unit+"."+exclusive, l.temp.low, l.temp.high, 1).opt())
	}
	if l.white > 0 {
		args = append(args, numberArg("white", "Brightness of white light."+exclusive, 1, l.white, 1).opt())
	}
	switch len(l.colors) {
	case 0:
	case 1:
		args = append(args, property{name: "color", optional: true, schema: l.colors[0].schema()})
	default:
		either := make([]any, len(l.colors))
		for i, mode := range l.colors {
			either[i] = mode.schema()
		}
		args = append(args, property{name: "color", optional: true, schema: map[string]any{"oneOf": either}})
	}
	args[0].optional = len(args) > 1
	b.tool(action{
		verb: "set", text: "Switches " + b.label + " on or off and sets how it shines.", args: args, senders: senders,
		command: func(args map[string]any) (Command, error) {
			c, err := l.read(args)
			if err != nil {
				return Command{}, err
			}
			messages, err := publish(c)
			return Command{Publish: messages, Expect: l.confirm(c), Window: window}, err
		},
	})
	if args[0].optional {
		b.out.Tools[len(b.out.Tools)-1].Input = atLeastOne(object(args...))
	}
	if effects == "" {
		return
	}
	list, quarantine := b.options(effects)
	b.tool(action{
		suffix: "effect", verb: "effect", text: "Starts an effect of " + b.label + ".",
		args: []property{enumArg("effect", "", list)}, senders: senders, quarantine: quarantine,
		command: func(args map[string]any) (Command, error) {
			effect, _ := argText(args, "effect")
			messages, err := publish(change{on: true, effect: effect})
			return Command{Publish: messages, Expect: fresh(expectation(l.effectState, is(effect))), Window: window}, err
		},
	})
}

// atLeastOne returns the schema of arguments with the rule that there is one.
func atLeastOne(schema json.RawMessage) json.RawMessage {
	return append([]byte(`{"minProperties":1,`), schema[1:]...)
}

// lightStates adds the states of a light. source returns the topic and the template of one.
// The topic is empty if the light does not say it.
func (b *builder) lightStates(l *light, source func(what string, mode *colorMode) (topic, text string), on, off string) {
	add := func(s State, what string, mode *colorMode) string {
		topic, text := source(what, mode)
		return b.stateFrom(s, topic, text)
	}
	l.on = add(State{Convert: onOff(on, off), Signal: true, Discrete: true}, "state", nil)
	if l.brightness {
		l.brightnessState = add(State{Name: "brightness", Convert: toNumber, Signal: true}, "brightness", nil)
	}
	if l.temp != nil {
		l.tempState = add(State{Name: "color_temp", Convert: toNumber, Signal: true, Unit: l.temp.unit}, "color_temp", nil)
	}
	for _, mode := range l.colors {
		name := "color"
		if len(l.colors) > 1 {
			name = "color_" + mode.name
		}
		state := add(State{Name: name, Convert: known(mode.parse)}, "color", mode)
		l.colorStates = append(l.colorStates, state)
	}
	l.effectState = add(State{Name: "effect", Convert: toText}, "effect", nil)
}
