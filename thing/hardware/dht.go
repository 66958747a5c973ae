package hardware

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/kernelfs"
	"github.com/ferrulehq/ferrule/thing"
)

// DHTConfig configures a DHT sensor. A field that is not set has the default that its comment
// names.
type DHTConfig struct {
	// Name is the prefix of the tool. Default: climate.
	Name string
	// Text says where the sensor is, for example "Greenhouse".
	Text string
	// Device is the sensor's folder in /sys/bus/iio/devices, such as iio:device0. Default: the
	// only DHT sensor that is connected.
	Device string
	// Poll is the interval at which the gateway records the climate. Default: never.
	Poll time.Duration
}

type climate struct {
	Celsius  float64 `json:"celsius"`
	Humidity float64 `json:"humidity_percent" jsonschema:"relative humidity"`
}

// DHT adds the tool NAME_read of a DHT11, DHT21 or DHT22 to a device. The kernel's driver dht11
// reads all three; on a Raspberry Pi it is loaded with dtoverlay=dht11,gpiopin=4.
func DHT(d *thing.Device, config DHTConfig) error {
	if !supported {
		return ErrSystem
	}
	dir, err := findDHT(config.Device)
	if err != nil {
		return err
	}
	t := naming(config.Name, config.Text, "climate", "DHT sensor "+filepath.Base(dir))
	thing.Tool(d, t.tool("read"), "Measure temperature and humidity: "+t.text, func(ctx context.Context, _ struct{}) (climate, error) {
		return readDHT(ctx, dir)
	}, thing.Reads(), thing.Polled(config.Poll))
	return nil
}

func findDHT(device string) (dir string, err error) {
	folder := kernelfs.Path("sys/bus/iio/devices")
	if device != "" {
		dir = filepath.Join(folder, filepath.Base(device))
		if _, err := os.Stat(filepath.Join(dir, "in_humidityrelative_input")); err != nil {
			return "", fmt.Errorf("%s is not a DHT sensor: %w", device, err)
		}
		return dir, nil
	}
	names, err := filepath.Glob(filepath.Join(folder, "*", "name"))
	if err != nil {
		return "", err
	}
	var found []string
	for _, file := range names {
		if isDHT(file) {
			found = append(found, filepath.Dir(file))
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%d DHT sensors in %s: expected one. Is the kernel's driver dht11 loaded? If there are several, set Device", len(found), folder)
	}
	return found[0], nil
}

// isDHT reports whether the name file of a sensor is that of a DHT sensor. Its name is that of its
// node in the device tree, usually dht11@4, but its driver has always the same name.
func isDHT(file string) bool {
	if name, err := kernelfs.Text(file); err == nil && strings.HasPrefix(name, "dht11") {
		return true
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(file))
	if err != nil {
		return false
	}
	driver, err := os.Readlink(filepath.Join(filepath.Dir(dir), "driver"))
	return err == nil && filepath.Base(driver) == "dht11"
}

// dhtAttempts is how often a sensor is read: its signal has no clock, and a busy processor
// misses parts of it.
const dhtAttempts = 4

func readDHT(ctx context.Context, dir string) (climate, error) {
	var last error
	for attempt := range dhtAttempts {
		if attempt > 0 {
			select {
			case <-ctx.Done():
				return climate{}, errors.Join(ctx.Err(), last)
			case <-time.After(500 * time.Millisecond):
			}
		}
		t, err := kernelfs.Integer(filepath.Join(dir, "in_temp_input"))
		h := int64(0)
		if err == nil {
			h, err = kernelfs.Integer(filepath.Join(dir, "in_humidityrelative_input"))
		}
		switch {
		case err != nil:
			last = err
		case t < -40_000 || t > 125_000 || h < 0 || h > 100_000:
			last = fmt.Errorf("impossible values: %d millidegrees, %d thousandths of a percent", t, h)
		default:
			return climate{float64(t) / 1000, float64(h) / 1000}, nil
		}
	}
	return climate{}, fmt.Errorf("the DHT sensor did not answer in %d attempts: %w", dhtAttempts, last)
}
