package hardware_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/ferrulehq/ferrule/internal/kernelfs"
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/hardware"
)

// A greenhouse on a Raspberry Pi: a pump, a button, a vent, a climate sensor and the computer
// itself.
func Example() {
	board := thing.New("greenhouse", "1.0.0")
	pump, err := hardware.GPIO(board, "gpiochip0", 17, hardware.LineConfig{Name: "pump", Text: "Water pump", Mode: hardware.Output, Endangers: true})
	if err != nil {
		log.Fatal(err)
	}
	defer pump.Close()
	defer pump.Write(false)
	if _, err := hardware.Servo(board, "pwmchip0", 0, hardware.ServoConfig{Name: "vent", Text: "Roof vent", Angle: 90}); err != nil {
		log.Fatal(err)
	}
	if err := hardware.DHT(board, hardware.DHTConfig{Poll: 10 * time.Second}); err != nil {
		log.Fatal(err)
	}
	if err := hardware.System(board, hardware.SystemConfig{Poll: time.Minute}); err != nil {
		log.Fatal(err)
	}
	// Serve the board; see thing and thing/mcpserver.
}

// A meter counts the pulses of a flow sensor.
func ExampleGPIO() {
	board := thing.New("meter", "1.0.0")
	flow, err := hardware.GPIO(board, "gpiochip0", 4, hardware.LineConfig{
		Name: "flow", Text: "Flow sensor", Mode: hardware.InputPullUp, Edges: true, Debounce: time.Millisecond, Poll: 10 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer flow.Close()
}

// Chips on a bus are found, read and written. Only one address may be used, and nothing there
// can do harm.
func ExampleI2C() {
	board := thing.New("sensors", "1.0.0")
	if _, err := hardware.I2C(board, 1, hardware.I2CConfig{Addresses: []int{0x48}, Safe: true}); err != nil {
		log.Fatal(err)
	}
}

// A strip of 30 LEDs on the first SPI port.
func ExampleLEDs() {
	board := thing.New("shelf", "1.0.0")
	strip, err := hardware.LEDs(board, "spidev0.0", 30, hardware.StripConfig{Name: "shelf", Brightness: 64})
	if err != nil {
		log.Fatal(err)
	}
	defer strip.Clear()
}

// A vent opens to 45 degrees. The files stand for those of a PWM chip.
func ExampleServo() {
	remove := files(map[string]string{
		"sys/class/pwm/pwmchip0/npwm":            "1",
		"sys/class/pwm/pwmchip0/pwm0/period":     "0",
		"sys/class/pwm/pwmchip0/pwm0/duty_cycle": "0",
		"sys/class/pwm/pwmchip0/pwm0/enable":     "0",
	})
	defer remove()
	board := thing.New("vent", "1.0.0")
	if _, err := hardware.Servo(board, "pwmchip0", 0, hardware.ServoConfig{Name: "vent", Angle: 90, Min: time.Millisecond, Max: 2 * time.Millisecond}); err != nil {
		log.Fatal(err)
	}
	show(board.Call(context.Background(), "vent_write", json.RawMessage(`{"angle":45}`)))
	show(board.Call(context.Background(), "vent_write", json.RawMessage(`{"angle":120}`)))
	// Output:
	// {"angle":45,"pulse_us":1500}
	// Bad params: angle must be at most 90, got 120
}

// A thermometer in a water tank. The files stand for those of the kernel's driver.
func ExampleOneWire() {
	remove := files(map[string]string{"sys/bus/w1/devices/28-0316a2794bff/w1_slave": "" +
		"72 01 4b 46 7f ff 0e 10 57 : crc=57 YES\n" +
		"72 01 4b 46 7f ff 0e 10 57 t=23125\n"})
	defer remove()
	board := thing.New("tank", "1.0.0")
	if err := hardware.OneWire(board, "28-0316a2794bff", hardware.OneWireConfig{Name: "tank", Text: "Water tank"}); err != nil {
		log.Fatal(err)
	}
	show(board.Call(context.Background(), "tank_read", nil))
	// Output: {"celsius":23.125}
}

// show prints the result of a tool.
func show(result any, err error) {
	if err != nil {
		fmt.Println(err)
		return
	}
	data, err := json.Marshal(result)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(data))
}

// files writes files below a new folder, which is the root until they are removed.
func files(texts map[string]string) (remove func()) {
	root, err := os.MkdirTemp("", "hardware")
	if err != nil {
		log.Fatal(err)
	}
	for name, text := range texts {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
	kernelfs.Root = root
	return func() {
		kernelfs.Root = "/"
		os.RemoveAll(root)
	}
}
