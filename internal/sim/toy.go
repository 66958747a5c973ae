package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"maps"
	"math"
	"sync"

	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/xiaozhi"
)

// Toy is a simulated voice toy with xiaozhi-esp32 firmware: a speaker, a lamp, a screen and a
// camera.
type Toy struct {
	*xiaozhi.Device
	Identity xiaozhi.Identity
	behavior *ToyBehavior
	onEvent  func(what, detail string) // of its connections; may be nil

	mu     sync.Mutex
	volume int
	lamp   bool
	runs   map[string]int
	lists  int      // number of tools/list requests
	conn   *toyConn // the last one; nil if the toy does not dial
}

// NewToy returns a toy. Toys differ by their number. Misbehave is the name of a ToyBehavior,
// or "".
func NewToy(number int, misbehave string) (*Toy, error) {
	behavior, err := findToyBehavior(misbehave)
	if err != nil {
		return nil, err
	}
	return newToy(number, &behavior, newToyFirmware(behavior)), nil
}

// newToys returns toys that share one firmware, with consecutive numbers.
func newToys(first, count int, misbehave string) ([]*Toy, error) {
	behavior, err := findToyBehavior(misbehave)
	if err != nil {
		return nil, err
	}
	firmware := newToyFirmware(behavior)
	toys := make([]*Toy, count)
	for n := range toys {
		toys[n] = newToy(first+n, &behavior, firmware)
	}
	return toys, nil
}

func newToy(number int, behavior *ToyBehavior, f toyFirmware) *Toy {
	t := &Toy{
		behavior: behavior, volume: 70,
		Identity: xiaozhi.Identity{
			DeviceID: fmt.Sprintf("02:00:00:%02x:%02x:%02x", number>>16&255, number>>8&255, number&255),
			ClientID: fmt.Sprintf("7b94d69a-9808-4c59-9c9b-%012x", number),
		},
	}
	t.Device = xiaozhi.New(f.Clone(func(ctx context.Context) context.Context { return context.WithValue(ctx, toyKey{}, t) }))
	return t
}

// toyKey is the context key of the toy whose tool runs.
type toyKey struct{}

// toyFirmware is shared by toys with the same behavior, so that their tools are declared once.
type toyFirmware struct{ *thing.Device }

func newToyFirmware(b ToyBehavior) toyFirmware {
	f := toyFirmware{thing.New("bread-compact-wifi", "2.4.2")}
	if b.tools != nil {
		b.tools(f)
		return f
	}
	f.commonTools()
	f.userTools()
	return f
}

func (f toyFirmware) commonTools() {
	f.tool("self.get_device_status", "Get volume, screen, battery and network", nil, (*Toy).status)
	f.tool("self.audio_speaker.set_volume", "Set the volume", []property{integer("volume", 0, 100)}, (*Toy).setVolume)
	f.tool("self.lamp.turn_on", "Turn the lamp on", nil, func(t *Toy, _ context.Context, _ arguments) (any, error) { return t.setLamp(true), nil })
	f.tool("self.lamp.turn_off", "Turn the lamp off", nil, func(t *Toy, _ context.Context, _ arguments) (any, error) { return t.setLamp(false), nil })
	f.tool("self.lamp.get_state", "Get the state of the lamp", nil, (*Toy).lampState)
	f.tool("self.camera.take_photo", "Take a picture and ask about it", []property{{name: "question", typ: "string"}}, (*Toy).takePhoto)
	f.tool("self.dog.pulse", "Wag once; counts how often each token came", []property{{name: "token", typ: "string"}}, (*Toy).pulse)
}

// userTools are for people. The firmware does not list them, but anybody can call them.
func (f toyFirmware) userTools() {
	yes := func(*Toy, context.Context, arguments) (any, error) { return true, nil }
	f.tool("self.get_system_info", "Get information about the system", nil, func(*Toy, context.Context, arguments) (any, error) {
		return map[string]any{"chip_model_name": "esp32s3", "flash_size": 16777216}, nil
	}, thing.UserOnly())
	f.tool("self.reboot", "Reboot", nil, yes, thing.UserOnly())
	f.tool("self.upgrade_firmware", "Upgrade the firmware", []property{ // the default is a mistake of the firmware
		{name: "url", typ: "string", def: "The URL of the firmware binary file to download and install"},
	}, yes, thing.UserOnly())
	f.tool("self.screen.snapshot", "Show the screen", []property{{name: "quality", typ: "integer", def: 80, min: 1, max: 100}}, (*Toy).snapshot, thing.UserOnly())
}

