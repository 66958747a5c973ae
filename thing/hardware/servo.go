package hardware

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/ferrulehq/ferrule/thing"
)

// ServoConfig configures a servo. A field that is not set has the default that its comment
// names.
type ServoConfig struct {
	// Name is the prefix of the servo's tools. Default: servo and the channel's number.
	Name string
	// Text says what the servo moves, for example "Vent".
	Text string
	// Min and Max are the pulses at both ends. Default: 544 µs and 2400 µs.
	Min, Max time.Duration
	// Angle is the angle at Max in degrees; it is 0 at Min. Default: 180.
	Angle float64
	// Frequency is in hertz. Default: 50.
	Frequency float64
	// Endangers marks a servo that can do harm.
	Endangers bool
}

func (c *ServoConfig) check() error {
	c.Min, c.Max = cmp.Or(c.Min, 544*time.Microsecond), cmp.Or(c.Max, 2400*time.Microsecond)
	c.Angle, c.Frequency = cmp.Or(c.Angle, 180), cmp.Or(c.Frequency, 50)
	if c.Min < 0 || c.Max <= c.Min || !(c.Angle > 0 && c.Angle <= 3600) || !(c.Frequency > 0 && c.Frequency <= 1000) || c.Max > c.period() {
		return fmt.Errorf("invalid servo: %v degrees with pulses of %v to %v at %v Hz", c.Angle, c.Min, c.Max, c.Frequency)
	}
	return nil
}

func (c *ServoConfig) period() time.Duration {
	return time.Duration(float64(time.Second) / c.Frequency)
}

// pulse returns the pulse for an angle.
func (c *ServoConfig) pulse(angle float64) time.Duration {
	return c.Min + time.Duration(float64(c.Max-c.Min)*angle/c.Angle)
}

type servoAngle struct {
	Angle float64 `json:"angle"`
}

type servoState struct {
	Angle float64 `json:"angle" jsonschema:"the angle that was set, in degrees"`
	Pulse float64 `json:"pulse_us" jsonschema:"the length of the pulse in microseconds"`
}

// Servo adds the tools of a servo on a channel of a PWM chip, such as pwmchip0, to a device:
//
//	NAME_write   moves the servo to an angle, and holds it there
//	NAME_stop    stops the pulses, so that the servo no longer holds its angle
//
// The servo does not move before a tool is called.
func Servo(d *thing.Device, chip string, channel int, config ServoConfig) (*PWMOutput, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	out, err := OpenPWM(chip, channel)
	if err != nil {
		return nil, err
	}
	t := naming(config.Name, config.Text, fmt.Sprintf("servo%d", channel), out.name)
	schema := fmt.Appendf(nil, `{"type":"object","properties":{"angle":{"type":"number","minimum":0,"maximum":%v,"description":"degrees"}},"required":["angle"],"additionalProperties":false}`, config.Angle)
	thing.Tool(d, t.tool("write"), "Move "+t.text+" to an angle", func(_ context.Context, in servoAngle) (servoState, error) {
		pulse := config.pulse(in.Angle)
		return servoState{in.Angle, float64(pulse) / float64(time.Microsecond)}, out.Write(config.period(), pulse)
	}, append(changes(config.Endangers), thing.WithSchema(schema))...)
	addStop(d, t, out)
	return out, nil
}
