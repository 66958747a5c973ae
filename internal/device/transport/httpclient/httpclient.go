// Package httpclient connects to devices that are HTTP servers, such as those that
// speak standard MCP. The owner gives their URLs, or they are discovered by mDNS.
//
//	configured URL --------------> Sighting, always present
//	mdns.Service -> announcement -> Sighting, until it says goodbye or expires
//
// A Link to such a device has transport.HTTP: it carries requests and no messages.
// A device with a ws or wss URL is opened by the WebSocket transport, and its Link
// carries messages.
//
// Most of these devices are boards that serve one connection at a time. So nothing
// is dialed before there is a request, and a connection is not idle for long.
package httpclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/mdns"
)

// Name is the name of the transport.
const Name = "http"

// Config lists the devices and limits what they may do.
type Config struct {
	Devices []Device
	// Protocols are tried on each device, in order.
	Protocols []string
	// Browse also discovers devices by mDNS. They stay pending until adopted.
	Browse bool
	// Services are the service types to discover, such as _mcp._tcp.
	Services []string
	// DialTimeout bounds one attempt to connect.
	DialTimeout time.Duration
	// ResponseTimeout bounds the time until a response begins.
	ResponseTimeout time.Duration
	// MaxMessage is the length of the longest response or event in bytes.
	MaxMessage int
}

// Device is one configured device.
type Device struct {
	// URL is that of its MCP endpoint, with the scheme http, https, ws or wss. For
	// HTTP, an empty path means DefaultPath.
	URL string
	// Name is the device's ID; empty to derive it from what the device reports.
	Name string
	// Token is sent with each request as a bearer token. TokenFile names a file to
	// read it from instead, each time the device is opened.
	Token, TokenFile string
	// Revision differs when the content of TokenFile does.
	Revision string
	// Pending lists the device without trusting it.
	Pending bool
}

// DefaultConfig has no devices.
func DefaultConfig() Config {
	return Config{Services: []string{"_mcp._tcp"}, DialTimeout: 5 * time.Second, ResponseTimeout: 3 * time.Minute, MaxMessage: 4 << 20}
}

// Check returns an error if the config is invalid.
func (c Config) Check() error {
	seen := make(map[string]bool)
	for _, d := range c.Devices {
		at, err := parseURL(d.URL)
		if err != nil {
			return err
		}
		if seen[at.address()] {
			return fmt.Errorf("url %s is configured twice", d.URL)
		}
		seen[at.address()] = true
		if d.Token != "" && d.TokenFile != "" {
			return fmt.Errorf("url %s: set token or file, not both", d.URL)
		}
		if err := checkToken(d.Token); err != nil {
			return fmt.Errorf("url %s: %w", d.URL, err)
		}
	}
	for _, service := range c.Services {
		if !mdns.ValidType(service) {
			return fmt.Errorf("service %q: must be a type such as _mcp._tcp", service)
		}
	}
	if c.Browse && (len(c.Services) == 0 || len(c.Services) > mdns.MaxTypes) {
		return fmt.Errorf("services: must be 1 to %d types, got %d", mdns.MaxTypes, len(c.Services))
	}
	for name, d := range map[string]time.Duration{"dial_timeout": c.DialTimeout, "answer": c.ResponseTimeout} {
		if d <= 0 {
			return fmt.Errorf("%s: must be greater than 0, got %v", name, d)
		}
	}
	if c.MaxMessage < 1 {
		return fmt.Errorf("message: must be at least 1 byte, got %d", c.MaxMessage)
	}
	return nil
}

// WebSocket opens a link to a device that accepts WebSockets. Address is that of the
// link, token may be empty, and dial makes the connection.
type WebSocket func(ctx context.Context, address, url, token string, dial func(ctx context.Context, network, address string) (net.Conn, error)) (transport.Link, error)

// browser is the part of mdns.Browser that is used. Services is called several times
// a second, and only while devices are discovered.
type browser interface {
	Services(now time.Time) []mdns.Service
	Resolve(hostport string, now time.Time) []netip.AddrPort
	Close()
}

// Connector is the transport.Connector for HTTP.
type Connector struct {
	transport.FirstLook
	cfg     Config
	socket  WebSocket
	browser browser
	changed chan struct{} // signals Watch after Add, Set or Browse

	mu      sync.Mutex
	devices []Device
	browse  bool // discover devices by mDNS
	// reached is where configured devices were reached, by address: one that is also
	// discovered is one device.
	reached map[string]netip.AddrPort
	renewed bool // reached has changed since Watch looked

	// The following fields belong to Watch.

	discovered map[string]discovered // by address
	instances  uint64                // ever discovered
}

// New returns a Connector for a config that passed Check.
func New(cfg Config, socket WebSocket, log *slog.Logger) *Connector {
	return &Connector{
		FirstLook: transport.NewFirstLook(), cfg: cfg, socket: socket, browser: mdns.New(cfg.Services, textKeys, log), changed: make(chan struct{}, 1),
		devices: cfg.Devices, browse: cfg.Browse, reached: make(map[string]netip.AddrPort), discovered: make(map[string]discovered),
	}
}

// Add adds a device. It must pass Check, and its URL must be new.
func (c *Connector) Add(d Device) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.devices = append(slices.Clip(c.devices), d)
	c.wake()
}

// Set replaces all configured devices. They must pass Check.
func (c *Connector) Set(devices []Device) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.devices = devices
	c.wake()
}

// Browse starts to discover devices by mDNS.
func (c *Connector) Browse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.browse = true
	c.wake()
}

// wake makes Watch look at the wanted devices. Called with mu held.
func (c *Connector) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// wanted returns the configured devices, and whether to discover others.
func (c *Connector) wanted() (devices []Device, browse bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.devices, c.browse
}

