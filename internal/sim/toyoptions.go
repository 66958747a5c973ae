package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// ToyOptions are the flags of `ferrule sim xiaozhi`. Exactly one of Addr, WS and MQTT is set.
type ToyOptions struct {
	Config
	WS, MQTT string // URLs of a gateway
	First    int    // number of the first toy
	From     string // network that toys dial in from, or ""
	Cut      time.Duration
}

// Prepare checks the options, and returns a function that simulates the toys until ctx
// ends. It calls show with lines of text, and with the same as a value for JSON, which is
// nil if it is only for people.
func (o ToyOptions) Prepare(show func(text string, value any)) (run func(ctx context.Context) error, err error) {
	transports := 0
	for _, t := range []string{o.Addr, o.WS, o.MQTT} {
		if t != "" {
			transports++
		}
	}
	switch {
	case transports != 1:
		return nil, errors.New("exactly one of --mqtt URL, --ws URL and --tcp HOST:PORT is needed")
	case o.Addr != "":
		return o.prepareListening(show)
	}
	return o.prepareDialing(show)
}

func (o ToyOptions) prepareListening(show func(text string, value any)) (func(context.Context) error, error) {
	if o.First != 1 || o.From != "" || o.Cut != 0 {
		return nil, errors.New("--first, --from and --cut need --mqtt or --ws")
	}
	if err := CheckToys(o.Config); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		toys, err := ListenToys(o.Config)
		if err != nil {
			return err
		}
		show(Simulated("a voice toy", toys.Addrs()), Addresses{toys.Addrs()})
		return toys.Run(ctx)
	}, nil
}

func (o ToyOptions) prepareDialing(show func(text string, value any)) (func(context.Context) error, error) {
	p := NewProgress(o.Count, show)
	cfg := ToyClientsConfig{
		URL: cmp.Or(o.MQTT, o.WS), Transport: OverMQTT, First: o.First, Count: o.Count, Misbehave: o.Misbehave, Cut: o.Cut, OnEvent: p.Add,
	}
	if o.WS != "" {
		cfg.Transport = OverWebSocket
	}
	if o.From != "" {
		var err error
		if cfg.From, err = netip.ParsePrefix(o.From); err != nil {
			return nil, fmt.Errorf("--from must be a network such as 127.1.0.0/16, got %q", o.From)
		}
	}
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		crowd, err := NewToyClients(cfg)
		if err != nil {
			return err
		}
		if o.Count == 1 {
			show("Simulating a voice toy that dials in at "+cfg.URL, nil)
		} else {
			show(fmt.Sprintf("Simulating %d voice toys that dial in at %s", o.Count, cfg.URL), nil)
		}
		stop := p.Start()
		defer stop()
		return crowd.Run(ctx)
	}, nil
}

// Addresses are where simulated devices listen, as JSON.
type Addresses struct {
	Addresses []string `json:"addresses"`
}

// Simulated says where simulated devices listen, one per line.
func Simulated(what string, addrs []string) string {
	lines := make([]string, len(addrs))
	for i, addr := range addrs {
		lines[i] = fmt.Sprintf("Simulating %s at %s", what, addr)
	}
	return strings.Join(lines, "\n")
}
