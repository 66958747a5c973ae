package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// fromEnvironment adds the devices that MCP/U's own client would take from the
// environment: SERIAL_PORT, with SERIAL_BAUD, or else DEVICES, which is
// ID:PORT:BAUD or ID:HOST:PORT:tcp, with commas between. What is asked for already
// makes no difference.
func fromEnvironment(devices *config.Devices) error {
	if port := os.Getenv("SERIAL_PORT"); port != "" {
		return addSerial(devices, "SERIAL_BAUD", "esp32", port, os.Getenv("SERIAL_BAUD"))
	}
	for text := range strings.SplitSeq(os.Getenv("DEVICES"), ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		parts := strings.Split(text, ":")
		switch {
		case len(parts) == 4 && parts[3] == "tcp":
			addTCP(devices, parts[0], parts[1]+":"+parts[2])
		case len(parts) == 2 || len(parts) == 3:
			baud := ""
			if len(parts) == 3 {
				baud = parts[2]
			}
			if err := addSerial(devices, "DEVICES", parts[0], parts[1], baud); err != nil {
				return err
			}
		default:
			return fmt.Errorf("DEVICES: want ID:PORT:BAUD or ID:HOST:PORT:tcp, got %q", text)
		}
	}
	return nil
}

func addSerial(devices *config.Devices, from, name, port, baud string) error {
	if slices.ContainsFunc(devices.Serial, func(d config.SerialDevice) bool { return d.Port == port }) {
		return nil
	}
	rate, err := strconv.Atoi(cmp.Or(baud, "115200"))
	if err != nil {
		return fmt.Errorf("%s: want a bit rate such as 115200, got %q", from, baud)
	}
	devices.Serial = append(slices.Clip(devices.Serial), config.SerialDevice{Name: name, Port: port, Baud: rate})
	return nil
}

func addTCP(devices *config.Devices, name, address string) {
	if !slices.ContainsFunc(devices.TCP, func(d config.TCPDevice) bool { return d.Address == address }) {
		devices.TCP = append(slices.Clip(devices.TCP), config.TCPDevice{Name: name, Address: address})
	}
}
