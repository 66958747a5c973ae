// Package mdns finds services that announce themselves by multicast DNS
// (RFC 6762, RFC 6763).
//
//	sockets -> cache -> Browser -> Service
//	(one per network)  (records and their lifetimes)
//
// A Browser sends queries, listens on every network of the machine, and lists
// the services that can be reached now. It opens no connection to them.
// Announcements are not trusted: anybody on the network can send them, so their
// number, size and rate are bounded.
package mdns

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
)

// MaxTypes is the largest number of service types that fit into one query.
const MaxTypes = 16

var typePattern = regexp.MustCompile(`^_[A-Za-z0-9]([A-Za-z0-9-]{0,13}[A-Za-z0-9])?\._(tcp|udp)$`)

// ValidType reports whether s is a service type, such as _mcp._tcp.
func ValidType(s string) bool { return typePattern.MatchString(s) }

// Service is an announced service instance that can be reached. All its fields
// come from the announcement and may be lies.
type Service struct {
	// Instance is the name for people. It holds any bytes, up to 63.
	Instance string
	// Type is the service type, such as _mcp._tcp.
	Type string
	// Host is the host name, such as esp.local.
	Host string
	Port uint16
	// Text holds the requested keys of the TXT record, in lower case.
	Text map[string]string
	// Addrs are the addresses of the host, best first; there is at least one.
	Addrs []netip.Addr
}

// Equal reports whether two services are the same in every field.
func (s Service) Equal(other Service) bool {
	return s.Instance == other.Instance && s.Type == other.Type && s.Host == other.Host && s.Port == other.Port &&
		maps.Equal(s.Text, other.Text) && slices.Equal(s.Addrs, other.Addrs)
}

const (
	refreshEvery = 5 * time.Second // between two looks at the networks
	warnEvery    = time.Minute     // between two warnings about too many services
)

// Browser lists the services of some types. Services and Close are called by one
// goroutine; Resolve may be called by any.
type Browser struct {
	cache   *cache
	sockets *sockets
	log     *slog.Logger

	refreshed   time.Time // last look at the networks
	unavailable bool      // no network can be listened on, which was logged
	dropped     int       // announcements dropped since the last warning
	warned      time.Time // last warning about dropped announcements
}

// New returns a Browser for service types that passed ValidType. It keeps the
// values of textKeys, which are in lower case, from the TXT records. It listens on
// no network until Services is called.
func New(types, textKeys []string, log *slog.Logger) *Browser {
	c := newCache(types, textKeys)
	receive := func(packet []byte) { c.receive(packet, time.Now()) }
	return &Browser{cache: c, sockets: newSockets(receive), log: log}
}

// Services sends the queries that are due and returns the services that can be
// reached, in the order in which they appeared. It must be called several times a
// second while services are wanted.
func (b *Browser) Services(now time.Time) []Service {
	if now.Sub(b.refreshed) >= refreshEvery {
		b.refreshed = now
		more, err := b.sockets.refresh()
		if more {
			b.cache.restart(now)
		}
		if err != nil && !b.unavailable {
			b.log.Warn("mDNS discovery is unavailable; devices can still be reached by URL", "err", err)
		}
		b.unavailable = err != nil
	}
	for _, packet := range encode(b.cache.queries(now)) {
		b.sockets.send(packet)
	}
	all, dropped := b.cache.services(now)
	if b.dropped += dropped; b.dropped > 0 && now.Sub(b.warned) >= warnEvery {
		b.log.Warn(fmt.Sprintf("too many mDNS services: limit is %d, %d announcements were dropped", maxInstances, b.dropped))
		b.dropped, b.warned = 0, now
	}
	return all
}

// IsLocalName reports whether a host name belongs to mDNS: it ends with .local. No
// other name, and no address, is resolved by what somebody announces.
func IsLocalName(host string) bool {
	return strings.HasSuffix(strings.TrimSuffix(strings.ToLower(host), "."), ".local")
}

// Resolve returns the addresses of an announced host for a host:port, best first.
// It returns nil if the host is not a local name, or if no service announced it. It
// sends nothing.
func (b *Browser) Resolve(hostport string, now time.Time) []netip.AddrPort {
	return b.cache.resolve(hostport, now)
}

// Close stops listening and waits until every reader has ended.
func (b *Browser) Close() { b.sockets.close() }
