package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/config"
)

func (a *app) upCommand() *cobra.Command {
	var file, listen string
	var serialDevices, tcpDevices []string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run the gateway",
		Long: `Run the gateway: it connects to the devices that are named, serves the other
commands, and tells its health at /healthz, until it is interrupted.

A device gets a name with NAME= in front of its address. What is named on the
command line adds to what stands in the file.`,
		Example: `  ferrule up --serial auto
  ferrule up --serial robot=/dev/ttyUSB0@115200 --tcp arm=192.168.1.20:4242
  ferrule up --config ./ferrule.yaml`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(file)
			if err != nil {
				return usageError{fmt.Errorf("reading the config: %w", err)}
			}
			cfg.Listen = cmp.Or(listen, os.Getenv("FERRULE_LISTEN"), cfg.Listen)
			if err := name(&cfg.Devices, serialDevices, tcpDevices); err != nil {
				return usageError{err}
			}
			if err := cfg.Check(); err != nil {
				return usageError{err}
			}
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
			}
			log := slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: level}))
			g, err := newGateway(cfg, a.dataDir(), log)
			if err != nil {
				return err
			}
			log.Info(fmt.Sprintf("ferrule %s is up at http://%s, with its data in %s", version(), g.web.Addr(), a.dataDir()))
			err = g.Run(cmd.Context())
			return errors.Join(err, g.close())
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "`FILE` to read instead of "+configName()+" (FERRULE_CONFIG)")
	cmd.Flags().StringVar(&listen, "listen", "", "`HOST:PORT` to serve HTTP on (FERRULE_LISTEN; "+config.Default().Listen+" otherwise)")
	cmd.Flags().StringArrayVar(&serialDevices, "serial", nil, "a board on a serial port, `[NAME=]PORT[@BAUD]`, or auto for those that are plugged in; may be repeated")
	cmd.Flags().StringArrayVar(&tcpDevices, "tcp", nil, "a board that listens at `[NAME=]HOST:PORT`; may be repeated")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "log more")
	return cmd
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
func name(devices *config.Devices, serial, tcp []string) error {
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
