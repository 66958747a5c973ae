// Package serial is the medium of boards on serial ports, mostly behind USB.
//
//	what the system says ─▶ ports ─▶ Sighting, by what is plugged in and not
//	(sysfs, registry)               by the name that it happens to have
//
// Ports are looked at twice a second, which works everywhere. What a link reads
// and writes waits in the runtime's poller wherever the system lets it, and not
// in a system call that blocks.
package serial

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// Medium is the name of the medium.
const Name = "serial"

// Auto in place of a path asks for whatever is plugged in.
const Auto = "auto"

// DefaultBaud is what most firmware uses.
const DefaultBaud = 115200

// Config tells which ports there are.
type Config struct {
	Ports []Port
	// Dialects names the grammars to try on each.
	Protocols []string
	// Look is how often the ports are looked at.
	Look   time.Duration
	Limits transport.Limits
}

// Port is a port that the owner named, or Auto.
type Port struct {
	// Path is /dev/ttyACM0, a link in /dev/serial/by-id, COM3, or Auto.
	Path string
	// Baud is the bit rate; DefaultBaud if it is zero.
	Baud int
	// Name is the device's ID; empty to let it follow what the board says.
	Name string
	// Held lists the board without trusting it.
	Pending bool
	// Reset is what opening does to the board.
	Reset Reset
}

// Reset is what the lines DTR and RTS do when a port is opened.
type Reset string

const (
	// ResetOpen raises both lines, as Arduino boards expect: many restart by it.
	ResetOpen Reset = ""
	// ResetNone keeps both lines as they are when the port is closed, so that
	// opening it again does not restart the board.
	ResetNone Reset = "none"
)

// DefaultConfig has no ports.
func DefaultConfig() Config {
	return Config{Look: 500 * time.Millisecond, Limits: transport.DefaultLimits()}
}

// Check tells what is wrong with the config.
func (c Config) Check() error {
	seen := make(map[string]bool)
	for _, p := range c.Ports {
		switch {
		case p.Path == "":
			return fmt.Errorf("a port has no path; want one such as /dev/ttyACM0 or COM3, or %s", Auto)
		case seen[p.Path]:
			return fmt.Errorf("port %s is given twice", p.Path)
		case p.Baud != 0 && (p.Baud < 50 || p.Baud > 12_000_000):
			return fmt.Errorf("port %s: %d is no bit rate", p.Path, p.Baud)
		case p.Reset != ResetOpen && p.Reset != ResetNone:
			return fmt.Errorf("port %s: reset: want %s, or nothing, got %q", p.Path, ResetNone, p.Reset)
		case p.Path == Auto && p.Name != "":
			return fmt.Errorf("%s may find many boards, and cannot give all of them the name %q", Auto, p.Name)
		}
		seen[p.Path] = true
	}
	return nil
}

// Connector is the wire.Connector of the medium.
type Connector struct {
	cfg    Config
	system system
	more   chan struct{} // holds something if a port was added

	mu    sync.Mutex
	ports []Port // that were asked for

	// What follows is Watch's own.

	last  []found           // what the system told last
	been  map[string]bool   // paths that were asked for and have been there
	given map[string]string // the address of each port that is there, by its stay
	stays map[string]stay   // of each address that is there
	count uint64            // of stays
}

// system is what the operating system knows of ports.
type system interface {
	// list tells of every port that boards are plugged into, and lists whether
	// a port with such a path would be among them.
	list() ([]found, error)
	lists(path string) bool
	// stat tells where a path leads, and what is there now: its mark changes
	// when something else is.
	stat(path string) (real, mark string, err error)
}

// stay is a board from when it is plugged in until it is gone.
type stay struct {
	mark     string
	instance uint64
	opened   *atomic.Bool
}

// New makes a Connector of a config that was checked.
func New(cfg Config) *Connector {
	return &Connector{
		cfg: cfg, system: native{}, more: make(chan struct{}, 1), ports: cfg.Ports,
		been: make(map[string]bool), given: make(map[string]string), stays: make(map[string]stay),
	}
}

// Add asks for one more port. Its path is not asked for yet.
func (c *Connector) Add(p Port) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ports = append(slices.Clip(c.ports), p)
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// asked are the ports that were asked for.
func (c *Connector) asked() []Port {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ports
}

// Watch reports all ports as one group. If the system does not tell of ports for
// a while, what it told last counts.
func (c *Connector) Watch(ctx context.Context, update func(group string, all []transport.Sighting)) error {
	for len(c.asked()) == 0 {
		select {
		case <-c.more:
		case <-ctx.Done():
			return nil
		}
	}
	tick := time.NewTicker(c.cfg.Look)
	defer tick.Stop()
	var before []port
	for first := true; ; first = false {
		if ports := c.look(); first || !slices.Equal(ports, before) {
			update(Name, c.sightings(ports))
			before = ports
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.more:
		case <-tick.C:
		}
	}
}

// port is what was asked for, and what is there.
type port struct {
	asked  Port
	absent string // why nothing is there
	found
	mark string
}

// stay is another each time that something is plugged in there.
func (p port) stay() string { return p.mark + " " + p.Stay }

