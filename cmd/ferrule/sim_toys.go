package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/sim"
)

func (a *app) simXiaozhiCommand() *cobra.Command {
	var flags sim.ToyOptions
	cmd := &cobra.Command{
		Use:   "xiaozhi {--mqtt URL | --ws URL | --tcp HOST:PORT}",
		Short: "Simulate voice toys with xiaozhi-esp32 firmware",
		Long: `Simulate a voice toy with xiaozhi-esp32 firmware, until interrupted. It has a speaker, a
lamp, a screen and a camera.

With --mqtt or --ws the toy behaves like a real one: it asks the URL where to connect,
shows a code until it is adopted if it gets one, and connects. After a disconnect it
reconnects: over MQTT after ten seconds, over a WebSocket when somebody speaks to it,
which is after five seconds here. Firmware that is offered both uses MQTT. With --tcp the
toy listens, with one message per line. Real toys do not; this is for testing clients.

With --count there are several toys. Toys that dial in have hardware addresses from
02:00:00:00:00:01 on, or from --first on. Toys that listen have consecutive ports, or any
free port if the port is 0. A gateway limits the connections from one address, so --from
lets each toy dial in from another local address. The number of toys is limited by the
number of files that the process may open. --cut ends all connections at once, again and
again; toys reconnect as firmware does, or at once with --misbehave storm.

All toys have the quirks of the firmware: they ignore requests without a numeric id,
params of null and notifications; ids are 32-bit integers; errors have no code; messages
over MQTT before a hello have no session; all toys publish to one topic; an image is JSON
inside a text; a WebSocket ends without a closing handshake. With --misbehave they
misbehave as some real toys do, or worse:

` + sim.ListMisbehaviors(sim.ToyMisbehaviors()),
		Example: `  ferrule sim xiaozhi --mqtt http://127.0.0.1:3380/xiaozhi/ota/
  ferrule sim xiaozhi --ws http://127.0.0.1:3380/xiaozhi/ota/ --misbehave sound
  ferrule sim xiaozhi --mqtt http://127.0.0.1:3380/xiaozhi/ota/ --count 15000 --from 127.1.0.0/16
  ferrule sim xiaozhi --tcp 127.0.0.1:4300 --misbehave unescaped`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			run, err := flags.Prepare(a.printSimulated)
			if err != nil {
				return usageError{err}
			}
			return run(cmd.Context())
		},
	}
	simFlags(cmd, &flags.Config, "", "toy", sim.ToyMisbehaviors())
	cmd.Flags().StringVar(&flags.MQTT, "mqtt", "", "connect over MQTT; `URL` of the gateway's OTA service")
	cmd.Flags().StringVar(&flags.WS, "ws", "", "connect over a WebSocket; `URL` of the gateway's OTA service")
	cmd.Flags().IntVar(&flags.First, "first", 1, "`number` of the first toy that dials in; sets its hardware address")
	cmd.Flags().StringVar(&flags.From, "from", "", "local `NETWORK` that toys dial in from, such as 127.1.0.0/16")
	cmd.Flags().Var((*durationFlag)(&flags.Cut), "cut", "`interval` after which all connections are cut (default never)")
	return cmd
}

// printSimulated prints what simulated devices do.
func (a *app) printSimulated(text string, value any) {
	if !a.json {
		fmt.Fprintln(a.stdout, text)
	} else if value != nil {
		a.printJSON(value)
	}
}
