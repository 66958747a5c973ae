//go:build linux

package linux

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/kernelfs"
)

// channel is a number that a sensor measures.
type channel struct {
	member string // with its unit
	read   func() (float64, error)
}

// round removes the digits that a multiplication has added.
func round(n float64) float64 {
	if n == 0 || math.IsInf(n, 0) {
		return n
	}
	digits := math.Pow(10, 9-math.Ceil(math.Log10(math.Abs(n))))
	if r := math.Round(n*digits) / digits; r-r == 0 {
		return r
	}
	return n
}

// sensor returns a part with a polled tool that reads all channels. A channel that cannot be
// read is left out, if another one can.
func (b *Board) sensor(name, what string, channels []channel) *part {
	if len(channels) == 0 {
		return nil
	}
	members := make([]string, len(channels))
	for i, c := range channels {
		members[i] = c.member
	}
	text := fmt.Sprintf("Read %s: %s", what, strings.Join(members, ", "))
	return &part{name: name, what: what, actions: []string{""}, declare: func(t *partTools) {
		reads(t, "", text, func(ctx context.Context) (map[string]float64, error) {
			values := make(map[string]float64, len(channels))
			var failed error
			for _, c := range channels {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				v, err := c.read()
				if err != nil {
					failed = cmp.Or(failed, err)
					continue
				}
				values[c.member] = v
			}
			if len(values) == 0 {
				return nil, fmt.Errorf("%s cannot be read: %w", what, cmp.Or(failed, errors.New("it has no channel")))
			}
			return values, nil
		})
	}}
}

// sortChannels orders channels by name, gives each its own, and limits their number to what a gateway
// records of one answer.
func sortChannels(all []channel) []channel {
	slices.SortStableFunc(all, func(a, b channel) int { return natural(a.member, b.member) })
	seen := make(map[string]bool)
	all = slices.DeleteFunc(all, func(c channel) bool {
		twice := seen[c.member]
		seen[c.member] = true
		return twice
	})
	return all[:min(len(all), maxChannels)]
}

const maxChannels = 64

var (
	hwmonChannel = regexp.MustCompile(`^(in|temp|fan|curr|power|energy|humidity)([0-9]+)_(input|average)$`)
	hwmonUnits   = map[string]unit{
		"in": {"volts", 1e-3}, "temp": {"celsius", 1e-3}, "fan": {"rpm", 1}, "curr": {"amps", 1e-3},
		"power": {"watts", 1e-6}, "energy": {"joules", 1e-6}, "humidity": {"percent", 1e-3},
	}
)

// findHwmon finds a chip of the class hwmon, unless it is the mirror of a thermal zone.
func (b *Board) findHwmon(dir string) (*part, error) {
	if device, err := filepath.EvalSymlinks(filepath.Join(dir, "device")); err == nil && strings.HasPrefix(filepath.Base(device), "thermal_zone") {
		return nil, nil
	}
	name, err := kernelfs.Text(dir, "name")
	if err != nil {
		return nil, err
	}
	var channels []channel
	for _, file := range files(dir) {
		m := hwmonChannel.FindStringSubmatch(file)
		if m == nil {
			continue
		}
		u, id := hwmonUnits[m[1]], m[1]+m[2]
		label, _ := kernelfs.Text(dir, id+"_label") // most have none
		channels = append(channels, channel{u.member(cmp.Or(slug(label), id)), func() (float64, error) {
			n, err := kernelfs.Number(dir, file)
			return round(n * u.scale), err
		}})
	}
	return b.sensor(placeName(name, dir), "the hardware monitor "+clean(name), sortChannels(channels)), nil
}

// findThermal finds a thermal zone.
func (b *Board) findThermal(dir string) (*part, error) {
	kind, err := kernelfs.Text(dir, "type")
	if err != nil {
		return nil, err
	}
	name := slug(kind)
	if !strings.Contains(name, "therm") && !strings.Contains(name, "temp") {
		name = slug("thermal " + kind)
	}
	return b.sensor(name, "the temperature of "+clean(kind), []channel{{"celsius", func() (float64, error) {
		n, err := kernelfs.Number(dir, "temp")
		return round(n / 1000), err
	}}}), nil
}

