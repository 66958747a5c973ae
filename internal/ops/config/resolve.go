package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Overrides is what a command line adds to a configuration file.
type Overrides struct {
	// File is the configuration file; FERRULE_CONFIG or DefaultPath if empty.
	File string
	// Listen is HOST:PORT for agents; FERRULE_LISTEN or the file's if empty.
	Listen string
	// DeviceListen and DeviceURL are for devices that dial in; FERRULE_DEVICE_LISTEN
	// and FERRULE_DEVICE_URL or the file's if empty.
	DeviceListen, DeviceURL string
	// Serial is a list of [NAME=]PORT[@BAUD], TCP of [NAME=]HOST:PORT, HTTP, MQTT
	// and HomeAssistant of [NAME=]URL.
	Serial, TCP, HTTP, MQTT, HomeAssistant []string
}

// Resolve combines the configuration file, the environment and the command line, and
// checks the result. Devices add up; other flags win over variables, and variables
// over the file.
func Resolve(o Overrides) (Config, error) {
	c, err := LoadDefault(o.File)
	if err != nil {
		return c, fmt.Errorf("reading the configuration: %w", err)
	}
	c.Listen = cmp.Or(o.Listen, os.Getenv("FERRULE_LISTEN"), c.Listen)
	c.DialIn.Listen = cmp.Or(o.DeviceListen, os.Getenv("FERRULE_DEVICE_LISTEN"), c.DialIn.Listen)
	c.DialIn.URL = cmp.Or(o.DeviceURL, os.Getenv("FERRULE_DEVICE_URL"), c.DialIn.URL)
	if err := c.Devices.addFlags(o); err != nil {
		return c, err
	}
	if err := c.Devices.AddEnvironment(); err != nil {
		return c, err
	}
	return c, c.Check()
}

// DefaultPath returns the file that is read if it exists and no other is named, or ""
// if the user has no configuration directory.
func DefaultPath() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "ferrule", "ferrule.yaml")
}

// Path returns the absolute path of the file that LoadDefault reads, or "" if it reads
// none.
func Path(file string) string {
	file = cmp.Or(file, os.Getenv("FERRULE_CONFIG"), DefaultPath())
	if _, err := os.Stat(file); err != nil {
		return ""
	}
	path, err := filepath.Abs(file)
	if err != nil {
		return ""
	}
	return path
}

// LoadDefault reads a file; if it is empty, the one that FERRULE_CONFIG names; else the
// one at DefaultPath, if it exists.
func LoadDefault(file string) (Config, error) {
	if file = cmp.Or(file, os.Getenv("FERRULE_CONFIG")); file != "" {
		return Load(file)
	}
	path := DefaultPath()
	c, err := Load(path)
	if errors.Is(err, os.ErrNotExist) {
		c = Default()
		c.Overlays, c.Policy.Dir = filepath.Join(filepath.Dir(path), c.Overlays), filepath.Join(filepath.Dir(path), c.Policy.Dir)
		return c, nil
	}
	return c, err
}

// addFlags adds the devices of a command line.
func (d *Devices) addFlags(o Overrides) error {
	for _, text := range o.Serial {
		name, port, err := splitName("--serial", text)
		if err != nil {
			return err
		}
		dev := SerialDevice{Name: name, Port: port}
		if at := strings.LastIndexByte(port, '@'); at >= 0 {
			if dev.Baud, err = strconv.Atoi(port[at+1:]); err != nil || dev.Baud < 1 {
				return fmt.Errorf("--serial %s: after @ must be a bit rate such as 115200, got %q", text, port[at+1:])
			}
			dev.Port = port[:at]
		}
		d.Serial = append(d.Serial, dev)
	}
	for _, text := range o.TCP {
		name, address, err := splitName("--tcp", text)
		if err != nil {
			return err
		}
		d.TCP = append(d.TCP, TCPDevice{Name: name, Address: address})
	}
	for _, text := range o.HTTP {
		name, url, err := splitURL("--http", text)
		if err != nil {
			return err
		}
		d.HTTP = append(d.HTTP, HTTPDevice{Name: name, URL: url})
	}
	for _, text := range o.MQTT {
		name, url, err := splitURL("--mqtt", text)
		if err != nil {
			return err
		}
		d.addBroker(Broker{Name: name, URL: url})
	}
	for _, text := range o.HomeAssistant {
		name, url, err := splitURL("--homeassistant", text)
		if err != nil {
			return err
		}
		d.addHome(Home{Name: name, URL: url})
	}
	return nil
}

// addBroker adds a broker, unless the file has it and says more about it.
func (d *Devices) addBroker(b Broker) {
	want := b.withDefaults()
	if !slices.ContainsFunc(d.MQTT, func(other Broker) bool {
		return other.withDefaults().URL == want.URL && (b.Name == "" || b.Name == other.withDefaults().Name)
	}) {
		d.MQTT = append(slices.Clip(d.MQTT), b)
	}
}

// splitURL splits [name=]URL.
func splitURL(flag, text string) (name, url string, err error) {
	if before, _, ok := strings.Cut(text, "="); !ok || strings.Contains(before, ":") { // the = is part of the URL
		return "", text, nil
	}
	return splitName(flag, text)
}

// splitName splits [name=]address.
func splitName(flag, text string) (name, address string, err error) {
	name, address, named := strings.Cut(text, "=")
	switch {
	case !named:
		return "", text, nil
	case name == "":
		return "", "", fmt.Errorf("%s %s: the name before = is empty", flag, text)
	}
	return name, address, nil
}
