package hardware

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/thing"
)

// Mode is the direction of a GPIO line, its bias and its drive.
type Mode string

// The modes of a line. A chip may lack those with a pull resistor.
const (
	Input           Mode = "input"
	InputPullUp     Mode = "input_pull_up"
	InputPullDown   Mode = "input_pull_down"
	Output          Mode = "output"
	OutputOpenDrain Mode = "output_open_drain"
	// AsIs leaves the direction and the level as they are. The line can be read, and made an
	// output with Drive.
	AsIs Mode = "as_is"
)

var modes = []Mode{Input, InputPullUp, InputPullDown, Output, OutputOpenDrain, AsIs}

// Writes reports whether a line with this mode is an output.
func (m Mode) Writes() bool { return m == Output || m == OutputOpenDrain }

// LineConfig configures a GPIO line. A field that is not set has the default that its comment
// names.
type LineConfig struct {
	// Name is the prefix of the line's tools. Default: gpio and the line's number.
	Name string
	// Text says what is connected to the line, for example "Water pump".
	Text string
	// Mode is the mode when the line is opened. Default: Input.
	Mode Mode
	// Initial is the level of an output when the line is opened, or becomes one.
	Initial bool
	// ActiveLow inverts the line: true is the low level.
	ActiveLow bool
	// Modes are the modes that callers may change to. Default: none, and no tool for it.
	Modes []Mode
	// Edges counts the changes of an input.
	Edges bool
	// Debounce ignores changes that last shorter.
	Debounce time.Duration
	// Poll is the interval at which the gateway records the line. Default: never.
	Poll time.Duration
	// Endangers marks a line whose output can do harm, for example a heater.
	Endangers bool
}

func (c *LineConfig) check(offset int) error {
	if c.Mode == "" {
		c.Mode = Input
	}
	for i, m := range append([]Mode{c.Mode}, c.Modes...) {
		if !slices.Contains(modes, m) || m == AsIs && i > 0 {
			return fmt.Errorf("unknown mode %q of a GPIO line", m)
		}
	}
	if offset < 0 || c.Debounce < 0 || c.Debounce > time.Minute {
		return fmt.Errorf("invalid GPIO line %d with a debounce time of %v: the limit is 1 minute", offset, c.Debounce)
	}
	return nil
}

// EdgeCount is how often an input has changed since its line was opened.
type EdgeCount struct {
	Rising  uint64 `json:"rising" jsonschema:"changes from false to true"`
	Falling uint64 `json:"falling" jsonschema:"changes from true to false"`
	// Missed are changes that came too fast to be told apart. They are in neither number.
	Missed uint64 `json:"missed" jsonschema:"changes of unknown direction, because they came too fast"`
}

// Chip describes a GPIO chip.
type Chip struct {
	// Name is its file in /dev, such as gpiochip0. Label is the driver's name for it.
	Name, Label string
	Lines       []LineInfo
}

// LineInfo describes a line of a GPIO chip.
type LineInfo struct {
	Offset int
	// Name is the board's name for the line; it may be empty.
	Name string
	// Used reports whether a driver or a program has the line, Consumer which.
	Used     bool
	Consumer string
	// Output and ActiveLow are the line's present configuration.
	Output, ActiveLow bool
}

type lineState struct {
	Value bool `json:"value" jsonschema:"true if the line is active"`
	Mode  Mode `json:"mode"`
}

type lineLevel struct {
	Value bool `json:"value" jsonschema:"true makes the line active, false inactive"`
}

type lineMode struct {
	Mode Mode `json:"mode"`
}

// GPIO opens a line of a GPIO chip, such as gpiochip0, and adds its tools to a device:
//
//	NAME_read    reads the level
//	NAME_write   sets the level, if the line is an output or can become one
//	NAME_mode    changes the mode, if Modes has any
//	NAME_edges   returns how often an input has changed, if Edges is set
//
// Close the line when the device is no longer served.
func GPIO(d *thing.Device, chip string, offset int, config LineConfig) (*Line, error) {
	line, err := OpenLine(chip, offset, config)
	if err != nil {
		return nil, err
	}
	config = line.config
	t := naming(config.Name, config.Text, fmt.Sprintf("gpio%d", offset), fmt.Sprintf("line %d of %s", offset, chip))
	state := func(value bool, err error) (lineState, error) { return lineState{value, line.Mode()}, err }
	thing.Tool(d, t.tool("read"), "Read "+t.text, func(context.Context, struct{}) (lineState, error) {
		return state(line.Read())
	}, thing.Reads(), thing.Polled(config.Poll))
	if config.Mode.Writes() || slices.ContainsFunc(config.Modes, Mode.Writes) {
		thing.Tool(d, t.tool("write"), "Set "+t.text, func(_ context.Context, in lineLevel) (lineState, error) {
			return state(in.Value, line.Write(in.Value))
		}, changes(config.Endangers)...)
	}
	if len(config.Modes) > 0 {
		thing.Tool(d, t.tool("mode"), "Change the mode of "+t.text, func(_ context.Context, in lineMode) (lineMode, error) {
			return in, line.SetMode(in.Mode)
		}, append(changes(config.Endangers), thing.WithSchema(modeSchema(config)))...)
	}
	if config.Edges {
		thing.Tool(d, t.tool("edges"), "Count the changes of "+t.text, func(context.Context, struct{}) (EdgeCount, error) {
			return line.Edges()
		}, thing.Reads(), thing.Polled(config.Poll))
	}
	return line, nil
}

// modeSchema returns the schema of the modes that a caller may change to.
func modeSchema(config LineConfig) []byte {
	names := make([]string, len(config.Modes))
	for i, m := range config.Modes {
		names[i] = fmt.Sprintf("%q", m)
	}
	return fmt.Appendf(nil, `{"type":"object","properties":{"mode":{"type":"string","enum":[%s],"description":"an output begins with the value %t"}},"required":["mode"],"additionalProperties":false}`,
		strings.Join(names, ","), config.Initial)
}
