package hardware

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing"
)

// TestKernelPWM drives a PCA9685 by the kernel's driver. The chip is a stub on I2C, so that its
// registers can be read afterwards.
func TestKernelPWM(t *testing.T) {
	bus := stubBus(t)
	devices := fmt.Sprintf("/sys/bus/i2c/devices/i2c-%d/", bus)
	board := thing.New("board", "1")
	if _, err := I2C(board, bus, I2CConfig{Name: "bus"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/sys/bus/i2c/drivers/pca9685-pwm"); err != nil {
		t.Skipf("needs the kernel's pwm-pca9685, and i2c-stub with chip_addr=0x40: %v", err)
	}
	nothing := `{"bytes":[],"hex":""}`
	want(t, board, "bus_transfer", `{"address":64,"bytes":[254,30]}`, nothing) // 200 Hz, as the chip has when it starts
	for channel := range 16 {
		want(t, board, "bus_transfer", fmt.Sprintf(`{"address":64,"bytes":[%d,16]}`, 9+4*channel), nothing) // off
	}
	write(t, devices+"new_device", "pca9685 0x40\n")
	deleted := false
	unplug := func() {
		if !deleted {
			deleted = true
			write(t, devices+"delete_device", "0x40\n")
		}
	}
	defer unplug()
	chips, err := filepath.Glob("/sys/class/pwm/pwmchip*")
	if err != nil || len(chips) != 1 {
		t.Fatalf("chips: %v, %v", chips, err)
	}
	chip := filepath.Base(chips[0])
	if _, err := PWM(board, chip, 0, PWMConfig{Name: "fan", Frequency: 50, MinFrequency: 24, MaxFrequency: 10_000}); err != nil {
		t.Fatal(err)
	}
	if _, err := Servo(board, chip, 1, ServoConfig{Name: "vent"}); err != nil {
		t.Fatal(err)
	}
	// The driver calls a channel on that has a duty of 0, and its channels share one frequency.
	wantFailed(t, board, "fan_write", `{"duty":25}`, "stop the others")
	for _, name := range []string{"fan_stop", "vent_stop"} {
		if state, err := call(t, board, name, `{}`); err != nil || !strings.HasPrefix(state, `{"on":false,"duty":0,`) {
			t.Errorf("%s: got %s, %v", name, state, err)
		}
	}
	want(t, board, "fan_write", `{"duty":25}`, `{"on":true,"duty":25,"frequency_hz":50}`)
	want(t, board, "vent_write", `{"angle":90}`, `{"angle":90,"pulse_us":1472}`)
	wantFailed(t, board, "fan_write", `{"duty":25,"frequency_hz":5000}`, "setting period") // more than the chip can
	want(t, board, "vent_stop", `{}`, `{"on":false,"duty":7.36,"frequency_hz":50}`)
	want(t, board, "fan_read", `{}`, `{"on":true,"duty":0.25,"frequency_hz":50}`) // why that is not a refusal
	want(t, board, "fan_write", `{"duty":50}`, `{"on":true,"duty":50,"frequency_hz":50}`)
	wantRefused(t, board, "bus_transfer", `{"address":64,"bytes":[254],"count":1}`, "driver")

	registers := text(t, fmt.Sprintf("/sys/kernel/debug/regmap/%d-0040/registers", bus))
	for register, value := range map[string]string{
		"fe": "79",             // 25 MHz / 4096 / 50 Hz - 1
		"08": "00", "09": "08", // the fan: off at 2048 of 4096
		"0d": "10", // the servo: off
	} {
		if !strings.Contains(registers, register+": "+value+"\n") {
			t.Errorf("register %s is not %s in\n%s", register, value, registers)
		}
	}
	unplug()
	wantRefused(t, board, "fan_write", `{"duty":10}`, "no such file")
	want(t, board, "bus_transfer", `{"address":64,"bytes":[9],"count":1}`, `{"bytes":[16],"hex":"10"}`) // the driver switched it off
}

// TestKernelLEDs sends colors through the kernel's spidev. The controller is spi-sink of
// internal/testenv/board, which keeps what was sent.
func TestKernelLEDs(t *testing.T) {
	const sink = "/sys/kernel/debug/spi-sink"
	if _, err := os.Stat(sink); err != nil {
		t.Skipf("needs spi-sink: %v", err)
	}
	board := thing.New("board", "1")
	if _, err := LEDs(board, "spidev0.0", 435, StripConfig{}); err != nil {
		t.Fatal(err)
	}
	if got := text(t, sink+"/sent"); got != "" {
		t.Errorf("opening the strip sent %d bytes", len(got))
	}
	want(t, board, "leds_set", `{"index":434,"red":1,"green":2,"blue":255}`, `{"count":435,"brightness":255,"shown":true}`)
	colors := decodeFrame(t, []byte(text(t, sink+"/sent")))
	if len(colors) != 3*435 || !bytes.Equal(colors[3*434:], []byte{2, 1, 255}) || bytes.ContainsFunc(colors[:3*434], func(r rune) bool { return r != 0 }) {
		t.Errorf("sent % x", colors)
	}
	if got := strings.TrimSpace(text(t, sink+"/speed")); got != "2400000" {
		t.Errorf("sent at %s Hz", got)
	}
	if _, err := LEDs(thing.New("board", "1"), "spidev0.0", 436, StripConfig{}); err == nil {
		t.Error("a strip was accepted that does not fit into a transfer")
	}
}

// TestKernelWiFi joins an ad hoc network of the kernel's mac80211_hwsim.
func TestKernelWiFi(t *testing.T) {
	if _, err := os.Stat("/sys/class/net/hwsim0"); err != nil {
		t.Skipf("needs the kernel's mac80211_hwsim: %v", err)
	}
	board := thing.New("board", "1")
	if err := WiFi(board, WiFiConfig{Interface: "wlan0"}); err != nil {
		t.Fatal(err)
	}
	if info, err := ReadWiFi(WiFiConfig{Interface: "wlan0"}); err != nil || info.Connected || info.SSID != "" || info.MAC == "" {
		t.Errorf("before: %+v, %v", info, err)
	}
	joinAdHoc(t, "wlan0", "Gew\u00e4chshaus")
	wait.For(t, "it joins the network", func() bool {
		info, err := ReadWiFi(WiFiConfig{}) // the first that has Wi-Fi
		if err != nil {
			t.Fatal(err)
		}
		return info.Connected && info.SSID == "Gew\u00e4chshaus" && info.Frequency == 2412 && info.Interface == "wlan0"
	})
}

// joinAdHoc makes an interface join a network without an access point, on channel 1.
func joinAdHoc(t *testing.T, name, ssid string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	set := func(what string, request uintptr, value unsafe.Pointer) {
		t.Helper()
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(value)); errno != 0 {
			t.Fatalf("%s: %v", what, errno)
		}
	}
	mode := frequencyRequest{mantissa: 1} // the number of the mode has the same place
	copy(mode.name[:], name)
	set("mode", 0x8b06, unsafe.Pointer(&mode))
	flags, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	flags.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, flags); err != nil {
		t.Fatal(err)
	}
	channel := frequencyRequest{mantissa: 2412, exponent: 6}
	copy(channel.name[:], name)
	set("channel", 0x8b04, unsafe.Pointer(&channel))
	bytes := []byte(ssid)
	var network wirelessRequest
	copy(network.name[:], name)
	network.data.pointer, network.data.length, network.data.flags = &bytes[0], uint16(len(bytes)), 1
	set("network", 0x8b1a, unsafe.Pointer(&network))
}

// TestKernelOneWire measures with a simulated DS18B20, by the kernel's driver. The bus is w1-sim
// of internal/testenv/board.
func TestKernelOneWire(t *testing.T) {
	const bus = "/sys/module/w1_sim/parameters/"
	if _, err := os.Stat(bus); err != nil {
		t.Skipf("needs w1-sim: %v", err)
	}
	wait.For(t, "the bus is searched", func() bool {
		ids, err := FindOneWire()
		if err != nil {
			t.Fatal(err)
		}
		return len(ids) == 1 && ids[0] == "28-0316a2794bff"
	})
	board := thing.New("board", "1")
	if err := OneWire(board, "", OneWireConfig{Name: "tank"}); err != nil {
		t.Fatal(err)
	}
	want(t, board, "tank_read", `{}`, `{"celsius":23.125}`)
	write(t, bus+"raw", "-162")
	want(t, board, "tank_read", `{}`, `{"celsius":-10.125}`)
	write(t, bus+"noise", "Y")
	wantFailed(t, board, "tank_read", `{}`, "28-0316a2794bff")
	write(t, bus+"noise", "N")
	want(t, board, "tank_read", `{}`, `{"celsius":-10.125}`)
}
