package httpclient

import (
	"net"
	"net/netip"
	"strconv"
)

// placeOf returns the place of a configured device.
func (c *Connector) placeOf(at endpoint) *place {
	return &place{onReach: func(target netip.AddrPort) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.reached[at.address()] != target {
			c.reached[at.address()], c.renewed = target, true
			c.wake()
		}
	}}
}

// takeRenewed reports whether a configured device was reached at another address since
// the last call.
func (c *Connector) takeRenewed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	renewed := c.renewed
	c.renewed = false
	return renewed
}

// configured returns the endpoints of the configured devices by each host and port at
// which they can be announced: as they are written, and as they were reached. A device
// on this machine is announced with the addresses of this machine.
func (c *Connector) configured() map[string][]endpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[string][]endpoint)
	for _, d := range c.devices {
		at, _ := parseURL(d.URL) // Check parsed it
		hosts := map[string]bool{at.host: true}
		target := c.reached[at.address()]
		if target.IsValid() {
			hosts[target.String()] = true
		}
		if target.Addr().IsLoopback() || at.loopback() {
			for _, host := range ownHosts(at) {
				hosts[host] = true
			}
		}
		for host := range hosts {
			all[host] = append(all[host], at)
		}
	}
	return all
}

// ownHosts returns the addresses of this machine with the port of an endpoint.
func ownHosts(at endpoint) (hosts []string) {
	_, text, _ := net.SplitHostPort(at.host)
	port, err := strconv.ParseUint(text, 10, 16)
	addrs, failed := net.InterfaceAddrs()
	if err != nil || failed != nil {
		return nil
	}
	for _, a := range addrs {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			hosts = append(hosts, netip.AddrPortFrom(prefix.Addr(), uint16(port)).String())
		}
	}
	return hosts
}
