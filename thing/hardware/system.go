package hardware

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/kernelfs"
	"github.com/ferrulehq/ferrule/thing"
)

// SystemConfig configures the tool about the computer. A field that is not set has the default
// that its comment names.
type SystemConfig struct {
	// Name is the prefix of the tool. Default: system.
	Name string
	// Disk is the folder whose file system is measured. Default: the root.
	Disk string
	// Poll is the interval at which the gateway records the numbers. Default: never.
	Poll time.Duration
}

// SystemInfo describes the computer.
type SystemInfo struct {
	Model           string  `json:"model,omitempty" jsonschema:"the name of the board"`
	Processors      int     `json:"processors"`
	Uptime          float64 `json:"uptime_seconds"`
	Load1           float64 `json:"load_1m"`
	Load5           float64 `json:"load_5m"`
	Load15          float64 `json:"load_15m"`
	MemoryTotal     int64   `json:"memory_total_bytes"`
	MemoryAvailable int64   `json:"memory_available_bytes"`
	DiskTotal       int64   `json:"disk_total_bytes"`
	DiskFree        int64   `json:"disk_free_bytes"`
	// Celsius is the highest temperature of all zones; nil if there is none.
	Celsius *float64 `json:"celsius,omitempty" jsonschema:"the highest temperature of processor and board"`
}

// System adds the tool NAME_info to a device. It returns a [SystemInfo].
func System(d *thing.Device, config SystemConfig) error {
	if _, err := ReadSystem(config); err != nil {
		return err
	}
	t := naming(config.Name, "", "system", "")
	thing.Tool(d, t.tool("info"), "Get uptime, load, memory, disk space and temperature of the computer", func(context.Context, struct{}) (SystemInfo, error) {
		return ReadSystem(config)
	}, thing.Reads(), thing.Polled(config.Poll))
	return nil
}

// ReadSystem describes the computer.
func ReadSystem(config SystemConfig) (SystemInfo, error) {
	info := SystemInfo{Processors: runtime.NumCPU()}
	if !supported {
		return info, ErrSystem
	}
	info.Model, _ = kernelfs.Text(kernelfs.Path("proc/device-tree/model")) // only some boards have it
	info.Model = strings.Trim(shortened(info.Model), "\x00")
	disk := config.Disk
	if disk == "" {
		disk = kernelfs.Root
	}
	var err error
	if info.DiskTotal, info.DiskFree, err = diskSpace(disk); err != nil {
		return info, fmt.Errorf("measuring %s: %w", disk, err)
	}
	uptime, err := kernelfs.Text(kernelfs.Path("proc/uptime"))
	if err == nil {
		err = parseNumbers(uptime, &info.Uptime)
	}
	if err != nil {
		return info, fmt.Errorf("reading the uptime: %w", err)
	}
	load, err := kernelfs.Text(kernelfs.Path("proc/loadavg"))
	if err == nil {
		err = parseNumbers(load, &info.Load1, &info.Load5, &info.Load15)
	}
	if err != nil {
		return info, fmt.Errorf("reading the load: %w", err)
	}
	memory, err := kernelfs.Text(kernelfs.Path("proc/meminfo"))
	if err == nil {
		info.MemoryTotal, info.MemoryAvailable, err = parseMemory(memory)
	}
	if err != nil {
		return info, fmt.Errorf("reading the memory: %w", err)
	}
	info.Celsius = hottest()
	return info, nil
}

// parseNumbers parses the first fields of a text.
func parseNumbers(text string, values ...*float64) (err error) {
	fields := strings.Fields(text)
	if len(fields) < len(values) {
		return fmt.Errorf("expected %d numbers, got %q", len(values), shortened(text))
	}
	for i, v := range values {
		if *v, err = strconv.ParseFloat(fields[i], 64); err != nil || math.IsNaN(*v) || math.IsInf(*v, 0) {
			return fmt.Errorf("%q is not a number", shortened(fields[i]))
		}
	}
	return nil
}

// parseMemory returns two lines of /proc/meminfo in bytes.
func parseMemory(text string) (total, available int64, err error) {
	found := 0
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		value := map[string]*int64{"MemTotal:": &total, "MemAvailable:": &available}[fields[0]]
		if value == nil {
			continue
		}
		n, err := strconv.ParseInt(fields[1], 10, 52)
		if err != nil {
			return 0, 0, err
		}
		*value = n << 10 // from KiB
		found++
	}
	if found != 2 {
		return 0, 0, errors.New("MemTotal or MemAvailable is missing")
	}
	return total, available, nil
}

// hottest returns the highest temperature of all zones, or nil.
func hottest() (celsius *float64) {
	files, err := filepath.Glob(kernelfs.Path("sys/class/thermal/thermal_zone*/temp"))
	if err != nil {
		return nil
	}
	for _, file := range files {
		milli, err := kernelfs.Integer(file)
		if err != nil {
			continue // the zone is disabled
		}
		if c := float64(milli) / 1000; c > -100 && c < 300 && (celsius == nil || c > *celsius) {
			celsius = &c
		}
	}
	return celsius
}
