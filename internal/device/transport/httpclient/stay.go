package httpclient

import (
	"context"
	"fmt"
	"slices"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// stay is a device that was found, from when it is there until it is gone or has moved.
type stay struct {
	address  string
	names    bool // the address is made of names, as others elsewhere may have them
	instance uint64
	title    string
	at       endpoint
}

func (s stay) equal(other stay) bool {
	return s.address == other.address && s.instance == other.instance && s.title == other.title && s.at.equal(other.at)
}

func (e endpoint) equal(other endpoint) bool {
	return e.host == other.host && e.path == other.path && slices.Equal(e.targets, other.targets)
}

// moved tells whether what was reached in one way is not there any more.
func (e endpoint) moved(to endpoint) bool {
	return e.path != to.path || !slices.Contains(to.targets, e.targets[0])
}

// settle tells who is there. What the owner gave a URL of is left out, and of two that
// give themselves the same id the one that came later goes by its names.
func (c *Connector) settle(all []found) []stay {
	asked := make(map[string][]endpoint) // by host and port
	devices, _ := c.asked()
	for _, d := range devices {
		at, _ := parseURL(d.URL) // it was checked
		asked[at.host] = append(asked[at.host], at)
	}
	now := make(map[string]stay)
	var stays []stay
	for _, f := range all {
		if len(asked) > 0 && f.isAmong(asked) {
			continue
		}
		addresses := f.addresses()
		free := slices.IndexFunc(addresses, func(a string) bool { return now[a].address == "" })
		if free < 0 {
			continue
		}
		s := stay{address: addresses[free], names: free == len(addresses)-1, title: f.title(), at: f.endpoint()}
		if before, ok := c.stays[s.address]; ok && !before.at.moved(s.at) {
			s.instance = before.instance
		} else {
			c.count++
			s.instance = c.count
		}
		now[s.address] = s
		stays = append(stays, s)
	}
	c.stays = now
	return stays
}

// sightings are what is told of devices that were found. They are not opened before
// their owner says so: a board has one session, and whoever greets it ends another's.
func (c *Connector) sightings(stays []stay) []transport.Sighting {
	var all []transport.Sighting
	for _, s := range stays {
		all = append(all, transport.Sighting{
			Address:   s.address,
			Local:     s.names,
			Instance:  s.instance,
			Transport: Medium,
			Shy:       fmt.Sprintf("greeting %q at %s%s can end the session that another program has with it", s.title, s.at.host, s.at.path),
			Protocols: c.cfg.Dialects,
			Open: func(context.Context) (transport.Link, error) {
				return newLink(&c.cfg, s.address, s.at, ""), nil
			},
		})
	}
	return all
}
