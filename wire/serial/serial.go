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
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/wire"
)

// Medium is the name of the medium.
const Medium = "serial"

// Auto in place of a path asks for whatever is plugged in.
const Auto = "auto"

// DefaultBaud is what most firmware uses.
const DefaultBaud = 115200

// Config tells which ports there are.
type Config struct {
	Ports []Port
	// Dialects names the grammars to try on each.
	Dialects []string
	// Look is how often the ports are looked at.
	Look   time.Duration
	Limits wire.Limits
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
	Held bool
	// Reset is what opening does to the board.
	Reset Reset
}

// Reset is what the lines DTR and RTS do when a port is opened.
type Reset string

const (
	// ResetOpen raises both lines, as Arduino boards expect: many restart by it.
	ResetOpen Reset = ""
	// ResetNone lowers both lines, and keeps them as they are when the port is
	// closed.
	ResetNone Reset = "none"
)

// DefaultConfig has no ports.
func DefaultConfig() Config {
	return Config{Look: 500 * time.Millisecond, Limits: wire.DefaultLimits()}
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
	seen   map[string]instance // by address
}

// system is what the operating system knows of ports.
type system interface {
	// list tells of every port that boards are plugged into.
	list() ([]found, error)
	// stat tells where a path leads, and what is there now: its mark changes
	// when something else is.
	stat(path string) (real, mark string, err error)
}

// instance tells one stay of a port from the next.
type instance struct {
	mark   string
	number uint64
}

// New makes a Connector of a config that was checked.
func New(cfg Config) *Connector {
	return &Connector{cfg: cfg, system: native{}, seen: make(map[string]instance)}
}

// Watch reports all ports as one group. It fails if the system does not tell of
// ports at all; if it does not for a moment, what was last seen counts.
func (c *Connector) Watch(ctx context.Context, update func(group string, all []wire.Sighting)) error {
	if len(c.cfg.Ports) == 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(c.cfg.Look)
	defer tick.Stop()
	var before []port
	for first := true; ; first = false {
		ports, err := c.look()
		switch {
		case err != nil && first:
			return fmt.Errorf("looking for serial ports: %w", err)
		case err == nil && (first || !slices.Equal(ports, before)):
			update(Medium, c.sightings(ports))
			before = ports
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// port is what was asked for, and what is there.
type port struct {
	asked Port
	found // empty, if nothing is there
	mark  string
}

// look finds the ports that were asked for: those with a path, whether they are
// there or not, and for Auto all others that have a board on USB.
func (c *Connector) look() ([]port, error) {
	all, err := c.system.list()
	if err != nil {
		return nil, err
	}
	var ports []port
	named := make(map[string]bool)
	for _, asked := range c.cfg.Ports {
		if asked.Path == Auto {
			continue
		}
		p := port{asked: asked}
		if real, mark, err := c.system.stat(asked.Path); err == nil {
			p.found, p.mark = found{Path: real}, mark
			if i := slices.IndexFunc(all, func(f found) bool { return f.Path == real }); i >= 0 {
				p.found = all[i]
			}
			named[real] = true
		}
		ports = append(ports, p)
	}
	auto := slices.IndexFunc(c.cfg.Ports, func(p Port) bool { return p.Path == Auto })
	if auto < 0 {
		return ports, nil
	}
	for _, f := range all {
		if _, mark, err := c.system.stat(f.Path); err == nil && f.USB && !named[f.Path] {
			ports = append(ports, port{asked: c.cfg.Ports[auto], found: f, mark: mark})
		}
	}
	return ports, nil
}

// sightings makes sightings of ports, and tells new stays from old ones.
func (c *Connector) sightings(ports []port) []wire.Sighting {
	var all []wire.Sighting
	here := make(map[string]bool)
	for i, address := range addresses(ports) {
		p := ports[i]
		stay := c.seen[address]
		if stay.number == 0 || stay.mark != p.mark {
			stay = instance{p.mark, stay.number + 1}
		}
		c.seen[address] = stay
		here[address] = true
		s := wire.Sighting{Address: address, Instance: stay.number, Medium: Medium, Adopted: !p.asked.Held, Dialects: c.cfg.Dialects}
		switch {
		case p.Path == "":
			s.Open = func(context.Context) (wire.Link, error) { return nil, c.absent(p.asked.Path) }
		case p.asked.Path == Auto:
			s.Adopted = p.own() && !p.asked.Held
			if !p.own() {
				s.Shy = fmt.Sprintf("opening %s can restart what is there", p.found)
			}
			fallthrough
		default:
			s.Name = p.asked.Name
			s.Open = func(ctx context.Context) (wire.Link, error) { return c.open(ctx, p, address) }
		}
		all = append(all, s)
	}
	for address, stay := range c.seen {
		if !here[address] {
			c.seen[address] = instance{"", stay.number}
		}
	}
	return all
}

// absent says that a port is not there, and which are.
func (c *Connector) absent(path string) error {
	all, err := c.system.list()
	if err != nil || len(all) == 0 {
		return fmt.Errorf("there is no port %s, and no other that a board is plugged into", path)
	}
	var names []string
	for _, f := range all {
		names = append(names, f.String())
	}
	return fmt.Errorf("there is no port %s; there is %s", path, strings.Join(names, ", "))
}

// open opens a port that is there.
func (c *Connector) open(ctx context.Context, p port, address string) (wire.Link, error) {
	baud := cmp.Or(p.asked.Baud, DefaultBaud)
	conn, err := openPort(p.Path, baud, p.asked.Reset)
	if err == nil && !c.still(p) {
		conn.Close()
		err = errUnplugged
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", p.Path, err)
	}
	info := wire.Info{Medium: Medium, Address: address, BitRate: baud, Restarts: p.asked.Reset != ResetNone}
	return wire.NewStream(conn, info, c.cfg.Limits), nil
}

// still tells whether what was seen at a port is there: a port that has become
// free may by now have been given to another board.
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
