// Package serial connects to boards on serial ports, mostly behind USB.
//
//	operating system -> systemPort -> Sighting -> pollerConn -> Link
//	(sysfs, registry)   (twice a second)
//
// A sighting is identified by the board that is plugged in, not by the name that its
// port has today. Ports are polled twice a second, which works on every system. An
// open port reads and writes in the runtime's poller if the system supports it, and
// not in a blocking system call.
package serial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// Name is the name of the transport.
const Name = "serial"

// Auto in place of a path finds every board that is plugged in.
const Auto = "auto"

// DefaultBaud is the bit rate of most firmware.
const DefaultBaud = 115200

// Config lists the ports.
type Config struct {
	Ports []Port
	// Protocols are tried on each port, in order.
	Protocols []string
	// PollInterval is the time between two scans of the ports.
	PollInterval time.Duration
	Limits       transport.Limits
}

// Port is a configured port, or Auto.
type Port struct {
	// Path is /dev/ttyACM0, a link in /dev/serial/by-id, COM3, or Auto.
	Path string
	// Baud is the bit rate; DefaultBaud if it is zero.
	Baud int
	// Name is the device's ID; empty to derive it from what the board reports.
	Name string
	// Pending lists the board without trusting it.
	Pending bool
	// Reset is what opening does to the board.
	Reset Reset
}

// Reset selects what the DTR and RTS lines do when a port is opened.
type Reset string

const (
	// ResetOpen raises both lines, as Arduino boards expect. Many restart then.
	ResetOpen Reset = ""
	// ResetNone keeps both lines raised when the port is closed. Opening it again
	// does not restart the board.
	ResetNone Reset = "none"
)

// DefaultConfig has no ports.
func DefaultConfig() Config {
	return Config{PollInterval: 500 * time.Millisecond, Limits: transport.DefaultLimits()}
}

// Check returns an error if the config is invalid.
func (c Config) Check() error {
	seen := make(map[string]bool)
	for _, p := range c.Ports {
		switch {
		case p.Path == "":
			return fmt.Errorf("port must have a path such as /dev/ttyACM0 or COM3, or %s", Auto)
		case seen[p.Path]:
			return fmt.Errorf("port %s is configured twice", p.Path)
		case p.Baud != 0 && (p.Baud < 50 || p.Baud > 12_000_000):
			return fmt.Errorf("port %s: baud must be 50 to 12000000, got %d", p.Path, p.Baud)
		case p.Reset != ResetOpen && p.Reset != ResetNone:
			return fmt.Errorf("port %s: reset must be %s or empty, got %q", p.Path, ResetNone, p.Reset)
		case p.Path == Auto && p.Name != "":
			return fmt.Errorf("%s may find several boards, so it cannot have the name %q; name a port instead", Auto, p.Name)
		}
		seen[p.Path] = true
	}
	return nil
}

// Connector is the transport.Connector for serial ports.
type Connector struct {
	transport.FirstLook
	cfg     Config
	system  system
	changed chan struct{} // signals Watch after Add or Set

	mu    sync.Mutex
	ports []Port // configured

	// The following fields belong to Watch.

	last      []systemPort        // the last list of the system
	seen      map[string]identity // of the board that a configured path had last
	assigned  map[string]string   // address of each present port, by plugID
	present   map[string]presence // by address
	instances uint64              // ever present
}

// system is the operating system's knowledge of ports.
type system interface {
	// list returns every port that a board may be plugged into. covers reports
	// whether a port with a path would be in that list.
	list() ([]systemPort, error)
	covers(path string) bool
	// stat resolves a path. The fileID changes when another port takes its place.
	stat(path string) (real, fileID string, err error)
}

// identity is how a board was reported.
type identity struct {
	address string
	local   bool
}

// presence is a board from when it is plugged in until it is unplugged.
type presence struct {
	plugID   string
	instance uint64
	opened   *atomic.Bool
	// What it was reported with when it was opened.
	name       string
	adopted    bool
	adoptFirst string
}

// New returns a Connector for a config that passed Check.
func New(cfg Config) *Connector {
	return &Connector{
		FirstLook: transport.NewFirstLook(), cfg: cfg, system: native{}, changed: make(chan struct{}, 1), ports: cfg.Ports,
		seen: make(map[string]identity), assigned: make(map[string]string), present: make(map[string]presence),
	}
}

