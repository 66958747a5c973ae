package hardware

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/kernelfs"
	"github.com/ferrulehq/ferrule/thing"
)

// tree writes files below a new folder, which is the root until the test ends.
func tree(t testing.TB, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	before := kernelfs.Root
	t.Cleanup(func() { kernelfs.Root = before })
	kernelfs.Root = root
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func text(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// call calls a tool and returns its result as JSON.
func call(t *testing.T, d *thing.Device, tool, args string) (string, error) {
	t.Helper()
	result, err := d.Call(context.Background(), tool, json.RawMessage(args))
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	return string(data), nil
}

// want calls a tool and compares its result.
func want(t *testing.T, d *thing.Device, tool, args, result string) {
	t.Helper()
	if got, err := call(t, d, tool, args); err != nil || got != result {
		t.Errorf("%s %s: got %s, %v, want %s", tool, args, got, err, result)
	}
}

// wantRefused calls a tool that must refuse, for a reason with the given text.
func wantRefused(t *testing.T, d *thing.Device, tool, args, reason string) {
	t.Helper()
	_, err := call(t, d, tool, args)
	var refused *thing.RefusedError
	if !errors.As(err, &refused) || !strings.Contains(refused.Reason, reason) {
		t.Errorf("%s %s: got %v, want a refusal with %q", tool, args, err, reason)
	}
}

// wantFailed calls a tool that must fail without the claim that nothing was done.
func wantFailed(t *testing.T, d *thing.Device, tool, args, reason string) {
	t.Helper()
	_, err := call(t, d, tool, args)
	var refused *thing.RefusedError
	if err == nil || errors.As(err, &refused) || !strings.Contains(err.Error(), reason) {
		t.Errorf("%s %s: got %v, want a failure with %q", tool, args, err, reason)
	}
}

// wantEffects compares the effects of a device's tools: reads, idempotent, endangers, changes.
func wantEffects(t *testing.T, d *thing.Device, effects map[string]string) {
	t.Helper()
	got := make(map[string]string)
	for _, tool := range d.Tools() {
		effect := "changes"
		switch {
		case tool.Reads:
			effect = "reads"
		case tool.Endangers:
			effect = "endangers"
		case tool.Idempotent:
			effect = "idempotent"
		}
		got[tool.Name] = effect
	}
	if !maps.Equal(got, effects) {
		t.Errorf("effects: got %v, want %v", got, effects)
	}
}

func pwmTree(t testing.TB) (root, dir string) {
	root = tree(t, map[string]string{
		"sys/class/pwm/pwmchip0/npwm":            "2\n",
		"sys/class/pwm/pwmchip0/export":          "",
		"sys/class/pwm/pwmchip0/pwm1/period":     "0\n",
		"sys/class/pwm/pwmchip0/pwm1/duty_cycle": "0\n",
		"sys/class/pwm/pwmchip0/pwm1/enable":     "0\n",
	})
	return root, filepath.Join(root, "sys/class/pwm/pwmchip0/pwm1")
}

func TestPWM(t *testing.T) {
	_, dir := pwmTree(t)
	board := thing.New("board", "1")
	if _, err := PWM(board, "pwmchip0", 1, PWMConfig{Name: "fan", Endangers: true, MinFrequency: 100, MaxFrequency: 25_000}); err != nil {
		t.Fatal(err)
	}
	wantEffects(t, board, map[string]string{"fan_read": "reads", "fan_write": "endangers", "fan_stop": "idempotent"})
	if got := text(t, dir+"/enable"); got != "0\n" {
		t.Errorf("opening it wrote %q to enable", got)
	}
	want(t, board, "fan_read", `{}`, `{"on":false,"duty":0,"frequency_hz":0}`)
	want(t, board, "fan_write", `{"duty":25}`, `{"on":true,"duty":25,"frequency_hz":1000}`)
	want(t, board, "fan_write", `{"duty":50,"frequency_hz":25000}`, `{"on":true,"duty":50,"frequency_hz":25000}`)
	if period, width := text(t, dir+"/period"), text(t, dir+"/duty_cycle"); period != "40000" || width != "20000" {
		t.Errorf("period %s, width %s", period, width)
	}
	want(t, board, "fan_stop", `{}`, `{"on":false,"duty":50,"frequency_hz":25000}`)
	for args, reason := range map[string]string{
		`{"duty":101}`:                   "100",
		`{"duty":-1}`:                    "0",
		`{}`:                             "duty",
		`{"duty":1,"frequency_hz":50}`:   "100",
		`{"duty":1,"frequency_hz":3e4}`:  "25000",
		`{"duty":1,"frequency":"a lot"}`: "frequency",
	} {
		wantRefused(t, board, "fan_write", args, reason)
	}
	if got := text(t, dir+"/enable"); got != "0" {
		t.Errorf("a refused call switched it to %q", got)
	}
}

// TestPWMCertainty checks that a failure says whether the output was touched.
func TestPWMCertainty(t *testing.T) {
	_, dir := pwmTree(t)
	board := thing.New("board", "1")
	if _, err := PWM(board, "pwmchip0", 1, PWMConfig{Name: "fan"}); err != nil {
		t.Fatal(err)
	}
	want(t, board, "fan_write", `{"duty":10}`, `{"on":true,"duty":10,"frequency_hz":1000}`)
	out := &PWMOutput{name: "fan", dir: dir}
	os.Remove(dir + "/duty_cycle")
	if err := out.set(setting{"period", 1, 2}, setting{"duty_cycle", 1, 2}); err == nil || errors.As(err, new(*thing.RefusedError)) {
		t.Errorf("after writing the period: got %v, want a failure that is not a refusal", err)
	}
	if err := out.set(setting{"duty_cycle", 1, 2}); !errors.As(err, new(*thing.RefusedError)) {
		t.Errorf("before writing anything: got %v, want a refusal", err)
	}
	os.RemoveAll(dir)
	wantRefused(t, board, "fan_write", `{"duty":10}`, "period")
	wantRefused(t, board, "fan_stop", `{}`, "period")
}

// TestPWMOrder checks the order of writes: the kernel refuses a pulse longer than its period.
func TestPWMOrder(t *testing.T) {
	for _, c := range []struct {
		name                             string
		period, width, toPeriod, toWidth int64
	}{
		{"from nothing", 0, 0, 100, 50},
		{"shorter", 100, 90, 50, 20},
		{"longer", 50, 20, 100, 90},
		{"full", 100, 100, 100, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]int64{"period": c.period, "duty_cycle": c.width}
			for _, s := range order(times{c.period, c.width, 0}, time.Duration(c.toPeriod), time.Duration(c.toWidth)) {
				if s.file == "enable" {
					continue
				}
				if files[s.file] = s.now; files["duty_cycle"] > files["period"] {
					t.Errorf("%v after %s", files, s.file)
				}
			}
			if files["period"] != c.toPeriod || files["duty_cycle"] != c.toWidth {
				t.Errorf("got %v", files)
			}
		})
	}
}

