// Package hardware has ready-made tools for the hardware of a Linux computer. Each is added to
// a [thing.Device] in one line:
//
//	board := thing.New("greenhouse", "1.0.0")
//	pump, err := hardware.GPIO(board, "gpiochip0", 17, hardware.LineConfig{Name: "pump", Mode: hardware.Output})
//	err = hardware.DHT(board, hardware.DHTConfig{Name: "climate", Poll: 10 * time.Second})
//	err = hardware.System(board, hardware.SystemConfig{})
//
// The first adds the tools pump_read and pump_write: the name of a part is the prefix of its
// tools.
//
//	GPIO     a GPIO line: read, write, mode, count of edges     /dev/gpiochipN
//	PWM      a PWM output: read, write, stop                    /sys/class/pwm
//	Servo    a servo on a PWM output: write, stop               /sys/class/pwm
//	I2C      an I2C bus: scan, read, transfer                   /dev/i2c-N
//	LEDs     WS2812 LEDs: set, fill, clear, brightness          /dev/spidevN.M
//	OneWire  a 1-Wire thermometer                               /sys/bus/w1
//	DHT      a DHT11 or DHT22 with the kernel's driver          /sys/bus/iio
//	System   uptime, load, memory, disk, temperature            /proc, /sys
//	WiFi     state, network and signal of Wi-Fi interfaces      /proc, /sys
//
// # Effects
//
// What only reads is declared with [thing.Reads], so that the gateway may repeat it. Stopping an
// output and showing colors is declared with [thing.Idempotent]. Setting a line, a duty or an
// angle is neither: by the time of a second attempt, somebody else may have switched it off. An
// output that can do harm has Endangers set in its configuration; a transfer on an I2C bus
// endangers unless its configuration says that it is safe.
//
// A tool returns a [thing.RefusedError] only if it has not touched the hardware.
//
// # Before a call
//
// Opening a line as an output sets it to the initial level of its configuration. Nothing else
// here changes an output before a tool is called. Nothing is switched off when the program ends,
// and what a GPIO line does then depends on the chip. Use [Line.Write], [PWMOutput.Stop] or
// [Strip.Clear] if it matters.
//
// On systems other than Linux, every function returns [ErrSystem].
package hardware

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ferrulehq/ferrule/internal/kernelfs"
	"github.com/ferrulehq/ferrule/thing"
)

// ErrSystem is the error of every function on systems other than Linux.
var ErrSystem = errors.New("this hardware is supported on Linux only")

// changes returns the options of a tool that changes something, and may do harm.
func changes(endangers bool) []thing.ToolOption {
	if endangers {
		return []thing.ToolOption{thing.Endangers()}
	}
	return nil
}

// tools names the tools of a part and describes them.
type tools struct{ name, text string }

// naming returns the names of a part's tools. Both values have defaults.
func naming(name, text, defaultName, defaultText string) tools {
	return tools{cmp.Or(name, defaultName), cmp.Or(text, defaultText)}
}

func (t tools) tool(action string) string { return t.name + "_" + action }

// shortened returns text of a device for a message.
func shortened(text string) string {
	if len(text) > 80 {
		return text[:80]
	}
	return text
}

// access is what opening some hardware needs.
type access struct {
	files  string // all files of its kind
	group  string // which users are usually in
	enable string // what to do if there is none
}

var (
	gpioAccess = access{"/dev/gpiochip*", "gpio", "The kernel has no driver for them, or it is not loaded"}
	pwmAccess  = access{"/sys/class/pwm/*", "gpio", "Enable PWM; on a Raspberry Pi, add dtoverlay=pwm to config.txt"}
	i2cAccess  = access{"/dev/i2c-*", "i2c", "Load the module i2c-dev, and enable I2C; on a Raspberry Pi, with raspi-config"}
	spiAccess  = access{"/dev/spidev*", "spi", "Enable SPI; on a Raspberry Pi, with raspi-config"}
)

// explain adds to an error of opening a file what to do about it.
func (a access) explain(err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w. Add the user to the group of the file, usually %s", err, a.group)
	case errors.Is(err, os.ErrNotExist):
		found, globErr := filepath.Glob(kernelfs.Path(a.files))
		if globErr != nil || len(found) == 0 {
			return fmt.Errorf("%w, and none of its kind. %s", err, a.enable)
		}
		for i, file := range found {
			found[i] = filepath.Base(file)
		}
		return fmt.Errorf("%w. This computer has %s", err, strings.Join(found, ", "))
	}
	return err
}

// refused returns an error that says that nothing was done.
func refused(format string, values ...any) error {
	return &thing.RefusedError{Reason: fmt.Sprintf(format, values...)}
}
