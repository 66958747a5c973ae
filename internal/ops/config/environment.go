package config

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// AddEnvironment adds the devices that MCP/U's own client reads from the environment:
// SERIAL_PORT with SERIAL_BAUD, or else DEVICES, a comma-separated list of
// ID:PORT:BAUD or ID:HOST:PORT:tcp. Devices that are already configured are skipped.
func (d *Devices) AddEnvironment() error {
	if port := os.Getenv("SERIAL_PORT"); port != "" {
		return d.addSerial("SERIAL_BAUD", "esp32", port, os.Getenv("SERIAL_BAUD"))
	}
	for text := range strings.SplitSeq(os.Getenv("DEVICES"), ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		parts := strings.Split(text, ":")
		switch {
		case len(parts) == 4 && parts[3] == "tcp":
			d.addTCP(parts[0], parts[1]+":"+parts[2])
		case len(parts) == 2 || len(parts) == 3:
			baud := ""
			if len(parts) == 3 {
				baud = parts[2]
			}
			if err := d.addSerial("DEVICES", parts[0], parts[1], baud); err != nil {
				return err
			}
		default:
			return fmt.Errorf("DEVICES: must be ID:PORT:BAUD or ID:HOST:PORT:tcp, got %q", text)
		}
	}
	return nil
}

func (d *Devices) addSerial(from, name, port, baud string) error {
	if slices.ContainsFunc(d.Serial, func(s SerialDevice) bool { return s.Port == port }) {
		return nil
	}
	rate, err := strconv.Atoi(cmp.Or(baud, "115200"))
	if err != nil {
		return fmt.Errorf("%s: must be a bit rate such as 115200, got %q", from, baud)
	}
	d.Serial = append(slices.Clip(d.Serial), SerialDevice{Name: name, Port: port, Baud: rate})
	return nil
}

func (d *Devices) addTCP(name, address string) {
	if !slices.ContainsFunc(d.TCP, func(t TCPDevice) bool { return t.Address == address }) {
		d.TCP = append(slices.Clip(d.TCP), TCPDevice{Name: name, Address: address})
	}
}
