package hardware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/ferrulehq/ferrule/internal/kernelfs"
	"github.com/ferrulehq/ferrule/thing"
)

// StripConfig configures a strip of LEDs. A field that is not set has the default that its
// comment names.
type StripConfig struct {
	// Name is the prefix of the strip's tools. Default: leds.
	Name string
	// Text says where the strip is, for example "Shelf".
	Text string
	// Order is the order of the colors: a permutation of RGB, with a W for a white LED.
	// Default: GRB.
	Order string
	// Brightness is the brightness until it is changed, from 1 to 255. Default: 255.
	Brightness int
}

// Color is the color of an LED. Each value is from 0 to 255.
type Color struct {
	Red   int `json:"red"`
	Green int `json:"green"`
	Blue  int `json:"blue"`
	White int `json:"white,omitempty"`
}

func (c *StripConfig) check(count int) error {
	c.Order, c.Brightness = strings.ToUpper(cmp.Or(c.Order, "GRB")), cmp.Or(c.Brightness, 255)
	letters := []byte(c.Order)
	slices.Sort(letters)
	if s := string(letters); s != "BGR" && s != "BGRW" {
		return fmt.Errorf("invalid order of colors %q: must be GRB or alike, or GRBW", c.Order)
	}
	if c.Brightness < 1 || c.Brightness > 255 {
		return fmt.Errorf("invalid brightness %d: must be between 1 and 255", c.Brightness)
	}
	if count < 1 {
		return fmt.Errorf("invalid number of LEDs: %d", count)
	}
	return nil
}

type ledIndex struct {
	Index int `json:"index"`
	Color
	Show *bool `json:"show,omitempty"`
}

type ledBrightness struct {
	Brightness int `json:"brightness"`
}

type ledState struct {
	Count      int  `json:"count" jsonschema:"how many LEDs the strip has"`
	Brightness int  `json:"brightness"`
	Shown      bool `json:"shown" jsonschema:"false if the colors wait to be shown"`
}

// LEDs adds the tools of a strip of WS2812 or SK6812 LEDs on an SPI port, such as spidev0.0, to
// a device. The data line of the strip is connected to MOSI.
//
//	NAME_set          sets the color of one LED
//	NAME_fill         sets the color of all
//	NAME_clear        switches all off
//	NAME_brightness   changes the brightness of all
//
// The strip keeps its colors until a tool is called. The first call sets all LEDs: those without
// a color are switched off.
func LEDs(d *thing.Device, port string, count int, config StripConfig) (*Strip, error) {
	strip, err := OpenStrip(port, count, config)
	if err != nil {
		return nil, err
	}
	t := naming(config.Name, config.Text, "leds", "LED strip on "+port)
	colors := `"red":` + byteSchema + `,"green":` + byteSchema + `,"blue":` + byteSchema
	if strings.Contains(strip.config.Order, "W") {
		colors += `,"white":` + byteSchema
	}
	// Colors are absolute and harm nobody, so a call may be repeated.
	thing.Tool(d, t.tool("set"), "Set the color of one LED: "+t.text, func(_ context.Context, in ledIndex) (ledState, error) {
		return strip.state(strip.Set(in.Index, in.Color, in.Show == nil || *in.Show))
	}, thing.Idempotent(), thing.WithSchema(fmt.Appendf(nil,
		`{"type":"object","properties":{"index":{"type":"integer","minimum":0,"maximum":%d},%s,"show":{"type":"boolean","default":true,"description":"false waits for a later call"}},"required":["index","red","green","blue"],"additionalProperties":false}`,
		count-1, colors)))
	thing.Tool(d, t.tool("fill"), "Set the color of all LEDs: "+t.text, func(_ context.Context, in Color) (ledState, error) {
		return strip.state(strip.Fill(in))
	}, thing.Idempotent(), thing.WithSchema(fmt.Appendf(nil,
		`{"type":"object","properties":{%s},"required":["red","green","blue"],"additionalProperties":false}`, colors)))
	thing.Tool(d, t.tool("clear"), "Switch off all LEDs: "+t.text, func(context.Context, struct{}) (ledState, error) {
		return strip.state(strip.Clear())
	}, thing.Idempotent())
	thing.Tool(d, t.tool("brightness"), "Change the brightness of all LEDs: "+t.text, func(_ context.Context, in ledBrightness) (ledState, error) {
		return strip.state(strip.SetBrightness(in.Brightness))
	}, thing.Idempotent(), thing.WithSchema([]byte(
		`{"type":"object","properties":{"brightness":`+byteSchema+`},"required":["brightness"],"additionalProperties":false}`)))
	return strip, nil
}

const byteSchema = `{"type":"integer","minimum":0,"maximum":255}`

