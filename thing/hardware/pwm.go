package hardware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/ferrulehq/ferrule/internal/kernelfs"
	"github.com/ferrulehq/ferrule/thing"
)

// PWMConfig configures a PWM output. A field that is not set has the default that its comment
// names.
type PWMConfig struct {
	// Name is the prefix of the output's tools. Default: pwm and the channel's number.
	Name string
	// Text says what is connected, for example "Fan".
	Text string
	// Frequency is in hertz. Default: 1000.
	Frequency float64
	// MinFrequency and MaxFrequency are limits for callers. Default: callers cannot change
	// the frequency.
	MinFrequency, MaxFrequency float64
	// Endangers marks an output that can do harm, for example a motor.
	Endangers bool
}

// maxFrequency keeps a period above ten nanoseconds, which no chip here comes close to.
const maxFrequency = 100e6

func (c *PWMConfig) check() error {
	c.Frequency = cmp.Or(c.Frequency, 1000)
	for _, f := range []float64{c.Frequency, cmp.Or(c.MinFrequency, 1), cmp.Or(c.MaxFrequency, 1)} {
		if !(f > 0 && f <= maxFrequency) {
			return fmt.Errorf("invalid PWM frequency %v Hz: must be above 0 and at most %v", f, maxFrequency)
		}
	}
	if c.MinFrequency > c.MaxFrequency || (c.MinFrequency == 0) != (c.MaxFrequency == 0) {
		return fmt.Errorf("invalid limits of a PWM frequency: %v to %v Hz", c.MinFrequency, c.MaxFrequency)
	}
	return nil
}

// PWMState is what a PWM output does.
type PWMState struct {
	On bool `json:"on"`
	// Duty is in percent.
	Duty      float64 `json:"duty" jsonschema:"percent"`
	Frequency float64 `json:"frequency_hz"`
}

type pwmLevel struct {
	Duty      float64 `json:"duty"`
	Frequency float64 `json:"frequency_hz,omitempty"`
}

// PWM adds the tools of a channel of a PWM chip, such as pwmchip0, to a device:
//
//	NAME_read    returns the duty and the frequency
//	NAME_write   sets the duty in percent, and switches the output on
//	NAME_stop    switches the output off
//
// The output keeps its state until a tool is called.
func PWM(d *thing.Device, chip string, channel int, config PWMConfig) (*PWMOutput, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	out, err := OpenPWM(chip, channel)
	if err != nil {
		return nil, err
	}
	t := naming(config.Name, config.Text, fmt.Sprintf("pwm%d", channel), out.name)
	thing.Tool(d, t.tool("read"), "Read the duty of "+t.text, func(context.Context, struct{}) (PWMState, error) {
		return out.State()
	}, thing.Reads())
	thing.Tool(d, t.tool("write"), "Set the duty of "+t.text, func(_ context.Context, in pwmLevel) (PWMState, error) {
		period := time.Duration(float64(time.Second) / cmp.Or(in.Frequency, config.Frequency))
		if err := out.Write(period, time.Duration(float64(period)*in.Duty/100)); err != nil {
			return PWMState{}, err
		}
		return out.State()
	}, append(changes(config.Endangers), thing.WithSchema(pwmSchema(config)))...)
	addStop(d, t, out)
	return out, nil
}

// addStop adds the tool that switches an output off.
func addStop(d *thing.Device, t tools, out *PWMOutput) {
	thing.Tool(d, t.tool("stop"), "Switch off "+t.text, func(context.Context, struct{}) (PWMState, error) {
		if err := out.Stop(); err != nil {
			return PWMState{}, err
		}
		return out.State()
	}, thing.Idempotent())
}

func pwmSchema(c PWMConfig) []byte {
	frequency := ""
	if c.MaxFrequency > 0 {
		frequency = fmt.Sprintf(`,"frequency_hz":{"type":"number","minimum":%v,"maximum":%v,"default":%v}`, c.MinFrequency, c.MaxFrequency, c.Frequency)
	}
	return fmt.Appendf(nil, `{"type":"object","properties":{"duty":{"type":"number","minimum":0,"maximum":100,"description":"percent"}%s},"required":["duty"],"additionalProperties":false}`, frequency)
}

// PWMOutput is a channel of a PWM chip in sysfs. Its methods may be called concurrently.
type PWMOutput struct {
	name string // for messages: pwmchip0 channel 1
	dir  string
	mu   sync.Mutex
}

