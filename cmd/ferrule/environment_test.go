package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// TestEnvironment: what a user of MCP/U's client has in their agent's config goes
// on meaning what it meant.
func TestEnvironment(t *testing.T) {
	for _, test := range []struct {
		port, baud, devices string
		want                string
	}{
		{"", "", "", "[] []"},
		{"/dev/ttyUSB0", "", "", "[{/dev/ttyUSB0 115200 esp32 false }] []"},
		{"/dev/ttyUSB0", "9600", "ignored:/dev/x:9600", "[{/dev/ttyUSB0 9600 esp32 false }] []"},
		{"", "", "arm:/dev/ttyACM0:57600, plant:192.168.1.20:4242:tcp,", "[{/dev/ttyACM0 57600 arm false }] [{192.168.1.20:4242 plant false}]"},
		{"", "", "arm:COM3", "[{COM3 115200 arm false }] []"},
		{"/dev/asked", "", "", "[{/dev/asked 0  false }] []"},
		{"/dev/x", "fast", "", `SERIAL_BAUD: want a bit rate such as 115200, got "fast"`},
		{"", "", "arm", `DEVICES: want ID:PORT:BAUD or ID:HOST:PORT:tcp, got "arm"`},
		{"", "", "a:b:c", `DEVICES: want a bit rate such as 115200, got "c"`},
	} {
		t.Setenv("SERIAL_PORT", test.port)
		t.Setenv("SERIAL_BAUD", test.baud)
		t.Setenv("DEVICES", test.devices)
		var devices config.Devices
		if strings.Contains(test.port, "asked") {
			devices.Serial = []config.SerialDevice{{Port: test.port}}
		}
		err := fromEnvironment(&devices)
		got := fmt.Sprint(devices.Serial, devices.TCP)
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%+v: got %s", test, got)
		}
	}
}
