package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/config"
)

func (a *app) upCommand() *cobra.Command {
	var file, listen string
	var tcpDevices []string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run the gateway",
		Long: `Run the gateway: it connects to the devices that are named, serves the other
commands, and tells its health at /healthz, until it is interrupted.

A device gets a name with NAME= in front of its address. What is named on the
command line adds to what stands in the file.`,
		Example: `  ferrule up --tcp robot=192.168.1.20:4242
  ferrule up --config ./ferrule.yaml`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(file)
			if err != nil {
				return usageError{fmt.Errorf("reading the config: %w", err)}
			}
			cfg.Listen = cmp.Or(listen, os.Getenv("FERRULE_LISTEN"), cfg.Listen)
			for _, text := range tcpDevices {
				device, err := parseTCP(text)
				if err != nil {
					return usageError{err}
				}
				cfg.Devices.TCP = append(cfg.Devices.TCP, device)
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
	cmd.Flags().StringVar(&file, "config", "", "`file` to read instead of "+configName()+" (FERRULE_CONFIG)")
	cmd.Flags().StringVar(&listen, "listen", "", "`host:port` to serve HTTP on (FERRULE_LISTEN; "+config.Default().Listen+" otherwise)")
	cmd.Flags().StringArrayVar(&tcpDevices, "tcp", nil, "a board that listens at `[name=]host:port`; may be repeated")
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

// parseTCP reads [name=]host:port.
func parseTCP(text string) (config.TCPDevice, error) {
	name, address, named := strings.Cut(text, "=")
	switch {
	case !named:
		return config.TCPDevice{Address: text}, nil
	case name == "":
		return config.TCPDevice{}, fmt.Errorf("--tcp %s: there is no name before =", text)
	}
	return config.TCPDevice{Name: name, Address: address}, nil
}