// Add adds a port. Its path must be new.
func (c *Connector) Add(p Port) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ports = append(slices.Clip(c.ports), p)
	c.wake()
}

// Set replaces all ports. They must pass Check. A board that was opened keeps its name
// and trust until it is plugged in again, because opening it again may restart it.
// Other settings of its port count from when it is opened next.
func (c *Connector) Set(ports []Port) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ports = ports
	c.wake()
}

// wake makes Watch look at the ports. Called with mu held.
func (c *Connector) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// wanted returns the configured ports.
func (c *Connector) wanted() []Port {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ports
}

// Watch reports all ports as one group. While the system cannot list ports, the last
// list counts.
func (c *Connector) Watch(ctx context.Context, update func(group string, all []transport.Sighting)) error {
	for len(c.wanted()) == 0 {
		c.EndLook()
		select {
		case <-c.changed:
		case <-ctx.Done():
			return nil
		}
	}
	tick := time.NewTicker(c.cfg.PollInterval)
	defer tick.Stop()
	var before []port
	for first := true; ; first = false {
		if ports := c.scan(); first || !slices.Equal(ports, before) {
			update(Name, c.sightings(ports))
			before = ports
		}
		c.EndLook()
		select {
		case <-ctx.Done():
			return nil
		case <-c.changed:
		case <-tick.C:
		}
	}
}

// port is a configured port and the system port that matches it.
type port struct {
	config Port
	absent string   // why no port matches
	last   identity // of the board that was there before, if it is absent
	systemPort
	fileID string
}

// plugID changes each time that something is plugged in.
func (p port) plugID() string { return p.fileID + " " + p.PlugID }

// scan finds the configured ports, and for Auto all others with a board on USB. It
// includes a configured port that does not exist, because its owner expects it. Such a
// port stands for the board that was there last.
func (c *Connector) scan() []port {
	all, err := c.system.list()
	if err != nil {
		all = c.last
	}
	c.last = all
	var ports []port
	named := make(map[string]bool)
	wanted := c.wanted()
	for _, cfg := range wanted {
		if cfg.Path == Auto {
			continue
		}
		real, fileID, err := c.system.stat(cfg.Path)
		if err != nil {
			ports = append(ports, port{config: cfg, absent: absent(cfg.Path, all), last: c.seen[cfg.Path]})
			continue
		}
		if named[real] {
			ports = append(ports, port{config: cfg, absent: fmt.Sprintf("%s is %s, which is already configured", cfg.Path, real)})
			continue
		}
		p := port{config: cfg, systemPort: systemPort{Path: real}, fileID: fileID}
		if i := slices.IndexFunc(all, func(f systemPort) bool { return f.Path == real }); i >= 0 {
			p.systemPort = all[i]
		} else if c.system.covers(real) { // it is just appearing or disappearing
			if last, ok := c.seen[cfg.Path]; ok {
				ports = append(ports, port{config: cfg, absent: absent(cfg.Path, all), last: last})
			}
			continue
		}
		named[real] = true
		ports = append(ports, p)
	}
	auto := slices.IndexFunc(wanted, func(p Port) bool { return p.Path == Auto })
	if auto < 0 {
		return ports
	}
	for _, f := range all {
		if _, fileID, err := c.system.stat(f.Path); err == nil && f.USB && !named[f.Path] {
			ports = append(ports, port{config: wanted[auto], systemPort: f, fileID: fileID})
		}
	}
	return ports
}

// absent returns the message for a missing port, with the ports that exist.
func absent(path string, all []systemPort) string {
	if len(all) == 0 {
		return fmt.Sprintf("port %s does not exist, and no board is on another port", path)
	}
	var names []string
	for _, f := range all {
		names = append(names, f.String())
	}
	return fmt.Sprintf("port %s does not exist; found %s", path, strings.Join(names, ", "))
}