// Strip is a strip of LEDs. Its methods may be called concurrently.
type Strip struct {
	port, file string
	config     StripConfig
	send       func(data []byte) error

	mu         sync.Mutex
	colors     []Color
	brightness int
	shown      bool
}

// spiSpeed sends three bits for each bit of the strip: 1.25 µs, as the LEDs expect.
const spiSpeed = 2_400_000

// pause is how many zero bytes make the LEDs take over their colors: 300 µs.
const pause = 300 * spiSpeed / 8 / 1_000_000

// OpenStrip returns a strip of LEDs on an SPI port, such as spidev0.0. It sends nothing. The
// port is opened each time that colors are sent.
func OpenStrip(port string, count int, config StripConfig) (*Strip, error) {
	if err := config.check(count); err != nil {
		return nil, err
	}
	if !supported {
		return nil, ErrSystem
	}
	s := &Strip{port: port, file: kernelfs.Path("dev", filepath.Base(port)), config: config, brightness: config.Brightness}
	s.send = func(data []byte) error { return sendSPI(s.file, data) }
	if err := checkSPI(s.file); err != nil {
		return nil, err
	}
	// A transfer in two parts has a pause between them, and the LEDs take that for the end.
	size := 4096
	if text, err := kernelfs.Text(kernelfs.Path("sys/module/spidev/parameters/bufsiz")); err == nil {
		if n, err := strconv.Atoi(text); err == nil {
			size = n
		}
	}
	perLED := 3 * len(config.Order)
	if limit := (size - 2*pause) / perLED; count > limit {
		return nil, fmt.Errorf("%d LEDs are too many: the driver sends at most %d bytes at once, enough for %d. Add spidev.bufsiz=%d to the kernel's command line",
			count, size, limit, count*perLED+2*pause)
	}
	s.colors = make([]Color, count)
	return s, nil
}

func (s *Strip) state(err error) (ledState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ledState{len(s.colors), s.brightness, s.shown}, err
}

// Set sets the color of one LED. Without show, it is sent with the next change.
func (s *Strip) Set(index int, color Color, show bool) error {
	if index < 0 || index >= len(s.colors) {
		return refused("LED %d does not exist: the strip has 0 to %d", index, len(s.colors)-1)
	}
	return s.change(show, func() error {
		s.colors[index] = color
		return nil
	}, color)
}

// Fill sets the color of all LEDs.
func (s *Strip) Fill(color Color) error {
	return s.change(true, func() error {
		for i := range s.colors {
			s.colors[i] = color
		}
		return nil
	}, color)
}

// Clear switches off all LEDs.
func (s *Strip) Clear() error { return s.Fill(Color{}) }

// SetBrightness changes the brightness of all LEDs. 255 shows their colors as they are.
func (s *Strip) SetBrightness(brightness int) error {
	return s.change(true, func() error {
		if brightness < 0 || brightness > 255 {
			return refused("invalid brightness %d: must be between 0 and 255", brightness)
		}
		s.brightness = brightness
		return nil
	})
}

// change applies a change and sends all colors if they are to be shown.
func (s *Strip) change(show bool, apply func() error, colors ...Color) error {
	for _, c := range colors {
		for _, v := range []int{c.Red, c.Green, c.Blue, c.White} {
			if v < 0 || v > 255 {
				return refused("invalid color %+v: values must be between 0 and 255", c)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	oldColors, oldBrightness, oldShown := slices.Clone(s.colors), s.brightness, s.shown
	if err := apply(); err != nil {
		return err
	}
	s.shown = false
	if !show {
		return nil
	}
	if err := s.send(s.frame()); err != nil {
		if errors.As(err, new(*thing.RefusedError)) { // a later call must not show it
			s.colors, s.brightness, s.shown = oldColors, oldBrightness, oldShown
		}
		return fmt.Errorf("sending colors to %s: %w", s.port, err)
	}
	s.shown = true
	return nil
}

// frame returns what is sent for the present colors: each bit is three bits of SPI, 100 for 0
// and 110 for 1, between two pauses.
func (s *Strip) frame() []byte {
	data := make([]byte, pause, 2*pause+3*len(s.config.Order)*len(s.colors))
	for _, c := range s.colors {
		for _, letter := range s.config.Order {
			value := map[rune]int{'R': c.Red, 'G': c.Green, 'B': c.Blue, 'W': c.White}[letter] * s.brightness / 255
			bits := uint32(0)
			for i := 7; i >= 0; i-- {
				bits = bits<<3 | 0b100 | uint32(value>>i&1)<<1
			}
			data = append(data, byte(bits>>16), byte(bits>>8), byte(bits))
		}
	}
	return append(data, make([]byte, pause)...)
}
