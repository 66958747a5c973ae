package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/ops/logging"
	"github.com/ferrulehq/ferrule/internal/sim"
)

func (a *app) simMQTTCommand() *cobra.Command {
	home := sim.NewHome()
	var addr, broker string
	cmd := &cobra.Command{
		Use:   "mqtt",
		Short: "Simulate a home on an MQTT broker",
		Long: `Simulate a home whose devices describe themselves on an MQTT broker, as Zigbee2MQTT and
ESPHome do: a lamp, a plug, a blind, a lock, a thermostat and two sensors. It runs until
interrupted, on a broker of its own or on yours.`,
		Example: "  ferrule sim mqtt\n  ferrule sim mqtt --broker mqtt://192.168.1.5",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ready := func(url string) error {
				if a.json {
					return a.printJSON(map[string]any{"broker": url, "devices": home.Names()})
				}
				_, err := fmt.Fprintf(a.stdout, "Simulating a home on %s: %s\n", url, strings.Join(home.Names(), ", "))
				return err
			}
			if broker != "" {
				return sim.JoinHome(cmd.Context(), home, broker, logging.New(a.stderr, isTerminal(a.stderr), 0), ready)
			}
			return sim.ServeHome(cmd.Context(), home, addr, ready)
		},
	}
	cmd.Flags().StringVar(&addr, "tcp", "127.0.0.1:1883", "`HOST:PORT` of its own broker, on the loopback interface")
	cmd.Flags().StringVar(&broker, "broker", "", "`URL` of your broker, such as mqtt://192.168.1.5")
	home.Every = time.Second
	cmd.Flags().Var((*durationFlag)(&home.Every), "every", "`interval` at which something changes by itself; 0s for never")
	return cmd
}
