//go:build linux

package linux

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/kernelfs"
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/hardware"
)

type brightness struct {
	Brightness int `json:"brightness" jsonschema:"0 is off"`
}

// lamp returns a part with a brightness: an LED or a backlight.
func (b *Board) lamp(dir, name, what string) (*part, error) {
	top, err := kernelfs.Number(dir, "max_brightness")
	if err != nil || top < 1 || top > math.MaxInt32 {
		return nil, err
	}
	schema := fmt.Appendf(nil, `{"type":"object","properties":{"brightness":{"type":"integer","minimum":0,"maximum":%d,"description":"0 is off"}},"required":["brightness"],"additionalProperties":false}`, int(top))
	return &part{name: name, what: what, actions: []string{"", "set"}, declare: func(t *partTools) {
		reads(t, "", fmt.Sprintf("Read the brightness of %s, 0 to %d", what, int(top)), func(context.Context) (brightness, error) {
			n, err := kernelfs.Number(dir, "brightness")
			return brightness{int(n)}, err
		})
		thing.Tool(b.Device, t.name("set"), fmt.Sprintf("Set the brightness of %s", what), func(_ context.Context, in brightness) (brightness, error) {
			if err := t.part.check(); err != nil {
				return in, err
			}
			return in, setLamp(dir, what, in.Brightness)
		}, thing.WithSchema(schema))
	}}, nil
}

// setLamp sets a brightness. A trigger of the kernel, such as one that shows the use of the SD
// card, would overwrite it, and is turned off.
func setLamp(dir, what string, level int) error {
	stopped := ""
	if trigger, err := kernelfs.Text(dir, "trigger"); err == nil && !strings.Contains(trigger, "[none]") {
		if err := writeText("none", dir, "trigger"); err != nil {
			return refusal(fmt.Errorf("turning off the trigger of %s: %w", what, err))
		}
		stopped = "; its trigger was turned off"
	}
	err := writeText(fmt.Sprint(level), dir, "brightness")
	switch {
	case err == nil:
		return nil
	case stopped != "":
		return fmt.Errorf("%s was not set: %w%s", what, err, stopped)
	}
	return refusal(fmt.Errorf("setting %s: %w", what, err))
}

// keyboardLED matches the lamps of keyboards, which show the state of keys. Their names change
// with every plug.
var keyboardLED = regexp.MustCompile(`^input[0-9]+::`)

// findLED finds an LED, except those of keyboards.
func (b *Board) findLED(dir string) (*part, error) {
	name := filepath.Base(dir)
	if keyboardLED.MatchString(name) {
		return nil, nil
	}
	return b.lamp(dir, slug("led "+name), "the LED "+clean(name))
}

// findBacklight finds the backlight of a display.
func (b *Board) findBacklight(dir string) (*part, error) {
	name := filepath.Base(dir)
	return b.lamp(dir, slug("backlight "+name), "the backlight "+clean(name))
}

type pwmChannel struct {
	Channel int `json:"channel"`
}

type pwmSetting struct {
	Channel int     `json:"channel"`
	Hertz   float64 `json:"hertz"`
	Percent float64 `json:"percent"`
}

// findPWM finds a PWM chip. It is named after its device, since its number depends on the order
// of drivers.
func (b *Board) findPWM(dir string) (*part, error) {
	count, err := kernelfs.Number(dir, "npwm")
	if err != nil || count < 1 || count > maxPWM {
		return nil, err
	}
	name := placeName("pwm", dir)
	if device, err := filepath.EvalSymlinks(filepath.Join(dir, "device")); err == nil && name == "pwm" {
		if name = slug(filepath.Base(device)); !strings.Contains(name, "pwm") {
			name = slug("pwm " + name)
		}
	}
	chip := &pwmChip{dir: dir, what: "the PWM chip " + name, count: int(count)}
	return &part{name: name, what: chip.what, actions: []string{"", "set", "stop"}, declare: chip.declare}, nil
}

// maxPWM limits the channels of a chip.
const maxPWM = 64

// pwmChip is a PWM chip in sysfs.
type pwmChip struct {
	part      *part
	dir, what string
	count     int
}

func (c *pwmChip) declare(t *partTools) {
	d := t.board.Device
	c.part = t.part
	channel := fmt.Sprintf(`{"type":"object","properties":{"channel":{"type":"integer","minimum":0,"maximum":%d}`, c.count-1)
	reads(t, "", fmt.Sprintf("Read the outputs of %s that are in use", c.what), func(context.Context) (map[string]any, error) { return c.state() })
	thing.Tool(d, t.name("set"), fmt.Sprintf("Set an output of %s, and switch it on", c.what), func(_ context.Context, in pwmSetting) (pwmSetting, error) {
		out, err := c.open(in.Channel)
		if err != nil {
			return in, err
		}
		period := time.Duration(float64(time.Second) / in.Hertz)
		return in, out.Write(period, time.Duration(float64(period)*in.Percent/100))
	}, thing.WithSchema([]byte(channel+`,"hertz":{"type":"number","minimum":0.1,"maximum":1000000,"description":"frequency; 50 for a servo"},`+
		`"percent":{"type":"number","minimum":0,"maximum":100,"description":"duty"}},"required":["channel","hertz","percent"],"additionalProperties":false}`)))
	thing.Tool(d, t.name("stop"), fmt.Sprintf("Switch off an output of %s", c.what), func(_ context.Context, in pwmChannel) (pwmChannel, error) {
		out, err := c.open(in.Channel)
		if err != nil {
			return in, err
		}
		return in, out.Stop()
	}, thing.Idempotent(), thing.WithSchema([]byte(channel+`},"required":["channel"],"additionalProperties":false}`)))
}

// open reserves a channel, which keeps its state.
func (c *pwmChip) open(channel int) (*hardware.PWMOutput, error) {
	if err := c.part.check(); err != nil {
		return nil, err
	}
	out, err := hardware.OpenPWM(filepath.Base(c.dir), channel)
	if err != nil {
		return nil, &thing.RefusedError{Reason: fmt.Sprintf("Nothing was changed: %v%s", err, permissionHint(err))}
	}
	return out, nil
}

// state returns the settings of the channels that are reserved.
func (c *pwmChip) state() (map[string]any, error) {
	state := make(map[string]any)
	used := 0
	for n := range c.count {
		if _, err := os.Stat(filepath.Join(c.dir, fmt.Sprintf("pwm%d", n))); err != nil {
			continue
		}
		out, err := c.open(n)
		if err != nil {
			return nil, err
		}
		now, err := out.State()
		if err != nil {
			return nil, err
		}
		used++
		state[fmt.Sprintf("channel%d", n)] = map[string]any{"on": now.On, "percent": round(now.Duty), "hertz": round(now.Frequency)}
	}
	state["used"] = used
	return state, nil
}
