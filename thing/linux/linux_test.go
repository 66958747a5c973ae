//go:build linux

package linux

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/ferrulehq/ferrule/internal/kernelfs"
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/hardware"
)

// unpack writes a tree of testdata to a directory, which is the root until the test ends, and
// returns it.
func unpack(t testing.TB, file string) string {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	t.Cleanup(func() { kernelfs.Root = "/" })
	kernelfs.Root = root
	for _, f := range archive.Files {
		name := filepath.Join(root, f.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		text := strings.TrimSuffix(string(f.Data), "\n")
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			err = os.Symlink(target, name)
		} else if digits, ok := strings.CutPrefix(text, "x:"); ok {
			var data []byte
			if data, err = hex.DecodeString(digits); err == nil {
				err = os.WriteFile(name, data, 0o644)
			}
		} else {
			err = os.WriteFile(name, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// fakeChips are GPIO chips in memory.
type fakeChips struct {
	mu     sync.Mutex
	chips  map[string]hardware.Chip
	levels map[string]bool // by chip and line
	failed error           // of every use of a line
	asked  map[string]int  // how often a chip was described
	opened []string
}

type fakeLine struct {
	chips *fakeChips
	name  string
}

func (f *fakeChips) describe(chip string) (hardware.Chip, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[chip]++
	c, ok := f.chips[chip]
	if !ok {
		return c, os.ErrPermission
	}
	return c, nil
}

func (f *fakeChips) open(chip string, offset int, config hardware.LineConfig) (gpioLine, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed != nil {
		return nil, f.failed
	}
	name := f.chips[chip].Lines[offset].Name
	f.opened = append(f.opened, name+" "+string(config.Mode))
	if config.Mode.Writes() {
		f.levels[name] = config.Initial
	}
	return &fakeLine{f, name}, nil
}

func (l *fakeLine) Read() (bool, error) {
	l.chips.mu.Lock()
	defer l.chips.mu.Unlock()
	return l.chips.levels[l.name], l.chips.failed
}

func (l *fakeLine) Drive(level bool) error {
	l.chips.mu.Lock()
	defer l.chips.mu.Unlock()
	if l.chips.failed == nil {
		l.chips.levels[l.name] = level
	}
	return l.chips.failed
}

func (l *fakeLine) Close() error { return nil }

func (f *fakeChips) level(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.levels[name]
}

func (f *fakeChips) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = err
}

func newChips() *fakeChips {
	pi := hardware.Chip{Label: "pinctrl-bcm2711"}
	for i := range 16 {
		pi.Lines = append(pi.Lines, hardware.LineInfo{Offset: i, Name: "GPIO" + string(rune('A'+i))})
	}
	pi.Lines[4].Name = "" // nobody knows where it leads
	pi.Lines[5].Used = true
	pi.Lines[6].Name = "GPIOA" // taken
	return &fakeChips{levels: make(map[string]bool), asked: make(map[string]int), chips: map[string]hardware.Chip{
		"gpiochip0": pi,
		"gpiochip1": {Label: "raspberrypi-exp-gpio", Lines: []hardware.LineInfo{{Name: "BT_ON", Used: true}}},
	}}
}

// fakeBoard returns a board whose hardware is made up.
func fakeBoard(t *testing.T, config Config) (*Board, *fakeChips) {
	t.Helper()
	unpack(t, "pi.txtar")
	chips := newChips()
	b := newWith(config, chips, func(file string) (uint32, error) {
		if strings.HasSuffix(file, "video0") {
			return formatMJPEG, nil
		}
		return 0, nil
	})
	return b, chips
}

func newWith(config Config, chips gpioChips, probe func(string) (uint32, error)) *Board {
	b := newBoard(thing.New("pi", "1"), config)
	b.chips, b.probe = chips, probe
	b.Scan()
	return b
}

func names(b *Board) (all []string) {
	for _, t := range b.Tools() {
		all = append(all, t.Name)
	}
	return all
}

// call calls a tool and returns its result as JSON.
func call(t *testing.T, b *Board, tool, args string) string {
	t.Helper()
	result, err := b.Call(t.Context(), tool, json.RawMessage(args))
	if err != nil {
		t.Fatalf("%s %s: %v", tool, args, err)
	}
	data, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// refused calls a tool that must fail, and reports whether the error says that nothing was done.
func refused(t *testing.T, b *Board, tool, args, want string) bool {
	t.Helper()
	_, err := b.Call(t.Context(), tool, json.RawMessage(args))
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s %s: %v, want %q", tool, args, err, want)
	}
	var r *thing.RefusedError
	return errors.As(err, &r)
}

// TestFound: everything in sysfs has tools, and what reads is polled and has units.
func TestFound(t *testing.T) {
	b, _ := fakeBoard(t, Config{})
	want := []string{
		"pinctrl_bcm2711_lines", "pinctrl_bcm2711_read", "pinctrl_bcm2711_write", "pinctrl_bcm2711_pulse",
		"fe20c000_pwm", "fe20c000_pwm_set", "fe20c000_pwm_stop", "bme280_1_76", "adc", "lm75_1_48", "w1_slave_temp_28_0316a2794f1c", "rpi_volt", "cpu_thermal",
		"led_act", "led_act_set", "led_board_green_status", "led_board_green_status_set",
		"backlight_10_0045", "backlight_10_0045_set", "camera_usb_2_0_camera_rm_rf",
	}
	if got := names(b); !slices.Equal(got, want) {
		t.Errorf("tools:\n got %q\nwant %q", got, want)
	}
	for _, tool := range b.Tools() {
		reads := !strings.HasSuffix(tool.Name, "_set") && !strings.HasSuffix(tool.Name, "_stop") && !strings.HasSuffix(tool.Name, "_write") && !strings.HasSuffix(tool.Name, "_pulse")
		polled := reads && !strings.HasSuffix(tool.Name, "_read") && !strings.HasPrefix(tool.Name, "camera")
		if tool.Reads != reads || (tool.Poll > 0) != polled || tool.Idempotent != strings.HasSuffix(tool.Name, "_stop") || tool.Text == "" || strings.Contains(tool.Text, "`") {
			t.Errorf("%+v", tool)
		}
	}
	for tool, want := range map[string]string{
		"lm75_1_48":             `{"temp1_celsius":25.5}`,
		"cpu_thermal":           `{"celsius":48.312}`,
		"rpi_volt":              `{"fan1_rpm":2100,"power1_watts":3.6,"supply_volts":5.012}`,
		"bme280_1_76":           `{"humidityrelative_percent":43.21,"pressure_kilopascals":101.325,"temp_celsius":21.34}`,
		"adc":                   `{"accel_x_meters_per_s2":17,"proximity0_raw":77,"temp_celsius":20,"voltage0_volts":1.25,"voltage1_voltage2_volts":-0.04}`,
		"led_act":               `{"brightness":0}`,
		"backlight_10_0045":     `{"brightness":200}`,
		"fe20c000_pwm":          `{"channel1":{"hertz":50,"on":true,"percent":7.5},"used":1}`,
		"pinctrl_bcm2711_lines": `{"reserved":0,"level":{}}`,
	} {
		if got := call(t, b, tool, `{}`); got != want {
			t.Errorf("%s:\n got %s\nwant %s", tool, got, want)
		}
	}
}

// TestSensorUnplugged: a sensor that is gone is an error, and then its tool is.
func TestSensorUnplugged(t *testing.T) {
	b, _ := fakeBoard(t, Config{})
	if b.Scan() {
		t.Error("a change without one")
	}
	if err := os.RemoveAll(kernelfs.Path("sys/devices/i2c-1/1-0048")); err != nil {
		t.Fatal(err)
	}
	refused(t, b, "lm75_1_48", `{}`, "cannot be read")
	if !b.Scan() || slices.Contains(names(b), "lm75_1_48") {
		t.Errorf("the sensor is still there: %q", names(b))
	}
	if !refused(t, b, "lm75_1_48", `{}`, "Unknown tool") {
		t.Error("an unknown tool may have run")
	}
}

// TestLines: the lines that are offered have a name, no user and no peripheral.
func TestLines(t *testing.T) {
	b, chips := fakeBoard(t, Config{})
	var schema struct {
		Properties struct{ Line struct{ Enum []string } }
	}
	for _, tool := range b.Tools() {
		if tool.Name == "pinctrl_bcm2711_write" {
			if err := json.Unmarshal(tool.Schema, &schema); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Without C and D, which are those of I2C; E, which has no name; F, which is in use; G, which
	// has the name of A; O, which is that of the UART. Those of SPI, which is disabled, are there.
	want := []string{"GPIOA", "GPIOB", "GPIOH", "GPIOI", "GPIOJ", "GPIOK", "GPIOL", "GPIOM", "GPION", "GPIOP"}
	if got := schema.Properties.Line.Enum; !slices.Equal(got, want) {
		t.Errorf("lines:\n got %q\nwant %q", got, want)
	}
	if len(chips.opened) != 0 {
		t.Errorf("lines were reserved: %q", chips.opened)
	}
	if b.Scan() || chips.asked["gpiochip0"] != 1 || chips.asked["gpiochip1"] != 1 {
		t.Errorf("chips were looked at again: %v", chips.asked)
	}
	if !refused(t, b, "pinctrl_bcm2711_write", `{"line":"GPIOC","value":true}`, "line must be one of") {
		t.Error("a line of I2C may have been set")
	}
}

// TestGPIO: a line is reserved when it is used, and its level is polled from then on.
func TestGPIO(t *testing.T) {
	b, chips := fakeBoard(t, Config{})
	if got := call(t, b, "pinctrl_bcm2711_read", `{"line":"GPIOA"}`); got != `{"line":"GPIOA","value":false}` {
		t.Error(got)
	}
	call(t, b, "pinctrl_bcm2711_write", `{"line":"GPIOA","value":true}`)
	call(t, b, "pinctrl_bcm2711_write", `{"line":"GPIOB","value":true}`)
	if got := call(t, b, "pinctrl_bcm2711_lines", `{}`); got != `{"reserved":2,"level":{"GPIOA":true,"GPIOB":true}}` {
		t.Error(got)
	}
	if want := []string{"GPIOA as_is", "GPIOB output"}; !slices.Equal(chips.opened, want) {
		t.Errorf("opened %q, want %q", chips.opened, want)
	}
	chips.fail(syscall.ENODEV)
	if refused(t, b, "pinctrl_bcm2711_write", `{"line":"GPIOA","value":false}`, "line GPIOA may be low or as before") {
		t.Error("a write that failed is said to have done nothing")
	}
	chips.fail(syscall.EBUSY)
	if !refused(t, b, "pinctrl_bcm2711_write", `{"line":"GPIOH","value":true}`, "Nothing was changed") {
		t.Error("a line of another program may have been set")
	}
}

// TestReplaced: a part that has the number of one that was unplugged is not used by the tools of
// that one, also before the next scan.
func TestReplaced(t *testing.T) {
	b, chips := fakeBoard(t, Config{})
	for _, link := range []string{"sys/bus/gpio/devices/gpiochip0", "sys/class/pwm/pwmchip0", "sys/class/video4linux/video0", "sys/class/leds/ACT"} {
		path := kernelfs.Path(link)
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Rename(real, real+"-old"), os.CopyFS(real, os.DirFS(real+"-old"))); err != nil {
			t.Fatal(err)
		}
	}
	for _, tool := range []string{"fe20c000_pwm", "led_act"} {
		if refused(t, b, tool, `{}`, "cannot be read: it was unplugged or replaced") {
			t.Errorf("%s has refused, and not failed", tool)
		}
	}
	for tool, args := range map[string]string{
		"pinctrl_bcm2711_write": `{"line":"GPIOA","value":true}`, "pinctrl_bcm2711_read": `{"line":"GPIOA"}`, "fe20c000_pwm_set": `{"channel":1,"hertz":1000,"percent":25}`,
		"led_act_set": `{"brightness":7}`, "camera_usb_2_0_camera_rm_rf": `{}`,
	} {
		if !refused(t, b, tool, args, "was unplugged or replaced") {
			t.Errorf("%s may have changed something", tool)
		}
	}
	if len(chips.opened) != 0 {
		t.Errorf("opened %q", chips.opened)
	}
}

// TestNamedLines: lines that the owner names are read from the start, and others are not offered.
func TestNamedLines(t *testing.T) {
	b, chips := fakeBoard(t, Config{Lines: []string{"GPIO[AB]", "GPIOP"}})
	if len(chips.opened) != 0 {
		t.Errorf("lines were reserved before the board runs: %q", chips.opened)
	}
	b.begin()
	b.begin()
	if want := []string{"GPIOA as_is", "GPIOB as_is", "GPIOP as_is"}; !slices.Equal(chips.opened, want) {
		t.Errorf("opened %q, want %q", chips.opened, want)
	}
	if got := call(t, b, "pinctrl_bcm2711_lines", `{}`); got != `{"reserved":3,"level":{"GPIOA":false,"GPIOB":false,"GPIOP":false}}` {
		t.Error(got)
	}
	if !refused(t, b, "pinctrl_bcm2711_read", `{"line":"GPIOH"}`, "line must be one of") {
		t.Error("a line that is not offered was read")
	}
}

// TestPulse: a pulse ends with the opposite level, also if its caller is gone, and an error says
// what was done before.
func TestPulse(t *testing.T) {
	root := unpack(t, "pi.txtar")
	synctest.Test(t, func(t *testing.T) {
		chips := newChips()
		b := newWith(Config{}, chips, func(string) (uint32, error) { return 0, os.ErrNotExist })
		const pulse = `{"line":"GPIOA","value":true,"milliseconds":3000}`
		begin := func(ctx context.Context) chan error {
			ended := make(chan error, 1)
			go func() {
				_, err := b.Call(ctx, "pinctrl_bcm2711_pulse", json.RawMessage(pulse))
				ended <- err
			}()
			synctest.Wait()
			if !chips.level("GPIOA") {
				t.Error("the line is low during the pulse")
			}
			return ended
		}
		start := time.Now()
		if err := <-begin(t.Context()); err != nil || time.Since(start) != 3*time.Second || chips.level("GPIOA") {
			t.Errorf("pulse: %v after %v, the line is %v", err, time.Since(start), chips.level("GPIOA"))
		}

		ctx, cancel := context.WithCancel(t.Context())
		ended := begin(ctx)
		time.Sleep(time.Second)
		cancel()
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "cut short after 1s, and line GPIOA is low again") || chips.level("GPIOA") {
			t.Errorf("a pulse that was cancelled: %v", err)
		}

		ended = begin(t.Context())
		chips.fail(syscall.ENODEV)
		var refused *thing.RefusedError
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "was set high, and could not be set back") || errors.As(err, &refused) {
			t.Errorf("a pulse that could not end: %v", err)
		}

		chips.fail(nil)
		ended = begin(t.Context())
		time.Sleep(time.Second)
		if err := os.Remove(filepath.Join(root, "sys/bus/gpio/devices/gpiochip0")); err != nil {
			t.Fatal(err)
		}
		if !b.Scan() {
			t.Error("the chip is still there")
		}
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "was unplugged 1s after line GPIOA was set high") || errors.As(err, &refused) {
			t.Errorf("a pulse of a chip that was unplugged: %v", err)
		}
	})
}

// TestRun: parts that appear and vanish are noticed, and a part that is plugged in again is
// another one.
func TestRun(t *testing.T) {
	root := unpack(t, "pi.txtar")
	synctest.Test(t, func(t *testing.T) {
		chips := newChips()
		b := newWith(Config{}, chips, func(string) (uint32, error) { return 0, os.ErrNotExist })
		call(t, b, "pinctrl_bcm2711_read", `{"line":"GPIOA"}`)
		changes := 0
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- b.Run(ctx, func() { changes++ }) }()
		after := func(want int, has bool) {
			t.Helper()
			time.Sleep(2 * scanInterval)
			synctest.Wait()
			if changes != want || slices.Contains(names(b), "pinctrl_bcm2711_read") != has {
				t.Errorf("%d changes, want %d; tools %q", changes, want, names(b))
			}
		}
		after(0, true)
		link := filepath.Join(root, "sys/bus/gpio/devices/gpiochip0")
		target, err := os.Readlink(link)
		if err != nil {
			t.Fatal(err)
		}
		os.Remove(link)
		after(1, false)
		os.Symlink(target, link)
		after(2, true)
		if got := call(t, b, "pinctrl_bcm2711_lines", `{}`); got != `{"reserved":0,"level":{}}` {
			t.Errorf("a new chip has lines of the old one: %s", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		b.Close()
		b.Close()
		if !refused(t, b, "pinctrl_bcm2711_write", `{"line":"GPIOA","value":true}`, "Nothing was changed") || chips.level("GPIOA") {
			t.Error("a line was set after the end")
		}
	})
}

// TestSet: outputs are set, and an error says whether something was.
func TestSet(t *testing.T) {
	b, _ := fakeBoard(t, Config{})
	read := func(file string) string {
		text, err := kernelfs.Text(kernelfs.Path(file))
		if err != nil {
			t.Error(err)
		}
		return text
	}
	call(t, b, "led_act_set", `{"brightness":7}`)
	if got := read("sys/class/leds/ACT/brightness") + " " + read("sys/class/leds/ACT/trigger"); !strings.HasPrefix(got, "7 none") {
		t.Errorf("the LED is %q", got)
	}
	if !refused(t, b, "led_act_set", `{"brightness":256}`, "brightness must be at most 255") {
		t.Error("a brightness that is too high may have been set")
	}
	call(t, b, "fe20c000_pwm_set", `{"channel":1,"hertz":1000,"percent":25}`)
	pwm := "sys/class/pwm/pwmchip0/pwm1/"
	if got := read(pwm+"period") + read(pwm+"duty_cycle"); !strings.HasPrefix(got, "1000000") || !strings.Contains(got, "250000") {
		t.Errorf("period and duty are %s", got)
	}
	call(t, b, "fe20c000_pwm_stop", `{"channel":1}`)
	if got := read(pwm + "enable"); got != "0" {
		t.Errorf("the output is on: %s", got)
	}
	if err := os.Remove(kernelfs.Path(pwm, "duty_cycle")); err != nil {
		t.Fatal(err)
	}
	if !refused(t, b, "fe20c000_pwm_set", `{"channel":1,"hertz":50,"percent":5}`, "duty_cycle") {
		t.Error("a channel that is gone may have changed")
	}
	if !refused(t, b, "fe20c000_pwm_set", `{"channel":2,"hertz":50,"percent":5}`, "channel must be at most 1") {
		t.Error("a channel that does not exist may have changed")
	}
	os.Remove(kernelfs.Path("sys/class/leds/board:green:status/brightness"))
	if !refused(t, b, "led_board_green_status_set", `{"brightness":1}`, "Nothing was changed") {
		t.Error("an LED that is gone may have been set")
	}
}

// TestNames: a name does not depend on what else is there, and is never shared.
func TestNames(t *testing.T) {
	b, _ := fakeBoard(t, Config{})
	thing.Tool(b.Device, "own_write", "", func(context.Context, struct{}) (string, error) { return "", nil })
	for _, test := range []struct{ name, actions, want string }{
		{"adc", "", "adc_2"}, {"adc", "write", "adc"}, {"new", "", "new"}, {"gpio", "lines read", "gpio_2"}, {"own", "write", "own_2"}, {"led", "act", "led_2"},
	} {
		if got := b.freeName(test.name, strings.Split(test.actions, " ")); got != test.want {
			t.Errorf("freeName(%q, %q) = %q, want %q", test.name, test.actions, got, test.want)
		}
	}
	for text, want := range map[string]string{
		"ACT": "act", "mmc0::": "mmc0", "tpacpi::power": "tpacpi_power", "": "", "Größe 3": "gr_e_3",
		strings.Repeat("ab ", 20): "ab_ab_ab_ab_ab_ab_ab_ab_ab_ab",
	} {
		if got := slug(text); got != want {
			t.Errorf("slug(%q) = %q, want %q", text, got, want)
		}
	}
	if got := clean("a\u202eb\x1b[31m\n`{ignore}`" + strings.Repeat("x", 99)); got != "ab31mignore"+strings.Repeat("x", 29) {
		t.Errorf("clean: %q", got)
	}
}

// TestStrangeChips: chips with names that are taken, empty or equal get tools of their own.
func TestStrangeChips(t *testing.T) {
	root := unpack(t, "pi.txtar")
	chips := newChips()
	line := []hardware.LineInfo{{Name: "LINE"}}
	for i, label := range []string{"gpio", "", "\u202e", "gpio"} {
		name := "gpiochip" + string(rune('2'+i))
		chips.chips[name] = hardware.Chip{Label: label, Lines: line}
		if err := os.MkdirAll(filepath.Join(root, "sys/bus/gpio/devices", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b := newWith(Config{}, chips, func(string) (uint32, error) { return 0, nil })
	for _, tool := range []string{"gpio_2_read", "gpiochip3_read", "gpiochip4_read", "gpio_3_read"} {
		if got := call(t, b, tool, `{"line":"LINE"}`); got != `{"line":"LINE","value":false}` {
			t.Errorf("%s: %s", tool, got)
		}
	}
}

// TestConfig: what cannot work is an error.
func TestConfig(t *testing.T) {
	for _, c := range []Config{{Lines: []string{"["}}, {Poll: time.Millisecond}, {Poll: -1}} {
		if c.Check() == nil {
			t.Errorf("%+v is valid", c)
		}
	}
	if err := (Config{Lines: []string{"GPIO*"}, Poll: time.Second}).Check(); err != nil {
		t.Error(err)
	}
}

// TestJPEG: a frame becomes a JPEG file, or an error if the driver's numbers do not fit.
func TestJPEG(t *testing.T) {
	f := &frame{format: formatYUYV, width: 4, height: 2, stride: 8, data: slices.Repeat([]byte{200, 90, 100, 160}, 4)}
	data, err := f.jpeg()
	if err != nil || !strings.HasPrefix(string(data), "\xff\xd8") {
		t.Errorf("%x, %v", data, err)
	}
	for _, change := range []func(f *frame){
		func(f *frame) { f.data = f.data[:15] }, func(f *frame) { f.stride = 4 }, func(f *frame) { f.width = 1 << 20 }, func(f *frame) { f.height = -1 },
	} {
		broken := *f
		change(&broken)
		if _, err := broken.jpeg(); err == nil {
			t.Errorf("%+v is a picture", broken)
		}
	}
	whole := []byte("\xff\xd8 picture \xff\xd9")
	if got, err := (&frame{format: formatMJPEG, data: append(slices.Clone(whole), 0, 0)}).jpeg(); err != nil || !slices.Equal(got, whole) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := (&frame{format: formatMJPEG, data: whole[:5]}).jpeg(); err == nil {
		t.Error("a picture without an end is whole")
	}
}

// FuzzFrame: no frame of a driver makes the program panic.
func FuzzFrame(f *testing.F) {
	f.Add([]byte("\xff\xd8\xff\xd9"), 2, 2, 4, true)
	f.Add(make([]byte, 64), 4, 2, 8, false)
	f.Fuzz(func(t *testing.T, data []byte, width, height, stride int, compressed bool) {
		format := formatYUYV
		if compressed {
			format = formatMJPEG
		}
		if len(data) > 1<<16 {
			return
		}
		(&frame{format: format, width: width, height: height, stride: stride, data: data}).jpeg()
	})
}

// FuzzSysfs: no content of a file makes reading a sensor panic or return what JSON cannot hold.
func FuzzSysfs(f *testing.F) {
	f.Add("in_temp_raw", "1", "2", "3")
	f.Add("in_voltage1-voltage2_raw", "1e308", "1e308", "-")
	f.Fuzz(func(t *testing.T, file, raw, scale, offset string) {
		m := iioChannel.FindStringSubmatch(file)
		if m == nil || len(file) > 200 || strings.ContainsAny(file, "/\x00") {
			return
		}
		dir := t.TempDir()
		all := map[string]string{file: raw, "in_scale": scale, "in_offset": offset}
		for name, text := range all {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		c := iioChannelOf(dir, file, m[1], m[2], slices.Collect(maps.Keys(all)))
		if v, err := c.read(); err == nil {
			if _, err := json.Marshal(v); err != nil {
				t.Errorf("%q: %v", all, err)
			}
		}
	})
}