// browseEvery is the time between two looks at the announced services.
const browseEvery = 100 * time.Millisecond

// Watch reports each device when it is configured, as a group of its own: only a request
// shows whether it can be reached. Discovered devices are one group.
func (c *Connector) Watch(ctx context.Context, update func(group string, all []transport.Sighting)) error {
	var tick <-chan time.Time
	var services []mdns.Service
	var before []discovered
	reported := make(map[string]reportedDevice)
	for {
		devices, browse := c.wanted()
		more := c.reportNamed(devices, reported, update)
		more = c.takeRenewed() || more
		if browse && tick == nil {
			defer c.browser.Close()
			ticker := time.NewTicker(browseEvery)
			defer ticker.Stop()
			tick = ticker.C
		}
		if browse {
			all := c.browser.Services(time.Now())
			if more || !slices.EqualFunc(all, services, mdns.Service.Equal) {
				services = all
				if now := c.discover(all); !slices.EqualFunc(now, before, discovered.equal) {
					update(Name, c.sightings(now))
					before = now
				}
			}
		}
		c.EndLook()
		select {
		case <-c.changed:
		case <-tick:
		case <-ctx.Done():
			return nil
		}
	}
}

// reportedDevice is a configured device that was reported.
type reportedDevice struct {
	Device
	instance uint64
}

// reportNamed reports the configured devices that differ from those reported before, by
// address, and whether there are any. A device that is opened in another way than
// before, for example with another token, is another instance: it is connected again.
func (c *Connector) reportNamed(devices []Device, reported map[string]reportedDevice, update func(group string, all []transport.Sighting)) (changed bool) {
	now := make(map[string]bool)
	for _, d := range devices {
		at, _ := parseURL(d.URL) // Check parsed it
		now[at.address()] = true
	}
	for address := range reported { // first: a name may move to another device
		if !now[address] {
			delete(reported, address)
			update(Name+" "+address, nil)
			changed = true
		}
	}
	for _, d := range devices {
		at, _ := parseURL(d.URL)
		was, known := reported[at.address()]
		if known && was.Device == d {
			continue
		}
		next := reportedDevice{d, was.instance}
		if !known || was.URL != d.URL || was.Token != d.Token || was.TokenFile != d.TokenFile || was.Revision != d.Revision {
			next.instance++
		}
		reported[at.address()] = next
		s := c.named(d)
		s.Instance = next.instance
		update(Name+" "+s.Address, []transport.Sighting{s})
		changed = true
	}
	return changed
}

// named returns the sighting of a configured device.
func (c *Connector) named(d Device) transport.Sighting {
	at, _ := parseURL(d.URL) // Check parsed it
	name := Name
	if at.socket() {
		name = "ws"
	}
	p := c.placeOf(at)
	s := transport.Sighting{
		Address:   at.address(),
		Local:     at.loopback(),
		Instance:  1,
		Transport: name,
		Name:      d.Name,
		Adopted:   !d.Pending,
		Protocols: c.cfg.Protocols,
		Reached:   p.reached,
		Open: func(ctx context.Context) (transport.Link, error) {
			at := at
			at.targets = c.resolve(at)
			return c.open(ctx, d, at, p)
		},
	}
	if at.announced() {
		s.Announced = c.announced(at,
			func() []netip.AddrPort { return c.resolve(at) },
			func(ctx context.Context, at endpoint) (transport.Link, error) { return c.open(ctx, d, at, p) })
	}
	return s
}

// resolve returns the announced addresses of a .local name, because not every system
// resolves those. What is announced for any other host is not what the owner named.
func (c *Connector) resolve(at endpoint) []netip.AddrPort {
	if !at.local() {
		return nil
	}
	return c.browser.Resolve(at.host, time.Now())
}

// errUnverified is why a token is not sent.
var errUnverified = errors.New("its token is not sent: without TLS, anybody on the network can answer for a .local name. Use https or wss, or the IP address of the device")

// open opens a configured device.
func (c *Connector) open(ctx context.Context, d Device, at endpoint, p *place) (transport.Link, error) {
	token, err := d.token()
	if err != nil {
		return nil, err
	}
	if token != "" && at.announced() {
		return nil, fmt.Errorf("opening %s: %w", d.URL, errUnverified)
	}
	p.begin(at)
	if !at.socket() {
		return newLink(&c.cfg, at.address(), at, token, p), nil
	}
	return c.socket(ctx, at.address(), at.url(), token, func(ctx context.Context, network, address string) (net.Conn, error) {
		return p.connect(ctx, at, c.cfg.DialTimeout, network, address)
	})
}

// maxToken is the length of the longest token.
const maxToken = 4096

// token returns the token of the device; empty if it has none.
func (d Device) token() (string, error) {
	if d.TokenFile == "" {
		return d.Token, nil
	}
	file, err := os.Open(d.TokenFile)
	if err != nil {
		return "", fmt.Errorf("reading the token of %s: %w", d.URL, err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxToken+2)) // with its line end
	token := strings.TrimSpace(string(text))
	if err == nil {
		err = checkToken(token)
	}
	if err == nil && token == "" {
		err = errors.New("the file is empty")
	}
	if err != nil {
		return "", fmt.Errorf("reading the token of %s from %s: %w", d.URL, d.TokenFile, err)
	}
	return token, nil
}

// checkToken returns an error if a token does not fit into a header.
func checkToken(token string) error {
	if len(token) > maxToken {
		return fmt.Errorf("token is too long: limit is %d bytes", maxToken)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("token must not contain spaces or characters beyond ASCII")
	}
	return nil
}
