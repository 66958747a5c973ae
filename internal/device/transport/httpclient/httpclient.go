// Package httpclient is the medium of devices that are HTTP servers, as those that speak
// standard MCP are. A device is known by its URL, or it announces itself by mDNS.
//
//	URL ──────────────────────────▶ Sighting, always there
//	sockets ─▶ browser ─▶ found ──▶ Sighting, until it says goodbye or is silent
//
// A Link to such a device carries requests and no messages: it has wire.HTTP.
// One that speaks over a WebSocket, and has a URL in ws or wss, is spoken to with
// messages, by the medium that knows those.
//
// Most of these devices are boards that serve one connection at a time. So nothing
// is dialled before there is a request for it, and a connection ends with its
// answer.
package httpclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// Medium is the name of the medium.
const Medium = "http"

// Config tells which devices there are, and bounds what they may do.
type Config struct {
	Devices []Device
	// Dialects names the grammars to try on each.
	Dialects []string
	// Browse also looks for devices that announce themselves, which are held.
	Browse bool
	// Services names what they announce, such as _mcp._tcp.
	Services []string
	// DialTimeout bounds one attempt to connect.
	DialTimeout time.Duration
	// Answer bounds how long a device may think before it begins to answer.
	Answer time.Duration
	// Message is the length of the longest answer, or event, that is taken.
	Message int
}

// Device is one device that the owner named.
type Device struct {
	// URL is that of its MCP endpoint, in http, https, ws or wss. One of HTTP
	// without a path is that of DefaultPath.
	URL string
	// Name is the device's ID; empty to let it follow what the device says.
	Name string
	// Token is sent to the device with each request, as a Bearer; it stands
	// here or in a file, which is read anew each time that the device is opened.
	Token, TokenFile string
	// Held lists the device without trusting it.
	Pending bool
}

// DefaultConfig has no devices.
func DefaultConfig() Config {
	return Config{Services: []string{"_mcp._tcp"}, DialTimeout: 5 * time.Second, Answer: 3 * time.Minute, Message: 4 << 20}
}

var serviceType = regexp.MustCompile(`^_[A-Za-z0-9]([A-Za-z0-9-]{0,13}[A-Za-z0-9])?\._(tcp|udp)$`)

// maxServices is how many types can be asked for in one message.
const maxServices = 16

// Check tells what is wrong with the config.
func (c Config) Check() error {
	seen := make(map[string]bool)
	for _, d := range c.Devices {
		at, err := parseURL(d.URL)
		if err != nil {
			return err
		}
		if seen[at.address()] {
			return fmt.Errorf("url %s is given twice", d.URL)
		}
		seen[at.address()] = true
		if d.Token != "" && d.TokenFile != "" {
			return fmt.Errorf("url %s: its token is given twice, here and in a file", d.URL)
		}
		if err := checkToken(d.Token); err != nil {
			return fmt.Errorf("url %s: %w", d.URL, err)
		}
	}
	for _, service := range c.Services {
		if !serviceType.MatchString(service) {
			return fmt.Errorf("service %q: want a type such as _mcp._tcp", service)
		}
	}
	if c.Browse && (len(c.Services) == 0 || len(c.Services) > maxServices) {
		return fmt.Errorf("services: want from 1 to %d types to look for, got %d", maxServices, len(c.Services))
	}
	for name, d := range map[string]time.Duration{"dial_timeout": c.DialTimeout, "answer": c.Answer} {
		if d <= 0 {
			return fmt.Errorf("%s: want more than nothing, got %v", name, d)
		}
	}
	if c.Message < 1 {
		return fmt.Errorf("message: want at least 1 byte, got %d", c.Message)
	}
	return nil
}

// WebSocket opens a link to a device that listens for a WebSocket, by its URL and with
// a token, if there is one. Address is that of the link, and dial makes the connection.
type WebSocket func(ctx context.Context, address, url, token string, dial func(ctx context.Context, network, address string) (net.Conn, error)) (transport.Link, error)

// Connector is the wire.Connector of the medium.
type Connector struct {
	cfg     Config
	socket  WebSocket
	log     *slog.Logger
	browser *browser      // knows nobody if nobody is looked for
	more    chan struct{} // holds something if there are devices that Watch has not reported

	mu      sync.Mutex
	devices []Device
	browse  bool // devices that announce themselves are looked for

	// What follows is Watch's own.

	stays map[string]stay // of what was found, by its address
	count uint64          // of stays
}