// OpenPWM opens a channel of a PWM chip, such as pwmchip0. The output keeps its state.
func OpenPWM(chip string, channel int) (*PWMOutput, error) {
	if !supported {
		return nil, ErrSystem
	}
	folder := kernelfs.Path("sys/class/pwm", filepath.Base(chip))
	count, err := kernelfs.Integer(filepath.Join(folder, "npwm"))
	if err != nil {
		return nil, fmt.Errorf("opening the PWM chip: %w", pwmAccess.explain(err))
	}
	out := &PWMOutput{name: fmt.Sprintf("%s channel %d", chip, channel), dir: filepath.Join(folder, fmt.Sprintf("pwm%d", channel))}
	if channel < 0 || int64(channel) >= count {
		return nil, fmt.Errorf("%s does not exist: the chip has channels 0 to %d", out.name, count-1)
	}
	if _, err := os.Stat(out.dir); errors.Is(err, fs.ErrNotExist) {
		if err := writeFile(filepath.Join(folder, "export"), int64(channel)); err != nil {
			return nil, fmt.Errorf("opening %s: %w", out.name, pwmAccess.explain(err))
		}
	}
	return out, out.wait()
}

// wait waits until the files of an exported channel exist and can be written: udev changes their
// group a moment later.
func (p *PWMOutput) wait() error {
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		f, err := os.OpenFile(filepath.Join(p.dir, "enable"), os.O_WRONLY, 0)
		if err == nil {
			return f.Close()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("opening %s: %w", p.name, pwmAccess.explain(err))
		}
	}
}

// writeFile writes a number to an existing file.
func writeFile(file string, n int64) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(strconv.FormatInt(n, 10))
	return err
}

// times are the settings of a channel in nanoseconds.
type times struct{ period, width, enabled int64 }

func (p *PWMOutput) times() (t times, err error) {
	for _, file := range []struct {
		name  string
		value *int64
	}{{"period", &t.period}, {"duty_cycle", &t.width}, {"enable", &t.enabled}} {
		if *file.value, err = kernelfs.Integer(filepath.Join(p.dir, file.name)); err != nil {
			return t, fmt.Errorf("reading %s: %w", p.name, err)
		}
	}
	return t, nil
}

// State returns what the output does.
func (p *PWMOutput) State() (PWMState, error) {
	t, err := p.times()
	if err != nil || t.period <= 0 {
		return PWMState{}, err
	}
	return PWMState{t.enabled != 0, 100 * float64(t.width) / float64(t.period), float64(time.Second) / float64(t.period)}, nil
}

// Write sets the period and the width of the pulses, and switches the output on.
func (p *PWMOutput) Write(period, width time.Duration) error {
	if period <= 0 || width < 0 || width > period {
		return refused("a pulse of %v does not fit into a period of %v", width, period)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now, err := p.times()
	if err != nil {
		return refused("%v", err)
	}
	return p.set(order(now, period, width)...)
}

// order returns the settings in the order of their writing: the kernel refuses a pulse that is
// longer than its period.
func order(now times, period, width time.Duration) []setting {
	settings := []setting{{"period", now.period, int64(period)}, {"duty_cycle", now.width, int64(width)}, {"enable", now.enabled, 1}}
	if int64(period) < now.width {
		settings[0], settings[1] = settings[1], settings[0]
	}
	return settings
}

// Stop switches the output off.
func (p *PWMOutput) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, err := p.times()
	if err != nil {
		return refused("%v", err)
	}
	return p.set(setting{"enable", now.enabled, 0})
}

// setting is a file of the channel with its present and its new value.
type setting struct {
	file      string
	from, now int64
}

// set writes settings that differ, in order. An error is a refusal if no file was opened before.
func (p *PWMOutput) set(settings ...setting) error {
	touched := false
	for _, s := range settings {
		if s.from == s.now {
			continue
		}
		err := writeFile(filepath.Join(p.dir, s.file), s.now)
		var path *fs.PathError
		if !touched && errors.As(err, &path) && path.Op == "open" {
			return refused("setting %s: %v", p.name, pwmAccess.explain(err))
		}
		if s.file == "period" && errors.Is(err, syscall.EBUSY) {
			err = fmt.Errorf("%w: the channels of this chip share one frequency. Use the same one, or stop the others first", err)
		}
		if err != nil {
			return fmt.Errorf("setting %s of %s to %d: %w", s.file, p.name, s.now, err)
		}
		touched = true
	}
	return nil
}
