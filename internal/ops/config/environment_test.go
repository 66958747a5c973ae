package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestEnvironment checks that the variables of MCP/U's own client keep their meaning.
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
		{"/dev/configured", "", "", "[{/dev/configured 0  false }] []"},
		{"/dev/x", "fast", "", `SERIAL_BAUD: must be a bit rate such as 115200, got "fast"`},
		{"", "", "arm", `DEVICES: must be ID:PORT:BAUD or ID:HOST:PORT:tcp, got "arm"`},
		{"", "", "a:b:c", `DEVICES: must be a bit rate such as 115200, got "c"`},
	} {
		t.Setenv("SERIAL_PORT", test.port)
		t.Setenv("SERIAL_BAUD", test.baud)
		t.Setenv("DEVICES", test.devices)
		var devices Devices
		if strings.Contains(test.port, "configured") {
			devices.Serial = []SerialDevice{{Port: test.port}}
		}
		err := devices.AddEnvironment()
		got := fmt.Sprint(devices.Serial, devices.TCP)
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%+v: got %s", test, got)
		}
	}
}
