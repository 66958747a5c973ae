package sim

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/thing/xiaozhi"
)

// The transports of toys.
const (
	OverWebSocket = "ws"
	OverMQTT      = "mqtt"
)

// ToyClientsConfig configures ToyClients.
type ToyClientsConfig struct {
	// URL is the check-in URL of the gateway.
	URL string
	// Transport is OverWebSocket or OverMQTT.
	Transport string
	// First is the number of the first toy, which determines its hardware address. Count is
	// the number of toys.
	First, Count int
	// Misbehave is the name of a ToyBehavior, or "".
	Misbehave string
	// From is a loopback network such as 127.1.0.0/16. Each toy dials from its own address
	// in it. If it is not valid, the system chooses the address.
	From netip.Prefix
	// Cut is how often all connections are cut; zero for never.
	Cut time.Duration
	// OnEvent is called with each event, by many goroutines. It may be nil.
	OnEvent func(Event)
}

// Event is an event of a toy.
type Event struct {
	// Toy is the toy's MAC address.
	Toy string `json:"toy"`
	// What is "code" if the toy shows a pairing code, "connected", "ended" if its connection
	// ended, or "failed" if it could not check in or connect.
	What string `json:"what"`
	// Detail is the code, or the reason.
	Detail string `json:"detail,omitempty"`
}

// maxToys is the highest number of a toy.
const maxToys = 1<<24 - 1

// Check returns an error if the configuration is invalid.
func (c ToyClientsConfig) Check() error {
	if _, err := findToyBehavior(c.Misbehave); err != nil {
		return err
	}
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return fmt.Errorf("URL must be the check-in URL of a gateway, such as http://127.0.0.1:3380/xiaozhi/ota/, got %q", c.URL)
	case c.Transport != OverWebSocket && c.Transport != OverMQTT:
		return fmt.Errorf("transport must be ws or mqtt, got %q", c.Transport)
	case c.First < 1 || c.First > maxToys:
		return fmt.Errorf("first toy must be between 1 and %d, got %d", maxToys, c.First)
	case c.Count < 1 || c.Count > maxToys-c.First+1:
		return fmt.Errorf("count must be between 1 and %d, got %d", maxToys-c.First+1, c.Count)
	case c.Cut < 0:
		return fmt.Errorf("time between cuts must not be negative, got %v", c.Cut)
	}
	return checkFrom(c.From)
}

// ToyClients are voice toys that connect to a gateway. Each checks in, shows its code until it
// is activated, connects, and reconnects, as firmware does.
type ToyClients struct {
	Toys     []*Toy
	cfg      ToyClientsConfig
	network  *network
	starting chan struct{} // limits how many toys start at once
}

// maxStarting is how many toys start at once.
const maxStarting = 64

// NewToyClients returns toys that connect when they are run.
func NewToyClients(cfg ToyClientsConfig) (*ToyClients, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	toys, err := newToys(cfg.First, cfg.Count, cfg.Misbehave)
	if err != nil {
		return nil, err
	}
	c := &ToyClients{Toys: toys, cfg: cfg, network: &network{from: cfg.From, conns: make(map[*toyConn]bool)}, starting: make(chan struct{}, maxStarting)}
	for n, t := range toys {
		t.Dial = c.network.dialer(t, cfg.First+n)
		if cfg.OnEvent != nil {
			t.onEvent = func(what, detail string) { cfg.OnEvent(Event{t.Identity.DeviceID, what, detail}) }
		}
	}
	return c, nil
}

// Run runs the toys until ctx ends; it then returns nil.
func (c *ToyClients) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, t := range c.Toys {
		wg.Go(func() { t.Reconnect(ctx, (&toyClient{all: c, toy: t}).dial, c.cfg.Transport == OverWebSocket) })
	}
	for c.cfg.Cut > 0 && sleep(ctx, c.cfg.Cut) == nil {
		c.network.cutAll()
	}
	wg.Wait()
	return nil
}

// toyClient is one toy that connects.
type toyClient struct {
	all *ToyClients
	toy *Toy
	// settings are nil until the toy has checked in. Firmware checks in once and keeps them.
	settings *xiaozhi.Settings
}

// dial connects. It checks in first if necessary.
func (c *toyClient) dial(ctx context.Context) (xiaozhi.Conn, error) {
	if c.settings != nil {
		return c.connect(ctx)
	}
	settings, err := c.checkIn(ctx)
	if err != nil {
		return nil, err
	}
	c.settings = &settings
	if err := c.all.begin(ctx); err != nil {
		return nil, err
	}
	defer c.all.end()
	return c.connect(ctx)
}

// begin waits until one more toy may start, and end marks it as started. Later connections do
// not wait.
func (c *ToyClients) begin(ctx context.Context) error {
	select {
	case c.starting <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *ToyClients) end() { <-c.starting }

// connect connects by the configured transport.
func (c *toyClient) connect(ctx context.Context) (xiaozhi.Conn, error) {
	switch c.all.cfg.Transport {
	case OverWebSocket:
		if c.settings.WebSocket == nil {
			return nil, errors.New("the gateway offers no WebSocket to toys")
		}
		return c.toy.DialWebSocket(ctx, *c.settings.WebSocket, c.toy.Identity)
	default:
		if c.settings.MQTT == nil {
			return nil, errors.New("the gateway offers no MQTT to toys")
		}
		return c.toy.DialMQTT(ctx, *c.settings.MQTT)
	}
}
