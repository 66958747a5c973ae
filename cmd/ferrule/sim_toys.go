package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/sim"
)

// toyFlags are the flags of `ferrule sim xiaozhi`.
type toyFlags struct {
	sim.Config
	ws, mqtt string
	first    int
	from     string
	cut      time.Duration
}

func (a *app) simXiaozhiCommand() *cobra.Command {
	var flags toyFlags
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
			transports := 0
			for _, m := range []string{flags.Addr, flags.ws, flags.mqtt} {
				if m != "" {
					transports++
				}
			}
			switch {
			case transports != 1:
				return usageError{errors.New("exactly one of --mqtt URL, --ws URL and --tcp HOST:PORT is needed")}
			case flags.Addr != "":
				return a.listenToys(cmd, flags)
			}
			return a.dialToys(cmd, flags)
		},
	}
	simFlags(cmd, &flags.Config, "", "toy", sim.ToyMisbehaviors())
	cmd.Flags().StringVar(&flags.mqtt, "mqtt", "", "connect over MQTT; `URL` of the gateway's OTA service")
	cmd.Flags().StringVar(&flags.ws, "ws", "", "connect over a WebSocket; `URL` of the gateway's OTA service")
	cmd.Flags().IntVar(&flags.first, "first", 1, "`number` of the first toy that dials in; sets its hardware address")
	cmd.Flags().StringVar(&flags.from, "from", "", "local `NETWORK` that toys dial in from, such as 127.1.0.0/16")
	cmd.Flags().Var((*durationFlag)(&flags.cut), "cut", "`interval` after which all connections are cut (default never)")
	return cmd
}

// listenToys simulates toys that listen.
func (a *app) listenToys(cmd *cobra.Command, flags toyFlags) error {
	if flags.first != 1 || flags.from != "" || flags.cut != 0 {
		return usageError{errors.New("--first, --from and --cut need --mqtt or --ws")}
	}
	if err := sim.CheckToys(flags.Config); err != nil {
		return usageError{err}
	}
	toys, err := sim.ListenToys(flags.Config)
	if err != nil {
		return err
	}
	if err := a.printSimulated("a voice toy", toys.Addrs()); err != nil {
		return err
	}
	return toys.Run(cmd.Context())
}

// dialToys simulates toys that dial in to a gateway.
func (a *app) dialToys(cmd *cobra.Command, flags toyFlags) error {
	p := sim.NewProgress(flags.Count, a.printToys)
	cfg := sim.ToyClientsConfig{
		URL: cmp.Or(flags.mqtt, flags.ws), Transport: sim.OverMQTT, First: flags.first, Count: flags.Count, Misbehave: flags.Misbehave, Cut: flags.cut, OnEvent: p.Add,
	}
	if flags.ws != "" {
		cfg.Transport = sim.OverWebSocket
	}
	if flags.from != "" {
		var err error
		if cfg.From, err = netip.ParsePrefix(flags.from); err != nil {
			return usageError{fmt.Errorf("--from must be a network such as 127.1.0.0/16, got %q", flags.from)}
		}
	}
	if err := cfg.Check(); err != nil {
		return usageError{err}
	}
	crowd, err := sim.NewToyClients(cfg)
	if err != nil {
		return err
	}
	if !a.json {
		if flags.Count == 1 {
			fmt.Fprintf(a.stdout, "Simulating a voice toy that dials in at %s\n", cfg.URL)
		} else {
			fmt.Fprintf(a.stdout, "Simulating %d voice toys that dial in at %s\n", flags.Count, cfg.URL)
		}
	}
	stop := p.Start()
	defer stop()
	return crowd.Run(cmd.Context())
}

// printToys prints what toys do.
func (a *app) printToys(text string, value any) {
	if a.json {
		a.printJSON(value)
		return
	}
	fmt.Fprintln(a.stdout, text)
}