var (
	iioChannel = regexp.MustCompile(`^in_(([a-z]+)([0-9]*)[a-z0-9_&-]*?)_(raw|input)$`)
	// The units of IIO, as its ABI defines them for raw values after offset and scale, and for
	// processed ones.
	iioUnits = map[string]unit{
		"voltage": {"volts", 1e-3}, "altvoltage": {"volts", 1e-3}, "current": {"amps", 1e-3}, "power": {"watts", 1e-3},
		"capacitance": {"nanofarads", 1}, "resistance": {"ohms", 1}, "temp": {"celsius", 1e-3}, "humidityrelative": {"percent", 1e-3},
		"pressure": {"kilopascals", 1}, "illuminance": {"lux", 1}, "accel": {"meters_per_s2", 1}, "gravity": {"meters_per_s2", 1},
		"anglvel": {"rad_per_s", 1}, "magn": {"gauss", 1}, "angl": {"radians", 1}, "rot": {"degrees", 1}, "incli": {"degrees", 1},
		"distance": {"meters", 1}, "proximity": {"meters", 1}, "concentration": {"percent", 1}, "ph": {"ph", 1}, "velocity": {"meters_per_s", 1},
		"energy": {"joules", 1}, "electricalconductivity": {"siemens_per_m", 1}, "massconcentration": {"ug_per_m3", 1}, "activity": {"percent", 1}, "steps": {"", 1},
	}
)

// findIIO finds a sensor of the class iio. Outputs, which are converters from digital to analog,
// are left alone.
func (b *Board) findIIO(dir string) (*part, error) {
	name, err := kernelfs.Text(dir, "name")
	if err != nil {
		return nil, err
	}
	present := files(dir)
	var channels []channel
	for _, file := range present {
		m := iioChannel.FindStringSubmatch(file)
		if m == nil || m[4] == "raw" && slices.Contains(present, "in_"+m[1]+"_input") {
			continue
		}
		channels = append(channels, iioChannelOf(dir, file, m[1], m[2], present))
	}
	return b.sensor(placeName(name, dir), "the sensor "+clean(name), sortChannels(channels)), nil
}

// iioChannelOf returns a channel of an IIO device. ID is its name, such as accel_x, and kind
// what it measures, such as accel.
func iioChannelOf(dir, file, id, kind string, present []string) channel {
	u, known := iioUnits[kind]
	raw := strings.HasSuffix(file, "_raw")
	scale, offset := "", ""
	if raw {
		scale, offset = shared(id, kind, "scale", present), shared(id, kind, "offset", present)
	}
	if !known || raw && scale == "" && (kind == "proximity" || kind == "voltage" || kind == "concentration") { // a bare number of the converter
		u = unit{"raw", 1}
	}
	return channel{u.member(slug(id)), func() (float64, error) {
		n, err := kernelfs.Number(dir, file)
		if err != nil {
			return 0, err
		}
		if offset != "" {
			o, err := kernelfs.Number(dir, offset)
			if err != nil {
				return 0, err
			}
			n += o
		}
		if scale != "" {
			s, err := kernelfs.Number(dir, scale)
			if err != nil {
				return 0, err
			}
			n *= s
		}
		if n *= u.scale; n-n != 0 { // not finite
			return 0, fmt.Errorf("the value of %s is out of range", file)
		}
		return round(n), nil
	}}
}

// shared returns the file with the scale or offset of a channel: its own, or that of all
// channels of its kind; "" if there is none.
func shared(id, kind, what string, present []string) string {
	candidates := []string{"in_" + id + "_" + what}
	if a, b, differential := strings.Cut(id, "-"); differential {
		candidates = append(candidates, "in_"+digits.ReplaceAllString(a, "")+"-"+digits.ReplaceAllString(b, "")+"_"+what)
	}
	for _, file := range append(candidates, "in_"+kind+"_"+what, "in_"+what) {
		if slices.Contains(present, file) {
			return file
		}
	}
	return ""
}

// files returns the names of the files in a directory.
func files(dir string) (names []string) {
	entries, _ := os.ReadDir(dir) // one that vanishes has none
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
