//go:build linux

// Package board gives an emulated computer simulated hardware, for tests: GPIO chips (gpio-sim),
// a thermometer on I2C (i2c-stub with lm75), an IIO sensor (iio_simple_dummy), an LED (uleds) and
// a camera (vivid). The kernel's own drivers are used from the bus upwards, so that sysfs and
// /dev are real.
package board

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/guest"
)

// modules are the kernel modules besides those that they depend on.
var modules = []string{"gpio-sim", "i2c-stub", "i2c-dev", "lm75", "iio_simple_dummy", "uleds", "vivid"}

// parameters are those of modules. The camera is one that only captures.
var parameters = map[string]string{"i2c-stub": "chip_addr=0x48,0x40", "mac80211_hwsim": "radios=1", "vivid": "n_devs=1 node_types=0x1 num_inputs=1 input_types=0"}

// Guest is a running computer with simulated hardware.
type Guest struct {
	*guest.Guest
	t testing.TB
}

// Boot starts a guest, which ends with the test or with this process. The folder kernel is made
// by the script install. Files maps paths in the guest to paths on this machine, and more are
// further kernel modules.
func Boot(t testing.TB, kernel string, files map[string]string, more ...string) *Guest {
	t.Helper()
	// The drivers take memory, and loading them takes minutes on a busy machine.
	config := guest.Config{Kernel: kernel, Files: files, Parameters: parameters, Memory: 768, Timeout: 4 * time.Minute}
	var err error
	if config.Modules, err = withDependencies(kernel, slices.Concat(modules, more)); err != nil {
		t.Fatal(err)
	}
	g := &Guest{guest.Start(t, config), t}
	g.Guest.Boot()
	g.Do("mount -t configfs none /sys/kernel/config && mount -t debugfs none /sys/kernel/debug")
	return g
}

// At returns the guest for a part of the test.
func (g *Guest) At(t testing.TB) *Guest { return &Guest{g.Guest.At(t), t} }

// withDependencies returns modules in load order.
func withDependencies(kernel string, names []string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(kernel, "lib/modules/*/modules.dep"))
	if err != nil || len(found) != 1 {
		return nil, fmt.Errorf("the guest needs the kernel that internal/testenv/board/install makes, in %s: %q", kernel, found)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		return nil, err
	}
	dependencies := make(map[string]string) // by file
	files := make(map[string]string)        // by name
	for line := range strings.Lines(string(text)) {
		file, needs, _ := strings.Cut(strings.TrimSpace(line), ":")
		dependencies[file] = needs
		files[strings.TrimSuffix(filepath.Base(file), ".ko")] = file
	}
	var all []string
	loaded := make(map[string]bool)
	add := func(file string) {
		if !loaded[file] {
			loaded[file] = true
			all = append(all, file)
		}
	}
	for _, name := range names {
		needs := strings.Fields(dependencies[files[name]])
		for i := range needs { // those that others need come last
			add(needs[len(needs)-1-i])
		}
		add(files[name])
	}
	return all, nil
}

// Do runs a command that must succeed, and returns its output.
func (g *Guest) Do(command string) string {
	g.t.Helper()
	output, code := g.Run(command)
	if code != 0 {
		g.t.Fatalf("%s: exit code %d\n%s", command, code, output)
	}
	return strings.TrimSpace(output)
}

// Line is a line of a simulated chip. A line that is Hogged is used by the kernel.
type Line struct {
	Name   string
	Hogged bool
}

// PlugChip adds a simulated GPIO chip.
func (g *Guest) PlugChip(chip, label string, lines ...Line) {
	g.t.Helper()
	bank := "/sys/kernel/config/gpio-sim/" + chip + "/bank"
	g.Do(fmt.Sprintf("mkdir -p %s && echo %d >%s/num_lines && echo %s >%s/label", bank, len(lines), bank, label, bank))
	for i, l := range lines {
		line := fmt.Sprintf("%s/line%d", bank, i)
		if l.Name != "" {
			g.Do(fmt.Sprintf("mkdir -p %s && echo %s >%s/name", line, l.Name, line))
		}
		if l.Hogged {
			g.Do(fmt.Sprintf("mkdir -p %s/hog && echo output-low >%s/hog/direction", line, line))
		}
	}
	g.Do("echo 1 >/sys/kernel/config/gpio-sim/" + chip + "/live")
}

// UnplugChip removes a simulated GPIO chip.
func (g *Guest) UnplugChip(chip string) {
	g.t.Helper()
	g.Do("echo 0 >/sys/kernel/config/gpio-sim/" + chip + "/live")
}

// LineFile returns a file of a line in the simulator's own view: value is the level, and pull
// sets that of an input: pull-up or pull-down.
func (g *Guest) LineFile(chip string, offset int, file string) string {
	g.t.Helper()
	config := "/sys/kernel/config/gpio-sim/" + chip
	return fmt.Sprintf("/sys/devices/platform/%s/%s/sim_gpio%d/%s", g.Do("cat "+config+"/dev_name"), g.Do("cat "+config+"/bank/chip_name"), offset, file)
}

// PlugThermometer adds an LM75 at address 0x48 of the simulated I2C bus. Its register has the
// temperature in units of 1/256 degree, with the bytes swapped.
func (g *Guest) PlugThermometer(register string) (bus string) {
	g.t.Helper()
	bus = strings.TrimPrefix(g.Do("cd /sys/bus/i2c/devices && for d in i2c-*; do grep -l 'SMBus stub' $d/name; done | cut -d/ -f1"), "i2c-")
	g.Do(fmt.Sprintf("i2cset -y %s 0x48 0 %s w", bus, register))
	g.Do(fmt.Sprintf("echo lm75 0x48 >/sys/bus/i2c/devices/i2c-%s/new_device", bus))
	return bus
}

// PlugPWM adds a PCA9685 at address 0x40 of the simulated I2C bus, with 200 hertz and all outputs
// off, as the chip has when it starts.
func (g *Guest) PlugPWM(bus string) {
	g.t.Helper()
	g.Do(fmt.Sprintf("(set -e; i2cset -y %s 0x40 0xfe 0x1e b; for c in $(seq 0 15); do i2cset -y %s 0x40 $(printf 0x%%x $((9+4*c))) 0x10 b; done)", bus, bus))
	g.Do(fmt.Sprintf("echo pca9685 0x40 >/sys/bus/i2c/devices/i2c-%s/new_device", bus))
}

// PlugSensor adds an IIO sensor.
func (g *Guest) PlugSensor(name string) {
	g.t.Helper()
	g.Do("mkdir /sys/kernel/config/iio/devices/dummy/" + name)
}

// PlugLED adds an LED with 255 levels. It exists as long as the guest's shell has its file open.
func (g *Guest) PlugLED(name string) {
	g.t.Helper()
	g.Do(fmt.Sprintf(`exec 9<>/dev/uleds; { printf %s; head -c %d /dev/zero; printf '\377\0\0\0'; } >/tmp/led; dd if=/tmp/led bs=68 count=1 >&9 2>/dev/null`, name, 64-len(name)))
}
