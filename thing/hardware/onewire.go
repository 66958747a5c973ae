package hardware

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/kernelfs"
	"github.com/ferrulehq/ferrule/thing"
)

// OneWireConfig configures a 1-Wire thermometer. A field that is not set has the default that
// its comment names.
type OneWireConfig struct {
	// Name is the prefix of the tool. Default: temperature.
	Name string
	// Text says what is measured, for example "Water tank".
	Text string
	// Poll is the interval at which the gateway records the temperature. Default: never.
	Poll time.Duration
}

// thermometers are the families of 1-Wire sensors that the kernel's driver w1_therm reads.
var thermometers = regexp.MustCompile(`^(10|22|28|3b|42)-[0-9a-f]{12}$`)

// FindOneWire returns the IDs of the connected thermometers, such as 28-0316a2794bff.
func FindOneWire() ([]string, error) {
	if !supported {
		return nil, ErrSystem
	}
	entries, err := os.ReadDir(kernelfs.Path("sys/bus/w1/devices"))
	if err != nil {
		return nil, fmt.Errorf("looking for 1-Wire sensors: %w: is the kernel's driver loaded, for example w1-gpio?", err)
	}
	var ids []string
	for _, e := range entries {
		if thermometers.MatchString(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

type temperature struct {
	Celsius float64 `json:"celsius"`
}

// OneWire adds the tool NAME_read of a 1-Wire thermometer such as a DS18B20 to a device. Its ID
// is that of [FindOneWire]; empty means the only one that is connected. Reading takes up to a
// second.
func OneWire(d *thing.Device, id string, config OneWireConfig) error {
	ids, err := FindOneWire()
	if err != nil {
		return err
	}
	switch {
	case id != "" && !thermometers.MatchString(id):
		return fmt.Errorf("%q is not the ID of a 1-Wire thermometer, such as 28-0316a2794bff", id)
	case id == "" && len(ids) == 1:
		id = ids[0]
	case id == "":
		return fmt.Errorf("%d 1-Wire thermometers are connected: %s. Name one of them", len(ids), strings.Join(ids, ", "))
	}
	t := naming(config.Name, config.Text, "temperature", "thermometer "+id)
	thing.Tool(d, t.tool("read"), "Measure the temperature: "+t.text, func(context.Context, struct{}) (temperature, error) {
		celsius, err := ReadOneWire(id)
		return temperature{celsius}, err
	}, thing.Reads(), thing.Polled(config.Poll))
	return nil
}

// ReadOneWire measures the temperature with a 1-Wire thermometer.
func ReadOneWire(id string) (celsius float64, err error) {
	if !supported {
		return 0, ErrSystem
	}
	text, err := kernelfs.Text(filepath.Join(kernelfs.Path("sys/bus/w1/devices", filepath.Base(id)), "w1_slave"))
	if err != nil {
		return 0, fmt.Errorf("reading thermometer %s: %w", id, err)
	}
	celsius, err = parseOneWire(text)
	if err != nil {
		return 0, fmt.Errorf("reading thermometer %s: %w", id, err)
	}
	return celsius, nil
}

// parseOneWire returns the temperature in two lines such as
//
//	72 01 4b 46 7f ff 0e 10 57 : crc=57 YES
//	72 01 4b 46 7f ff 0e 10 57 t=23125
func parseOneWire(text string) (celsius float64, err error) {
	first, second, ok := strings.Cut(text, "\n")
	if !ok || !strings.HasSuffix(strings.TrimSpace(first), "YES") {
		return 0, errors.New("the checksum is wrong: check the cable and the pull-up resistor")
	}
	_, number, ok := strings.Cut(second, "t=")
	milli, err := strconv.ParseInt(strings.TrimSpace(number), 10, 32)
	if !ok || err != nil || milli < -55_000 || milli > 125_000 {
		return 0, fmt.Errorf("not a temperature between -55 and 125 degrees: %q", shortened(second))
	}
	return float64(milli) / 1000, nil
}
