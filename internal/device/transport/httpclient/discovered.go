package httpclient

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/mdns"
)

// discovered is an announced device, from its appearance until it is gone or has
// moved.
type discovered struct {
	address  string
	byName   bool // the address is made of names, which are not unique elsewhere
	instance uint64
	title    string
	at       endpoint
	place    *place
}

func (d discovered) equal(other discovered) bool {
	return d.address == other.address && d.instance == other.instance && d.title == other.title && d.at.equal(other.at)
}

func (e endpoint) equal(other endpoint) bool {
	return e.host == other.host && e.path == other.path && slices.Equal(e.targets, other.targets)
}

// moved reports whether the device can no longer be reached the way it was.
func (e endpoint) moved(to endpoint) bool {
	return e.path != to.path || !slices.Contains(to.targets, e.targets[0])
}

// discover assigns addresses and instances to announced services. It leaves out the
// configured devices. If two services announce the same ID, the later one is
// identified by its names.
func (c *Connector) discover(services []mdns.Service) []discovered {
	configured := c.configured()
	now := make(map[string]discovered)
	var all []discovered
	for _, s := range services {
		a := parseAnnouncement(s)
		if len(configured) > 0 && a.isAmong(configured) {
			continue
		}
		addresses := a.addresses()
		free := slices.IndexFunc(addresses, func(address string) bool { return now[address].address == "" })
		if free < 0 {
			continue
		}
		d := discovered{address: addresses[free], byName: free == len(addresses)-1, title: a.title(), at: a.endpoint()}
		before, known := c.discovered[d.address]
		if d.place = before.place; !known {
			d.place = &place{}
		}
		if d.instance = before.instance; !known || before.at.moved(d.at) {
			c.instances++
			d.instance = c.instances
		}
		now[d.address] = d
		all = append(all, d)
	}
	c.discovered = now
	return all
}

// sightings returns sightings that are not opened before their owner adopts them: a
// board has one session, and a second client ends the session of the first.
func (c *Connector) sightings(all []discovered) []transport.Sighting {
	var out []transport.Sighting
	for _, d := range all {
		out = append(out, transport.Sighting{
			Address:    d.address,
			Local:      d.byName,
			Instance:   d.instance,
			Transport:  Name,
			AdoptFirst: fmt.Sprintf("connecting to %q at %s%s may disconnect another client", d.title, d.at.host, d.at.path),
			Announced: c.announced(d.at, func() []netip.AddrPort { return d.at.targets }, func(_ context.Context, at endpoint) (transport.Link, error) {
				return c.openDiscovered(d, at), nil
			}),
			Reached:   d.place.reached,
			Protocols: c.cfg.Protocols,
			Open:      func(context.Context) (transport.Link, error) { return c.openDiscovered(d, d.at), nil },
		})
	}
	return out
}

// openDiscovered opens a discovered device at an endpoint. It never gets a token.
func (c *Connector) openDiscovered(d discovered, at endpoint) transport.Link {
	at.host = at.targets[0].String()
	d.place.begin(at)
	return newLink(&c.cfg, d.address, at, "", d.place)
}
