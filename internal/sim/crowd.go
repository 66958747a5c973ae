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

// The media by which toys call a gateway.
const (
	OverWebSocket = "ws"
	OverMQTT      = "mqtt"
)

// CrowdConfig tells which toys call, and whom.
type CrowdConfig struct {
	// URL is where they ask for their settings.
	URL string
	// Medium is OverWebSocket or OverMQTT.
	Medium string
	// First is the number of the first toy, by which it has its hardware address,
	// and Count how many toys there are.
	First, Count int
	// Misbehave names what is wrong with them; empty for nothing.
	Misbehave string
	// From is a network of this machine's own, such as 127.1.0.0/16, from whose
	// addresses they dial, one after the other. If it is not valid, they all dial
	// from where other programs do.
	From netip.Prefix
	// Cut is how often all connections are cut at once; zero for never.
	Cut time.Duration
	// Tell is told what happens to them, by many goroutines at once. It may be
	// nil.
	Tell func(News)
}

// News is what has happened to a toy.
type News struct {
	// Toy is its MAC.
	Toy string `json:"toy"`
	// What is code if it shows one until it is let in, connected, ended if its
	// connection has, or failed if it could not ask or connect.
	What string `json:"what"`
	// Detail is the code, or why.
	Detail string `json:"detail,omitempty"`
}

// maxToys is how many toys have numbers.
const maxToys = 1<<24 - 1

// Check tells what is wrong with the configuration.
func (c CrowdConfig) Check() error {
	if _, err := findToyBehaviour(c.Misbehave); err != nil {
		return err
	}
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return fmt.Errorf("want the URL where toys ask for their settings, such as http://127.0.0.1:3380/xiaozhi/ota/, got %q", c.URL)
	case c.Medium != OverWebSocket && c.Medium != OverMQTT:
		return fmt.Errorf("want ws or mqtt, got %q", c.Medium)
	case c.First < 1 || c.First > maxToys:
		return fmt.Errorf("want a first toy from 1 to %d, got %d", maxToys, c.First)
	case c.Count < 1 || c.Count > maxToys-c.First+1:
		return fmt.Errorf("want a count from 1 to %d, got %d", maxToys-c.First+1, c.Count)
	case c.Cut < 0:
		return fmt.Errorf("want a time between cuts, got %v", c.Cut)
	}
	return checkFrom(c.From)
}

// Crowd is voice toys that call a gateway: each asks for its settings, shows its
// code until it is let in, connects, and connects again, as firmware does.
type Crowd struct {
	Toys   []*Toy
	cfg    CrowdConfig
	cables *cables
	ramp   chan struct{} // holds those that begin
}

// atOnce is how many toys begin at once.
const atOnce = 64

// NewCrowd makes toys that call.
func NewCrowd(cfg CrowdConfig) (*Crowd, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	toys, err := newToys(cfg.First, cfg.Count, cfg.Misbehave)
	if err != nil {
		return nil, err
	}
	c := &Crowd{Toys: toys, cfg: cfg, cables: &cables{from: cfg.From, all: make(map[*cable]bool)}, ramp: make(chan struct{}, atOnce)}
	for n, t := range toys {
		t.Dial = c.cables.dialler(t, cfg.First+n)
		if cfg.Tell != nil {
			t.tell = func(what, detail string) { cfg.Tell(News{t.Identity.DeviceID, what, detail}) }
		}
	}
	return c, nil
}

// Run has the toys call until ctx ends; it then returns nil.
func (c *Crowd) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, t := range c.Toys {
		wg.Go(func() { t.Live(ctx, (&caller{crowd: c, toy: t}).dial, c.cfg.Medium == OverWebSocket) })
	}
	for c.cfg.Cut > 0 && sleep(ctx, c.cfg.Cut) == nil {
		c.cables.cut()
	}
	wg.Wait()
	return nil
}

// caller is how one toy calls.
type caller struct {
	crowd *Crowd
	toy   *Toy
	// settings is what it was told; nil as long as it was not. Firmware asks once,
	// and keeps what it was told.
	settings *xiaozhi.Settings
}

// dial connects, after it has asked where to.
func (c *caller) dial(ctx context.Context) (xiaozhi.Conn, error) {
	if c.settings != nil {
		return c.connect(ctx)
	}
	settings, err := c.checkIn(ctx)
	if err != nil {
		return nil, err
	}
	c.settings = &settings
	if err := c.crowd.begin(ctx); err != nil {
		return nil, err
	}
	defer c.crowd.end()
	return c.connect(ctx)
}

// begin waits until one more toy may do what it does when it is started, and end
// says that it has. Later, nobody has toys wait for each other.
func (c *Crowd) begin(ctx context.Context) error {
	select {
	case c.ramp <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Crowd) end() { <-c.ramp }

// connect connects by the medium that was asked for.
func (c *caller) connect(ctx context.Context) (xiaozhi.Conn, error) {
	switch c.crowd.cfg.Medium {
	case OverWebSocket:
		if c.settings.WebSocket == nil {
			return nil, errors.New("the gateway tells toys of no WebSocket")
		}
		return c.toy.DialWebSocket(ctx, *c.settings.WebSocket, c.toy.Identity)
	default:
		if c.settings.MQTT == nil {
			return nil, errors.New("the gateway tells toys of no MQTT")
		}
		return c.toy.DialMQTT(ctx, *c.settings.MQTT)
	}
}