// look finds the ports that were asked for: those with a path, and for Auto all
// others that have a board on USB. A port with a path that has never been there
// is told of, too: its owner expects it.
func (c *Connector) look() []port {
	all, err := c.system.list()
	if err != nil {
		all = c.last
	}
	c.last = all
	var ports []port
	named := make(map[string]bool)
	wanted := c.asked()
	for _, asked := range wanted {
		if asked.Path == Auto {
			continue
		}
		real, mark, err := c.system.stat(asked.Path)
		if err != nil {
			if !c.been[asked.Path] {
				ports = append(ports, port{asked: asked, absent: absent(asked.Path, all)})
			}
			continue
		}
		if named[real] {
			ports = append(ports, port{asked: asked, absent: fmt.Sprintf("%s is %s, which is asked for already", asked.Path, real)})
			continue
		}
		p := port{asked: asked, found: found{Path: real}, mark: mark}
		if i := slices.IndexFunc(all, func(f found) bool { return f.Path == real }); i >= 0 {
			p.found = all[i]
		} else if c.system.lists(real) {
			continue // it is just coming or going
		}
		c.been[asked.Path], named[real] = true, true
		ports = append(ports, p)
	}
	auto := slices.IndexFunc(wanted, func(p Port) bool { return p.Path == Auto })
	if auto < 0 {
		return ports
	}
	for _, f := range all {
		if _, mark, err := c.system.stat(f.Path); err == nil && f.USB && !named[f.Path] {
			ports = append(ports, port{asked: wanted[auto], found: f, mark: mark})
		}
	}
	return ports
}

// absent says that a port is not there, and which are.
func absent(path string, all []found) string {
	if len(all) == 0 {
		return fmt.Sprintf("there is no port %s, and no other that a board is plugged into", path)
	}
	var names []string
	for _, f := range all {
		names = append(names, f.String())
	}
	return fmt.Sprintf("there is no port %s; there is %s", path, strings.Join(names, ", "))
}

// sightings makes sightings of ports, and tells new stays from old ones.
func (c *Connector) sightings(ports []port) []transport.Sighting {
	var all []transport.Sighting
	stays := make(map[string]stay)
	for i, address := range c.addresses(ports) {
		p := ports[i]
		at, known := c.stays[address]
		if !known || at.mark != p.stay() {
			c.count++
			at = stay{p.stay(), c.count, new(atomic.Bool)}
		}
		stays[address] = at
		s := transport.Sighting{
			Address: address, Local: p.local(address), Instance: at.instance, Location: p.Place, Transport: Name, Name: p.asked.Name,
			Adopted: !p.asked.Pending, Absent: p.absent, Protocols: c.cfg.Protocols,
			Open: func(context.Context) (transport.Link, error) { return c.open(p, address, at.opened) },
		}
		if p.asked.Path == Auto && !p.own() {
			s.Adopted, s.AdoptFirst = false, fmt.Sprintf("opening %s can restart what is there", p.found)
		}
		all = append(all, s)
	}
	c.stays = stays
	return all
}

// addresses gives each port its address, which it keeps while it is there. Where
// another has it already, because somebody gave two boards the same number, the
// place tells them apart.
func (c *Connector) addresses(ports []port) []string {
	given := make(map[string]string)
	taken := make(map[string]bool)
	wanted := make(map[string]int) // by those that are new
	for _, p := range ports {
		if address, ok := c.given[p.stay()]; ok {
			given[p.stay()], taken[address] = address, true
		} else if p.absent == "" {
			wanted[p.address()]++
		}
	}
	all := make([]string, len(ports))
	for i, p := range ports {
		if p.absent != "" {
			all[i] = p.asked.Path
			continue
		}
		address, ok := given[p.stay()]
		if !ok {
			if address = p.address(); taken[address] || wanted[address] > 1 {
				address = p.place()
			}
			if taken[address] { // several ports in one place
				address += "-" + word(filepath.Base(p.Path))
			}
			given[p.stay()], taken[address] = address, true
		}
		all[i] = address
	}
	c.given = given
	return all
}

// open opens a port that is there.
func (c *Connector) open(p port, address string, opened *atomic.Bool) (transport.Link, error) {
	baud := cmp.Or(p.asked.Baud, DefaultBaud)
	conn, err := c.openSame(p, baud)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", p.Path, err)
	}
	// With its lines kept as they are, a board restarts by the first opening
	// after it was plugged in, if at all.
	again := opened.Swap(true)
	restarts := p.asked.Reset != ResetNone || !again
	return transport.NewStream(conn, transport.Info{Transport: Name, Address: address, BitRate: baud, Restarts: restarts}, c.cfg.Limits), nil
}

// openSame opens a port if what was seen there still is: a port that has become
// free may by now have been given to another board.
func (c *Connector) openSame(p port, baud int) (transport.Conn, error) {
	if !c.still(p) {
		return nil, errUnplugged
	}
	conn, err := openPort(p.Path, baud, p.asked.Reset)
	if err == nil && !c.still(p) {
		conn.Close()
		return nil, errUnplugged
	}
	return conn, err
}

func (c *Connector) still(p port) bool {
	path := p.asked.Path
	if path == Auto {
		path = p.Path
	}
	real, mark, err := c.system.stat(path)
	if err != nil || real != p.Path || mark != p.mark {
		return false
	}
	all, err := c.system.list()
	i := slices.IndexFunc(all, func(f found) bool { return f.Path == p.Path })
	return err == nil && (i < 0 && !p.USB || i >= 0 && all[i] == p.found)
}