// New makes a Connector of a config that was checked.
func New(cfg Config, socket WebSocket, log *slog.Logger) *Connector {
	return &Connector{
		cfg: cfg, socket: socket, log: log, browser: newBrowser(cfg.Services), more: make(chan struct{}, 1),
		devices: cfg.Devices, browse: cfg.Browse, stays: make(map[string]stay),
	}
}

// Add asks for one more device. It passes Check, and its URL is not asked for yet.
func (c *Connector) Add(d Device) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.devices = append(slices.Clip(c.devices), d)
	c.wake()
}

// Browse also looks for devices that announce themselves, from now on.
func (c *Connector) Browse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.browse = true
	c.wake()
}

// wake has Watch look at what is asked for. It is called with mu held.
func (c *Connector) wake() {
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// asked is what was asked for: devices, and whether to look for others.
func (c *Connector) asked() (devices []Device, browse bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.devices, c.browse
}

// Watch reports each device that was asked for once, as a group of its own: whether
// it can be reached is found when it is spoken to. Those that announce themselves
// are one group.
func (c *Connector) Watch(ctx context.Context, update func(group string, all []transport.Sighting)) error {
	var look <-chan time.Time
	var ear *ear
	var seen []found
	var before []stay
	for reported := 0; ; {
		devices, browse := c.asked()
		for _, d := range devices[reported:] {
			s := c.named(d)
			update(Medium+" "+s.Address, []transport.Sighting{s})
		}
		more := len(devices) > reported
		reported = len(devices)
		if browse && ear == nil {
			ear = newEar(c.browser, c.log)
			defer ear.close()
			ticker := time.NewTicker(lookFound)
			defer ticker.Stop()
			look = ticker.C
		}
		if ear != nil {
			all := ear.listen(time.Now())
			if more || !slices.EqualFunc(all, seen, found.equal) {
				seen = all
				if stays := c.settle(all); !slices.EqualFunc(stays, before, stay.equal) {
					update(Medium, c.sightings(stays))
					before = stays
				}
			}
		}
		select {
		case <-c.more:
		case <-look:
		case <-ctx.Done():
			return nil
		}
	}
}

// named is the sighting of a device that was asked for.
func (c *Connector) named(d Device) transport.Sighting {
	at, _ := parseURL(d.URL) // it was checked
	medium := Medium
	if at.socket() {
		medium = "ws"
	}
	return transport.Sighting{
		Address:   at.address(),
		Local:     at.loopback(),
		Instance:  1,
		Transport: medium,
		Name:      d.Name,
		Adopted:   !d.Pending,
		Protocols: c.cfg.Dialects,
		Open:      func(ctx context.Context) (transport.Link, error) { return c.open(ctx, d, at) },
	}
}

// open opens a device that was asked for.
func (c *Connector) open(ctx context.Context, d Device, at endpoint) (transport.Link, error) {
	token, err := d.token()
	if err != nil {
		return nil, err
	}
	at.targets = c.browser.resolve(at.host, time.Now()) // not every resolver knows .local
	if !at.socket() {
		return newLink(&c.cfg, at.address(), at, token), nil
	}
	return c.socket(ctx, at.address(), at.url(), token, func(ctx context.Context, network, address string) (net.Conn, error) {
		return at.connect(ctx, c.cfg.DialTimeout, network, address)
	})
}

// maxToken is the length of the longest token.
const maxToken = 4096

// token is what is sent to the device; empty if there is none.
func (d Device) token() (string, error) {
	if d.TokenFile == "" {
		return d.Token, nil
	}
	file, err := os.Open(d.TokenFile)
	if err != nil {
		return "", fmt.Errorf("the token of %s: %w", d.URL, err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxToken+2)) // with the end of its line
	token := strings.TrimSpace(string(text))
	if err == nil {
		err = checkToken(token)
	}
	if err == nil && token == "" {
		err = errors.New("it is empty")
	}
	if err != nil {
		return "", fmt.Errorf("the token of %s, in %s: %w", d.URL, d.TokenFile, err)
	}
	return token, nil
}

// checkToken tells whether a token can stand in a header.
func checkToken(token string) error {
	if len(token) > maxToken {
		return fmt.Errorf("a token has at most %d bytes", maxToken)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("a token has neither spaces nor characters beyond ASCII")
	}
	return nil
}
