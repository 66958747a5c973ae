package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// starting is what the commands that run a gateway are told.
type starting struct {
	file, listen            string
	deviceListen, deviceURL string
	serial, tcp, http       []string
	verbose                 bool
}

// flags adds the flags. Otherwise says where HTTP is served without one.
func (s *starting) flags(cmd *cobra.Command, otherwise string) {
	cmd.Flags().StringVar(&s.file, "config", "", "`FILE` to read instead of "+configName()+" (FERRULE_CONFIG)")
	cmd.Flags().StringVar(&s.listen, "listen", "", "`HOST:PORT` to serve HTTP on (FERRULE_LISTEN; "+otherwise+")")
	cmd.Flags().StringArrayVar(&s.serial, "serial", nil, "a board on a serial port, `[NAME=]PORT[@BAUD]`, or auto for those that are plugged in; may be repeated")
	cmd.Flags().StringArrayVar(&s.tcp, "tcp", nil, "a board that listens at `[NAME=]HOST:PORT`; may be repeated")
	cmd.Flags().StringArrayVar(&s.http, "http", nil, "a device that is an MCP server, `[NAME=]URL`, or auto for those that announce themselves; may be repeated")
	cmd.Flags().StringVar(&s.deviceListen, "device-listen", "", "`HOST:PORT` where voice toys and their like dial in; MQTT is at the next port (FERRULE_DEVICE_LISTEN; nowhere otherwise)")
	cmd.Flags().StringVar(&s.deviceURL, "device-url", "", "`URL` under which they reach that, such as http://192.168.1.10:3380 (FERRULE_DEVICE_URL; this machine's address otherwise)")
	cmd.Flags().BoolVarP(&s.verbose, "verbose", "v", false, "log more")
}

// config is what the file and the flags say together.
func (s *starting) config() (config.Config, error) {
	cfg, err := loadConfig(s.file)
	if err != nil {
		return cfg, fmt.Errorf("reading the config: %w", err)
	}
	cfg.Listen = cmp.Or(s.listen, os.Getenv("FERRULE_LISTEN"), cfg.Listen)
	cfg.DialIn.Listen = cmp.Or(s.deviceListen, os.Getenv("FERRULE_DEVICE_LISTEN"), cfg.DialIn.Listen)
	cfg.DialIn.URL = cmp.Or(s.deviceURL, os.Getenv("FERRULE_DEVICE_URL"), cfg.DialIn.URL)
	if err := name(&cfg.Devices, s.serial, s.tcp, s.http); err != nil {
		return cfg, err
	}
	if err := fromEnvironment(&cfg.Devices); err != nil {
		return cfg, err
	}
	return cfg, cfg.Check()
}

// log is where the gateway logs to.
func (s *starting) log(w io.Writer) *slog.Logger {
	level := slog.LevelInfo
	if s.verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// configName is the default file as help shows it, the same for everyone.
func configName() string { return "ferrule/ferrule.yaml in the configuration directory" }

// loadConfig reads the file that is named, else the one in its usual place if
// there is one.
func loadConfig(file string) (config.Config, error) {
	if file = cmp.Or(file, os.Getenv("FERRULE_CONFIG")); file != "" {
		return config.Load(file)
	}
	usual := defaultConfig()
	cfg, err := config.Load(usual)
	if errors.Is(err, os.ErrNotExist) {
		cfg = config.Default()
		cfg.Overlays = filepath.Join(filepath.Dir(usual), cfg.Overlays)
		return cfg, nil
	}
	return cfg, err
}

// name adds the devices that stand on the command line.
func name(devices *config.Devices, serial, tcp, http []string) error {
	for _, text := range serial {
		name, port, err := parseName("--serial", text)
		if err != nil {
			return err
		}
		d := config.SerialDevice{Name: name, Port: port}
		if at := strings.LastIndexByte(port, '@'); at >= 0 {
			if d.Baud, err = strconv.Atoi(port[at+1:]); err != nil || d.Baud < 1 {
				return fmt.Errorf("--serial %s: want a bit rate such as 115200 behind @, got %q", text, port[at+1:])
			}
			d.Port = port[:at]
		}
		devices.Serial = append(devices.Serial, d)
	}
	for _, text := range tcp {
		name, address, err := parseName("--tcp", text)
		if err != nil {
			return err
		}
		devices.TCP = append(devices.TCP, config.TCPDevice{Name: name, Address: address})
	}
	for _, text := range http {
		name, url := "", text
		if before, _, ok := strings.Cut(text, "="); ok && !strings.Contains(before, ":") { // else it is in the URL
			var err error
			if name, url, err = parseName("--http", text); err != nil {
				return err
			}
		}
		devices.HTTP = append(devices.HTTP, config.HTTPDevice{Name: name, URL: url})
	}
	return nil
}

// parseName reads [name=]address.
func parseName(flag, text string) (name, address string, err error) {
	name, address, named := strings.Cut(text, "=")
	switch {
	case !named:
		return "", text, nil
	case name == "":
		return "", "", fmt.Errorf("%s %s: there is no name before =", flag, text)
	}
	return name, address, nil
}
