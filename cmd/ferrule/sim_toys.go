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

// toyFlags is what sim xiaozhi is told.
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
		Long: `Simulate a voice toy with xiaozhi-esp32 firmware, with a speaker, a lamp, a
screen and a camera, until interrupted. With --mqtt and --ws it does what a real one
does: it asks the URL where to connect, shows its code until it is let in if it is
told one, connects over that medium with what it was told, and connects again: over
MQTT after ten seconds, over a WebSocket when somebody speaks to it, which is five
seconds later here. Told of both, firmware takes MQTT. With --tcp it listens, one message a line, as real toys
do not: this is for trying out what speaks with them.

With --count there are several. Those that call have hardware addresses from
02:00:00:00:00:01 on, or from --first on; those that listen have the ports that
follow, or any if the port is 0. Since a gateway takes only so many from one address,
--from lets each call from another of this machine's own. There can be as many as the
process may open files. --cut ends all their connections at once, every so often; they
come back as firmware does, or with --misbehave storm at once.

All toys do what the firmware does beyond MCP: they drop what has no number for an id,
params of null and notifications, take ids for 32-bit integers, have no code in their
errors and no session in what they say over MQTT before a hello, publish to the topic
that they share, answer with a picture that is JSON in a text, and end a WebSocket
without a farewell. With --misbehave they do what some have been seen to do, or worse:

` + behaviours(toyBehaviours()),
		Example: `  ferrule sim xiaozhi --mqtt http://127.0.0.1:3380/xiaozhi/ota/
  ferrule sim xiaozhi --ws http://127.0.0.1:3380/xiaozhi/ota/ --misbehave sound
  ferrule sim xiaozhi --mqtt http://127.0.0.1:3380/xiaozhi/ota/ --count 15000 --from 127.1.0.0/16
  ferrule sim xiaozhi --tcp 127.0.0.1:4300 --misbehave unescaped`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			media := 0
			for _, m := range []string{flags.Addr, flags.ws, flags.mqtt} {
				if m != "" {
					media++
				}
			}
			switch {
			case media != 1:
				return usageError{errors.New("want one of --mqtt URL, --ws URL and --tcp HOST:PORT")}
			case flags.Addr != "":
				return a.listenToys(cmd, flags)
			}
			return a.callToys(cmd, flags)
		},
	}
	simFlags(cmd, &flags.Config, "", "toy", toyBehaviours())
	cmd.Flags().StringVar(&flags.mqtt, "mqtt", "", "`URL` that toys ask where to connect, over MQTT")
	cmd.Flags().StringVar(&flags.ws, "ws", "", "`URL` that toys ask where to connect, over a WebSocket")
	cmd.Flags().IntVar(&flags.first, "first", 1, "`number` of the first toy that calls: others have other hardware addresses")
	cmd.Flags().StringVar(&flags.from, "from", "", "`NETWORK` of this machine's own that toys call from, such as 127.1.0.0/16")
	cmd.Flags().DurationVar(&flags.cut, "cut", 0, "`how often` all connections are cut at once (default never)")
	return cmd
}

// listenToys has toys listen.
func (a *app) listenToys(cmd *cobra.Command, flags toyFlags) error {
	if flags.first != 1 || flags.from != "" || flags.cut != 0 {
		return usageError{errors.New("--first, --from and --cut are for toys that call: with --mqtt or --ws")}
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

// callToys has toys call a gateway.
func (a *app) callToys(cmd *cobra.Command, flags toyFlags) error {
	p := newProgress(a, flags.Count)
	cfg := sim.ToyClientsConfig{
		URL: cmp.Or(flags.mqtt, flags.ws), Transport: sim.OverMQTT, First: flags.first, Count: flags.Count, Misbehave: flags.Misbehave, Cut: flags.cut, OnEvent: p.add,
	}
	if flags.ws != "" {
		cfg.Transport = sim.OverWebSocket
	}
	if flags.from != "" {
		var err error
		if cfg.From, err = netip.ParsePrefix(flags.from); err != nil {
			return usageError{fmt.Errorf("want a network such as 127.1.0.0/16, got %q", flags.from)}
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
		fmt.Fprintf(a.stdout, "simulating %s: asking %s where to connect\n", plural(flags.Count, "voice toy"), cfg.URL)
	}
	stop := p.start()
	defer stop()
	return crowd.Run(cmd.Context())
}

func plural(count int, noun string) string {
	if count == 1 {
		return "a " + noun
	}
	return fmt.Sprintf("%d %ss", count, noun)
}

func toyBehaviours() (all []behaviour) {
	for _, b := range sim.ToyBehaviors() {
		all = append(all, behaviour{b.Name, b.Text})
	}
	return all
}
