package main

import (
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// gatewayFlags are the flags of the commands that run a gateway.
type gatewayFlags struct {
	config.Overrides
	verbose bool
}

// add adds the flags to a command. The default of --listen differs between commands.
func (f *gatewayFlags) add(cmd *cobra.Command, defaultListen string) {
	cmd.Flags().StringVar(&f.File, "config", "", "configuration `FILE` (FERRULE_CONFIG; default "+configName+")")
	cmd.Flags().StringVar(&f.Listen, "listen", "", "`HOST:PORT` for agents over HTTP (FERRULE_LISTEN; default "+defaultListen+")")
	cmd.Flags().StringArrayVar(&f.Serial, "serial", nil, "board on a serial port: `[NAME=]PORT[@BAUD]`, or auto for all that are plugged in; repeatable")
	cmd.Flags().StringArrayVar(&f.TCP, "tcp", nil, "board that listens at `[NAME=]HOST:PORT`; repeatable")
	cmd.Flags().StringArrayVar(&f.HTTP, "http", nil, "device that is an MCP server: `[NAME=]URL`, or auto for all that announce themselves; repeatable")
	cmd.Flags().StringArrayVar(&f.MQTT, "mqtt", nil, "broker whose devices describe themselves, such as those of Zigbee2MQTT: `[NAME=]URL`; repeatable")
	cmd.Flags().StringArrayVar(&f.HomeAssistant, "homeassistant", nil, "Home Assistant whose devices are used: `[NAME=]URL`; see ferrule setup homeassistant; repeatable")
	cmd.Flags().StringVar(&f.DeviceListen, "device-listen", "", "`HOST:PORT` for devices that dial in, such as voice toys; MQTT uses the next port (FERRULE_DEVICE_LISTEN; default off)")
	cmd.Flags().StringVar(&f.DeviceURL, "device-url", "", "`URL` of that address as devices see it, such as http://192.168.1.10:3380 (FERRULE_DEVICE_URL; default this machine's address)")
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "log more")
}

// configName is the default configuration file in help texts, the same on every machine.
const configName = "ferrule/ferrule.yaml in the configuration directory"

// parts returns what a gateway is built from, without a log.
func (f *gatewayFlags) parts(a *app) (gateway.Parts, error) {
	cfg, err := config.Resolve(f.Overrides)
	if err != nil {
		return gateway.Parts{}, usageError{err}
	}
	load := func() (config.Config, error) { return config.Resolve(f.Overrides) }
	return gateway.Parts{Config: cfg, Load: load, ConfigFile: config.Path(f.File), Data: a.dataDir(), Version: version()}, nil
}

// durationFlag is a flag with a duration, in the units that are used everywhere.
type durationFlag time.Duration

// Set implements pflag.Value.
func (d *durationFlag) Set(text string) error {
	v, err := ferrule.ParseDuration(text)
	*d = durationFlag(v)
	return err
}

// Type implements pflag.Value.
func (d *durationFlag) Type() string { return "duration" }

// String implements pflag.Value. A default of zero is not shown.
func (d *durationFlag) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

// level returns the lowest level that is logged.
func (f *gatewayFlags) level() slog.Level {
	if f.verbose {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