// TestPWMExport checks that a channel is exported, and awaited.
func TestPWMExport(t *testing.T) {
	root, _ := pwmTree(t)
	chip := filepath.Join(root, "sys/class/pwm/pwmchip0")
	ended := make(chan error, 1)
	go func() { // what the kernel does
		for {
			if n, err := os.ReadFile(chip + "/export"); err != nil || string(n) == "0" {
				if err == nil {
					err = os.CopyFS(chip+"/pwm0", os.DirFS(chip+"/pwm1"))
				}
				ended <- err
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if _, err := OpenPWM("pwmchip0", 0); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for chip, channel := range map[string]int{"pwmchip0": 2, "pwmchip7": 0, "../pwmchip0": -1} {
		if _, err := OpenPWM(chip, channel); err == nil {
			t.Errorf("%s channel %d was opened", chip, channel)
		}
	}
}

func TestServo(t *testing.T) {
	_, dir := pwmTree(t)
	board := thing.New("board", "1")
	if _, err := Servo(board, "pwmchip0", 1, ServoConfig{Name: "vent"}); err != nil {
		t.Fatal(err)
	}
	wantEffects(t, board, map[string]string{"vent_write": "changes", "vent_stop": "idempotent"})
	want(t, board, "vent_write", `{"angle":90}`, `{"angle":90,"pulse_us":1472}`)
	if period, width := text(t, dir+"/period"), text(t, dir+"/duty_cycle"); period != "20000000" || width != "1472000" {
		t.Errorf("period %s, width %s", period, width)
	}
	want(t, board, "vent_write", `{"angle":0}`, `{"angle":0,"pulse_us":544}`)
	want(t, board, "vent_write", `{"angle":180}`, `{"angle":180,"pulse_us":2400}`)
	wantRefused(t, board, "vent_write", `{"angle":181}`, "180")
	wantRefused(t, board, "vent_write", `{"angle":-1}`, "0")
	if got := text(t, dir+"/duty_cycle"); got != "2400000" {
		t.Errorf("a refused angle moved the servo to %s", got)
	}
	for name, bad := range map[string]ServoConfig{
		"swapped":  {Min: 2 * time.Millisecond, Max: time.Millisecond},
		"too long": {Max: 30 * time.Millisecond},
		"negative": {Angle: -1},
	} {
		if _, err := Servo(thing.New("board", "1"), "pwmchip0", 1, bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

const goodOneWire = "72 01 4b 46 7f ff 0e 10 57 : crc=57 YES\n72 01 4b 46 7f ff 0e 10 57 t=23125\n"

func TestOneWire(t *testing.T) {
	const id = "28-0316a2794bff"
	root := tree(t, map[string]string{
		"sys/bus/w1/devices/" + id + "/w1_slave":             goodOneWire,
		"sys/bus/w1/devices/w1_bus_master1/w1_master_slaves": id + "\n",
	})
	board := thing.New("board", "1")
	if err := OneWire(board, "", OneWireConfig{Name: "tank", Poll: time.Minute}); err != nil {
		t.Fatal(err)
	}
	wantEffects(t, board, map[string]string{"tank_read": "reads"})
	if poll := board.Tools()[0].Poll; poll != time.Minute {
		t.Errorf("polled every %v", poll)
	}
	want(t, board, "tank_read", `{}`, `{"celsius":23.125}`)
	file := filepath.Join(root, "sys/bus/w1/devices", id, "w1_slave")
	for content, reason := range map[string]string{
		strings.Replace(goodOneWire, "YES", "NO", 1):           "checksum",
		strings.Replace(goodOneWire, "t=23125", "t=999999", 1): "temperature",
		strings.Replace(goodOneWire, "t=23125", "t=-55001", 1): "temperature",
		strings.Replace(goodOneWire, "t=23125", "nothing", 1):  "temperature",
		"": "checksum",
	} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		wantFailed(t, board, "tank_read", `{}`, reason)
	}
	if err := OneWire(thing.New("board", "1"), "../../etc", OneWireConfig{}); err == nil {
		t.Error("a path was accepted as an ID")
	}
	second := filepath.Join(root, "sys/bus/w1/devices/28-0316a2794c00")
	if err := os.Mkdir(second, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := OneWire(thing.New("board", "1"), "", OneWireConfig{}); err == nil || !strings.Contains(err.Error(), "28-0316a2794c00") {
		t.Errorf("two sensors, none chosen: %v", err)
	}
}

func TestDHT(t *testing.T) {
	files := map[string]string{
		"sys/bus/iio/devices/iio:device0/name":                      "bmp280\n",
		"sys/bus/iio/devices/iio:device1/name":                      "dht11@4\n",
		"sys/bus/iio/devices/iio:device1/in_temp_input":             "21400\n",
		"sys/bus/iio/devices/iio:device1/in_humidityrelative_input": "45300\n",
	}
	tree(t, files)
	board := thing.New("board", "1")
	if err := DHT(board, DHTConfig{}); err != nil {
		t.Fatal(err)
	}
	if err := DHT(board, DHTConfig{Name: "again", Device: "iio:device1"}); err != nil {
		t.Fatal(err)
	}
	wantEffects(t, board, map[string]string{"climate_read": "reads", "again_read": "reads"})
	want(t, board, "climate_read", `{}`, `{"celsius":21.4,"humidity_percent":45.3}`)
	want(t, board, "again_read", `{}`, `{"celsius":21.4,"humidity_percent":45.3}`)
	for name, device := range map[string]string{"another sensor": "iio:device0", "none": "iio:device7"} {
		if err := DHT(thing.New("board", "1"), DHTConfig{Device: device}); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	// A node of the device tree with another name.
	named := tree(t, map[string]string{
		"sys/devices/platform/air/iio:device3/name":                      "air\n",
		"sys/devices/platform/air/iio:device3/in_temp_input":             "19000\n",
		"sys/devices/platform/air/iio:device3/in_humidityrelative_input": "50000\n",
		"sys/bus/platform/drivers/dht11/uevent":                          "",
		"sys/bus/iio/devices/iio:device9/name":                           "bmp280\n",
	})
	for link, to := range map[string]string{
		"sys/devices/platform/air/driver": "../../../bus/platform/drivers/dht11",
		"sys/bus/iio/devices/iio:device3": "../../../devices/platform/air/iio:device3",
	} {
		if err := os.Symlink(to, filepath.Join(named, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := DHT(board, DHTConfig{Name: "air"}); err != nil {
		t.Fatal(err)
	}
	want(t, board, "air_read", `{}`, `{"celsius":19,"humidity_percent":50}`)
	tree(t, nil) // no hardware
	if err := DHT(thing.New("board", "1"), DHTConfig{}); err == nil || !strings.Contains(err.Error(), "dht11") {
		t.Errorf("without a sensor: %v", err)
	}
}

// TestDHTRetries checks that a failed reading is repeated, and that the caller can leave.
func TestDHTRetries(t *testing.T) {
	root := tree(t, map[string]string{
		"dht/in_temp_input":             "?\n",
		"dht/in_humidityrelative_input": "45300\n",
	})
	dir := filepath.Join(root, "dht")
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		time.AfterFunc(700*time.Millisecond, func() {
			if err := os.WriteFile(dir+"/in_temp_input", []byte("20000\n"), 0o644); err != nil {
				t.Error(err)
			}
		})
		got, err := readDHT(t.Context(), dir)
		if took := time.Since(begin); err != nil || got.Celsius != 20 || took != time.Second {
			t.Errorf("got %v, %v after %v", got, err, took)
		}
	})
	if err := os.WriteFile(dir+"/in_temp_input", []byte("999000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		if got, err := readDHT(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "impossible") {
			t.Errorf("got %v, %v", got, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := readDHT(ctx, dir); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the caller left: %v", err)
		}
	})
}

func TestSystem(t *testing.T) {
	tree(t, map[string]string{
		"proc/uptime":                           "12345.67 23456.78\n",
		"proc/loadavg":                          "0.52 0.41 0.30 1/123 4567\n",
		"proc/meminfo":                          "MemTotal:         948304 kB\nMemFree:          100000 kB\nMemAvailable:     612340 kB\n",
		"proc/device-tree/model":                "Raspberry Pi 3 Model B Plus Rev 1.3\x00",
		"sys/class/thermal/thermal_zone0/temp":  "48312\n",
		"sys/class/thermal/thermal_zone1/temp":  "51000\n",
		"sys/class/thermal/thermal_zone2/temp":  "disabled\n",
		"sys/class/thermal/cooling_device0/foo": "1\n",
	})
	board := thing.New("board", "1")
	if err := System(board, SystemConfig{}); err != nil {
		t.Fatal(err)
	}
	wantEffects(t, board, map[string]string{"system_info": "reads"})
	result, err := call(t, board, "system_info", `{}`)
	if err != nil {
		t.Fatal(err)
	}
	var got SystemInfo
	if err := json.Unmarshal([]byte(result), &got); err != nil {
		t.Fatal(err)
	}
	if got.Model != "Raspberry Pi 3 Model B Plus Rev 1.3" || got.Uptime != 12345.67 || got.Load15 != 0.3 ||
		got.MemoryTotal != 948304<<10 || got.MemoryAvailable != 612340<<10 || got.Celsius == nil || *got.Celsius != 51 ||
		got.DiskTotal < got.DiskFree || got.DiskFree <= 0 || got.Processors < 1 {
		t.Errorf("got %s", result)
	}
	tree(t, nil) // no hardware
	if err := System(thing.New("board", "1"), SystemConfig{}); err == nil {
		t.Error("a root without proc was accepted")
	}
	kernelfs.Root = "/"
	if err := System(thing.New("board", "1"), SystemConfig{}); err != nil {
		t.Errorf("this computer: %v", err)
	}
}

func TestWiFi(t *testing.T) {
	root := tree(t, map[string]string{
		"sys/class/net/eth0/operstate":      "up\n",
		"sys/class/net/wlan0/operstate":     "up\n",
		"sys/class/net/wlan0/address":       "b8:27:eb:01:02:03\n",
		"sys/class/net/wlan0/phy80211/name": "phy0\n",
		"proc/net/wireless": "Inter-| sta-|   Quality        |   Discarded packets               | Missed | WE\n" +
			" face | tus | link level noise |  nwid  crypt   frag  retry   misc | beacon | 22\n" +
			" wlan0: 0000   58.  -52.  -256        0      0      0      0    124        0\n",
	})
	board := thing.New("board", "1")
	if err := WiFi(board, WiFiConfig{}); err != nil {
		t.Fatal(err)
	}
	wantEffects(t, board, map[string]string{"wifi_status": "reads"})
	want(t, board, "wifi_status", `{}`, `{"interface":"wlan0","connected":true,"mac":"b8:27:eb:01:02:03","signal_dbm":-52,"link_quality":58}`)
	if err := os.WriteFile(root+"/proc/net/wireless", []byte("no table\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	want(t, board, "wifi_status", `{}`, `{"interface":"wlan0","connected":true,"mac":"b8:27:eb:01:02:03"}`)
	if err := WiFi(thing.New("board", "1"), WiFiConfig{Interface: "eth0"}); err == nil {
		t.Error("a cable was accepted as Wi-Fi")
	}
	if err := os.RemoveAll(root + "/sys/class/net/wlan0"); err != nil {
		t.Fatal(err)
	}
	wantFailed(t, board, "wifi_status", `{}`, "no Wi-Fi interface")
}

func TestSSID(t *testing.T) {
	for in, out := range map[string]string{
		"Home":                 "Home",
		"Caf\u00e9 \U0001f600": "Caf\u00e9 \U0001f600",
		"a\x1b[2Jb\n":          "a[2Jb",
		"a\u202eb":             "ab",
		"\xff\x00":             `"\xff\x00"`,
	} {
		if got := cleanSSID([]byte(in)); got != out {
			t.Errorf("%q: got %q, want %q", in, got, out)
		}
	}
}

func TestMissingHardware(t *testing.T) {
	board := thing.New("board", "1")
	_, gpio := GPIO(board, "gpiochip99", 0, LineConfig{})
	_, null := GPIO(board, "null", 0, LineConfig{})
	_, mode := GPIO(board, "gpiochip0", 0, LineConfig{Mode: "sideways"})
	_, chip := DescribeChip("gpiochip99")
	_, i2c := I2C(board, 99, I2CConfig{})
	_, address := I2C(board, 1, I2CConfig{Addresses: []int{0x03}})
	_, leds := LEDs(board, "spidev99.0", 8, StripConfig{})
	for name, err := range map[string]error{
		"gpiochip99": gpio, "/dev/null is not a GPIO chip": null, "sideways": mode, "gpiochip99: no such file": chip,
		"/dev/i2c-99": i2c, "0x03": address, "spidev99.0": leds,
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	tree(t, map[string]string{"sys/class/pwm/pwmchip0/npwm": "1"})
	if _, err := PWM(board, "pwmchip1", 0, PWMConfig{}); err == nil || !strings.Contains(err.Error(), "This computer has pwmchip0") {
		t.Errorf("another PWM chip: %v", err)
	}
	tree(t, nil) // no hardware
	if _, err := PWM(board, "pwmchip1", 0, PWMConfig{}); err == nil || !strings.Contains(err.Error(), "Enable PWM") {
		t.Errorf("no PWM chip: %v", err)
	}
	if tools := board.Tools(); len(tools) > 0 {
		t.Errorf("hardware that is missing has tools, such as %s", tools[0].Name)
	}
}