// arguments are the arguments of a call.
type arguments map[string]any

// property is an argument as firmware declares it.
type property struct {
	name, typ string
	def       any // nil if it is required
	min, max  int // both zero for no limits
}

func integer(name string, minimum, maximum int) property {
	return property{name: name, typ: "integer", min: minimum, max: maximum}
}

// action is the function of a tool.
type action func(t *Toy, ctx context.Context, args arguments) (any, error)

// tool declares a tool as firmware does: without descriptions of arguments, and with its own
// rules for checking them.
func (f toyFirmware) tool(name, text string, props []property, do action, options ...thing.ToolOption) {
	thing.Tool(f.Device, name, text, func(ctx context.Context, in map[string]any) (any, error) {
		args, err := parseArguments(in, props)
		if err != nil {
			return nil, err
		}
		return do(ctx.Value(toyKey{}).(*Toy), ctx, args)
	}, append(options, thing.WithSchema(schemaOf(props)), thing.Unchecked())...)
}

func schemaOf(props []property) json.RawMessage {
	properties := make(map[string]any)
	var required []string
	for _, p := range props {
		schema := map[string]any{"type": p.typ}
		if p.def == nil {
			required = append(required, p.name)
		} else {
			schema["default"] = p.def
		}
		if p.min != p.max {
			schema["minimum"], schema["maximum"] = p.min, p.max
		}
		properties[p.name] = schema
	}
	schema := map[string]any{"type": "object", "properties": properties}
	if required != nil {
		schema["required"] = required
	}
	data, err := json.Marshal(schema)
	if err != nil { // cannot happen: it has only strings and numbers
		panic(err)
	}
	return data
}

// parseArguments parses arguments as firmware does: a wrong type counts as missing, fractions
// are cut off, and unknown arguments are ignored.
func parseArguments(in map[string]any, props []property) (arguments, error) {
	args := make(arguments)
	for _, p := range props {
		value := in[p.name]
		switch v := value.(type) {
		case float64:
			value = int(math.Trunc(v))
		}
		if typeOf(value) != p.typ {
			if value = p.def; value == nil {
				return nil, errors.New("Missing valid argument: " + p.name)
			}
		}
		if n, ok := value.(int); ok && p.min != p.max {
			switch {
			case n < p.min:
				return nil, fmt.Errorf("Value is below minimum allowed: %d", p.min)
			case n > p.max:
				return nil, fmt.Errorf("Value exceeds maximum allowed: %d", p.max)
			}
		}
		args[p.name] = value
	}
	return args, nil
}

func typeOf(value any) string {
	switch value.(type) {
	case int:
		return "integer"
	case string:
		return "string"
	case bool:
		return "boolean"
	}
	return ""
}

func (t *Toy) status(context.Context, arguments) (any, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return map[string]any{
		"audio_speaker": map[string]any{"volume": t.volume},
		"screen":        map[string]any{"brightness": 80, "theme": "light"},
		"battery":       map[string]any{"level": 50, "charging": true},
		"network":       map[string]any{"type": "wifi", "ssid": "home", "signal": "strong"},
	}, nil
}

func (t *Toy) setVolume(_ context.Context, args arguments) (any, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.volume = args["volume"].(int)
	return true, nil
}

func (t *Toy) setLamp(on bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lamp = on
	return true
}

func (t *Toy) lampState(context.Context, arguments) (any, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return map[string]any{"power": t.lamp}, nil
}

func (t *Toy) takePhoto(ctx context.Context, args arguments) (any, error) {
	return t.Explain(ctx, t.Identity, args["question"].(string), picture())
}

func (t *Toy) snapshot(context.Context, arguments) (any, error) {
	return thing.Image{MIME: "image/jpeg", Data: picture()}, nil
}

func (t *Toy) pulse(_ context.Context, args arguments) (any, error) {
	token := args["token"].(string)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.runs == nil {
		t.runs = make(map[string]int)
	}
	t.runs[token]++
	return map[string]any{"token": token, "runs": t.runs[token]}, nil
}

// Runs returns how often self.dog.pulse ran with each token.
func (t *Toy) Runs() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.runs)
}

// picture returns the image of the camera: a gradient.
func picture() []byte {
	const size = 64
	img := image.NewGray(image.Rect(0, 0, size, size))
	for i := range size * size {
		img.SetGray(i%size, i/size, color.Gray{Y: uint8(i * 255 / (size * size))})
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, nil); err != nil { // cannot happen: it writes to memory
		panic(err)
	}
	return b.Bytes()
}