// sightings returns the sightings of ports. A board that was plugged in again gets a
// new instance.
func (c *Connector) sightings(ports []port) []transport.Sighting {
	var all []transport.Sighting
	present := make(map[string]presence)
	addresses := c.addresses(ports)
	elsewhere := make(map[string]bool) // boards that are on some port
	for i, address := range addresses {
		elsewhere[address] = elsewhere[address] || ports[i].absent == ""
	}
	for i, address := range addresses {
		p := ports[i]
		if p.absent != "" && elsewhere[address] {
			address, p.last = p.config.Path, identity{} // its board is on another port now
		}
		if _, twice := present[address]; twice {
			continue
		}
		at, known := c.present[address]
		if !known || at.plugID != p.plugID() {
			c.instances++
			at = presence{plugID: p.plugID(), instance: c.instances, opened: new(atomic.Bool)}
		}
		s := transport.Sighting{
			Address: address, Local: p.local(address), Instance: at.instance, Location: p.Location, Transport: Name, Attached: true, Name: p.config.Name,
			Adopted: !p.config.Pending, Absent: p.absent, Protocols: c.cfg.Protocols,
			Open: func(context.Context) (transport.Link, error) { return c.open(p, address, at.opened) },
		}
		if p.last.address != "" {
			s.Absent = "unplugged: " + p.absent
		}
		if p.config.Path != Auto && p.absent == "" {
			c.seen[p.config.Path] = identity{address, s.Local}
		}
		if p.config.Path == Auto && !p.fromBoardMaker() {
			s.Adopted, s.AdoptFirst = false, fmt.Sprintf("opening %s may restart the device on it", p.systemPort)
		}
		if at.opened.Load() {
			s.Name, s.Adopted, s.AdoptFirst = at.name, at.adopted, at.adoptFirst
		}
		at.name, at.adopted, at.adoptFirst = s.Name, s.Adopted, s.AdoptFirst
		present[address] = at
		all = append(all, s)
	}
	c.present = present
	return all
}

// addresses returns the address of each port. A port keeps its address while it is
// present. If two boards have the same serial number, their locations tell them
// apart.
func (c *Connector) addresses(ports []port) []string {
	assigned := make(map[string]string)
	taken := make(map[string]bool)
	wanted := make(map[string]int) // number of new ports per address
	for _, p := range ports {
		if address, ok := c.assigned[p.plugID()]; ok {
			assigned[p.plugID()], taken[address] = address, true
		} else if p.absent == "" {
			wanted[p.address()]++
		}
	}
	all := make([]string, len(ports))
	for i, p := range ports {
		if p.absent != "" {
			all[i] = cmp.Or(p.last.address, p.config.Path)
			continue
		}
		address, ok := assigned[p.plugID()]
		if !ok {
			if address = p.address(); taken[address] || wanted[address] > 1 {
				address = p.locationAddress()
			}
			if taken[address] { // several ports at one location
				address += "-" + shellSafe(filepath.Base(p.Path))
			}
			assigned[p.plugID()], taken[address] = address, true
		}
		all[i] = address
	}
	c.assigned = assigned
	return all
}

// open opens a present port.
func (c *Connector) open(p port, address string, opened *atomic.Bool) (transport.Link, error) {
	baud := cmp.Or(p.config.Baud, DefaultBaud)
	conn, err := c.openUnchanged(p, baud)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", p.Path, err)
	}
	// With ResetNone, a board restarts at most on the first open after it was
	// plugged in.
	again := opened.Swap(true)
	restarts := p.config.Reset != ResetNone || !again
	return transport.NewStream(conn, transport.Info{Transport: Name, Address: address, BitRate: baud, Restarts: restarts}, c.cfg.Limits), nil
}

// Open opens a port as a stream of bytes, without a Connector. Most boards restart then.
func Open(path string, baud int) (transport.Conn, error) { return openPort(path, baud, ResetOpen) }

// errUnplugged means that the board is gone, or that another one is on the port.
var errUnplugged = errors.New("unplugged")

// openUnchanged opens a port if the board that was seen is still on it. The system may
// have given the path to another board.
func (c *Connector) openUnchanged(p port, baud int) (transport.Conn, error) {
	if !c.unchanged(p) {
		return nil, errUnplugged
	}
	conn, err := openPort(p.Path, baud, p.config.Reset)
	if err == nil && !c.unchanged(p) {
		conn.Close()
		return nil, errUnplugged
	}
	return conn, err
}

// unchanged reports whether the port is the one that was seen.
func (c *Connector) unchanged(p port) bool {
	path := p.config.Path
	if path == Auto {
		path = p.Path
	}
	real, fileID, err := c.system.stat(path)
	if err != nil || real != p.Path || fileID != p.fileID {
		return false
	}
	all, err := c.system.list()
	i := slices.IndexFunc(all, func(f systemPort) bool { return f.Path == p.Path })
	return err == nil && (i < 0 && !p.USB || i >= 0 && all[i] == p.systemPort)
}
