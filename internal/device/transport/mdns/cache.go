package mdns

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The limits of the cache.
const (
	maxInstances = 1024
	maxAddresses = 8   // per host
	maxQuestions = 128 // at once
	minTTL       = 10 * time.Second
	maxTTL       = 75 * time.Minute // from RFC 6762, for records that seldom change
	goodbyeDelay = time.Second      // from a goodbye until the record is forgotten
	maxInterval  = time.Minute      // between two queries for all services
)

// cache keeps the records of announced services and decides which queries are due.
// It neither sends nor reads the clock.
//
// A service has a PTR record that leads to its instance, an SRV record with host and
// port, a TXT record, and the address records of its host. Each record has a
// lifetime and is queried again before it expires.
type cache struct {
	types    []name          // the service types to look for
	textKeys map[string]bool // the keys of TXT records to keep

	mu        sync.Mutex
	instances map[name]*instance // by key
	hosts     map[name]*host     // of instances, by key
	count     uint64             // instances ever seen
	dropped   int                // instances over the limit
	nextQuery time.Time          // when all services are queried
	interval  time.Duration      // until they are queried again
}

// instance is a service on a host.
type instance struct {
	name    name
	service name
	order   uint64    // of appearance
	since   time.Time // when it appeared, or moved to another host

	pointer, srv lifetime
	host         name
	port         uint16
	text         map[string]string
	hasText      bool // the text is known, or was queried in vain

	queries int       // sent since renewed
	renewed time.Time // the start of the lifetime that queries counts for
}

// host is a host of instances.
type host struct{ addrs map[netip.Addr]lifetime }

// lifetime is the time during which a record is valid.
type lifetime struct{ from, until time.Time }

func newCache(types, textKeys []string) *cache {
	c := &cache{instances: make(map[name]*instance), hosts: make(map[name]*host), textKeys: make(map[string]bool)}
	for _, t := range types {
		c.types = append(c.types, makeName(append(strings.Split(t, "."), "local")...))
	}
	for _, key := range textKeys {
		c.textKeys[key] = true
	}
	return c
}

// receive adds the records of a packet.
func (c *cache) receive(packet []byte, now time.Time) {
	records, err := decode(packet)
	if err != nil {
		return // other mDNS traffic is normal
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kinds := range [][]uint16{{typePTR}, {typeSRV, typeTXT}, {typeA, typeAAAA}} { // a record is kept only if another leads to it
		for _, r := range records {
			if slices.Contains(kinds, r.kind) {
				c.add(r, now)
			}
		}
	}
}

func (c *cache) add(r record, now time.Time) {
	if r.kind == typePTR {
		c.addPointer(r, now)
		return
	}
	if r.kind == typeA || r.kind == typeAAAA {
		if h := c.hosts[r.name.key()]; h != nil {
			h.add(r, now)
		}
		return
	}
	i := c.instances[r.name.key()]
	if i == nil {
		return
	}
	if r.kind == typeTXT {
		if r.ttl > 0 {
			i.text, i.hasText = c.parseText(r.text), true
		}
		return
	}
	if r.ttl > 0 && !c.addHost(i, r, now) {
		return
	}
	i.srv = i.srv.renew(r.ttl, now)
}

// parseText returns the requested keys of a TXT record. If a key is repeated, the
// first one counts.
func (c *cache) parseText(pairs []string) map[string]string {
	text := make(map[string]string)
	for _, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		key = strings.ToLower(key)
		if _, repeated := text[key]; !repeated && c.textKeys[key] {
			text[key] = value
		}
	}
	return text
}

// addHost sets the host of an instance. It reports whether there was room for it.
func (c *cache) addHost(i *instance, r record, now time.Time) bool {
	key := r.target.key()
	if c.hosts[key] == nil {
		if len(c.hosts) >= 2*maxInstances { // unused hosts expire soon
			return false
		}
		c.hosts[key] = &host{addrs: make(map[netip.Addr]lifetime)}
	}
	if i.host.key() != key {
		i.since, i.queries = now, 0 // its addresses may not be known yet
	}
	i.host, i.port = r.target, r.port
	return true
}

func (c *cache) addPointer(r record, now time.Time) {
	service := slices.IndexFunc(c.types, func(t name) bool { return t.key() == r.name.key() })
	label, rest := r.target.first()
	if service < 0 || label == "" || rest.key() != r.name.key() {
		return
	}
	key := r.target.key()
	i := c.instances[key]
	switch {
	case i != nil:
	case r.ttl == 0:
		return
	case len(c.instances) >= maxInstances:
		c.dropped++
		return
	default:
		c.count++
		i = &instance{name: r.target, service: c.types[service], order: c.count, since: now}
		c.instances[key] = i
	}
	i.pointer = i.pointer.renew(r.ttl, now)
}

// add adds an address, unless an announcement must not lead there.
func (h *host) add(r record, now time.Time) {
	addr := r.addr.Unmap()
	if refused(addr) {
		return
	}
	if r.flush {
		for a, old := range h.addrs {
			if a.Is4() == addr.Is4() && now.Sub(old.from) > time.Second {
				h.addrs[a] = old.renew(0, now)
			}
		}
	}
	old, known := h.addrs[addr]
	if known || r.ttl > 0 && len(h.addrs) < maxAddresses {
		h.addrs[addr] = old.renew(r.ttl, now)
	}
}

// renew returns a lifetime that starts now. A TTL of zero is a goodbye.
func (l lifetime) renew(ttl time.Duration, now time.Time) lifetime {
	if ttl > 0 {
		return lifetime{now, now.Add(max(minTTL, min(ttl, maxTTL)))}
	}
	if until := now.Add(goodbyeDelay); until.Before(l.until) {
		l.until = until
	}
	return l
}

// at returns the time at which a percentage of the lifetime has passed.
func (l lifetime) at(percent int) time.Time {
	return l.from.Add(l.until.Sub(l.from) * time.Duration(percent) / 100)
}

// expired reports whether the lifetime was set and has ended.
func (l lifetime) expired(now time.Time) bool { return !l.until.IsZero() && !now.Before(l.until) }

// retries are the times after its appearance at which an incomplete instance is
// queried.
var retries = []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}

// maxIncomplete is how long an incomplete instance is kept.
const maxIncomplete = 10 * time.Second

// complete reports whether an instance can be reached. Its text must be known, or
// its path would change a moment later.
func (c *cache) complete(i *instance) bool {
	h := c.hosts[i.host.key()]
	return i.port != 0 && h != nil && len(h.addrs) > 0 && i.hasText
}

// expire deletes expired records.
func (c *cache) expire(now time.Time) {
	for _, h := range c.hosts {
		for addr, l := range h.addrs {
			if l.expired(now) {
				delete(h.addrs, addr)
			}
		}
	}
	used := make(map[name]bool)
	for key, i := range c.instances {
		if i.pointer.expired(now) || i.srv.expired(now) || !c.complete(i) && now.Sub(i.since) > maxIncomplete {
			delete(c.instances, key)
		} else {
			used[i.host.key()] = true
		}
	}
	for key := range c.hosts {
		if !used[key] {
			delete(c.hosts, key)
		}
	}
}

// queries returns the questions that are due. All services are queried at growing
// intervals; incomplete instances, and those that expire soon, one by one.
func (c *cache) queries(now time.Time) []question {
	c.mu.Lock()
	defer c.mu.Unlock()
	var questions []question
	if !now.Before(c.nextQuery) {
		for _, t := range c.types {
			questions = append(questions, question{t, typePTR})
		}
		c.interval = min(max(time.Second, 2*c.interval), maxInterval)
		c.nextQuery = now.Add(c.interval)
	}
	for _, i := range c.instances {
		if len(questions) >= maxQuestions || now.Before(c.due(i)) {
			continue
		}
		if i.queries++; i.queries > 2 {
			i.hasText = true // some have no TXT record
		}
		questions = append(questions, question{i.name, typeSRV}, question{i.name, typeTXT})
		if i.host != "" {
			questions = append(questions, question{i.host, typeA}, question{i.host, typeAAAA})
		}
		if all := (question{i.service, typePTR}); !now.Before(i.pointer.at(80)) && !slices.Contains(questions, all) {
			questions = append(questions, all)
		}
	}
	return questions
}

// due returns when an instance is queried next: at 80, 85, 90 and 95 percent of the
// lifetime that ends first.
func (c *cache) due(i *instance) time.Time {
	never := i.since.Add(maxTTL * 1000)
	if !c.complete(i) {
		if i.queries < len(retries) {
			return i.since.Add(retries[i.queries])
		}
		return never
	}
	first := i.srv
	for _, other := range []lifetime{c.hosts[i.host.key()].longest(), i.pointer} {
		if other.until.Before(first.until) {
			first = other
		}
	}
	if !i.renewed.Equal(first.from) {
		i.renewed, i.queries = first.from, 0
	}
	if i.queries >= 4 {
		return never
	}
	return first.at(80 + 5*i.queries)
}

// longest returns the lifetime of the address that expires last.
func (h *host) longest() (best lifetime) {
	for _, l := range h.addrs {
		if l.until.After(best.until) {
			best = l
		}
	}
	return best
}

// restart queries all services now, for a network that is new.
func (c *cache) restart(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nextQuery, c.interval = now, 0
}

// services returns the complete instances in order of appearance, and how many were
// dropped since the last call.
func (c *cache) services(now time.Time) (all []Service, dropped int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire(now)
	var complete []*instance
	for _, i := range c.instances {
		if c.complete(i) {
			complete = append(complete, i)
		}
	}
	slices.SortFunc(complete, func(x, y *instance) int { return cmp.Compare(x.order, y.order) })
	for _, i := range complete {
		label, _ := i.name.first()
		all = append(all, Service{
			Instance: label, Type: strings.TrimSuffix(i.service.text(), ".local"), Host: i.host.text(), Port: i.port,
			Text: i.text, Addrs: c.hosts[i.host.key()].addresses(),
		})
	}
	dropped, c.dropped = c.dropped, 0
	return all, dropped
}

func (c *cache) resolve(hostport string, now time.Time) (targets []netip.AddrPort) {
	host, port, err := net.SplitHostPort(hostport)
	number, _ := strconv.ParseUint(port, 10, 16) // the caller checked it
	if err != nil || !IsLocalName(host) {
		return nil
	}
	host = strings.TrimSuffix(host, ".")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire(now)
	if h := c.hosts[makeName(strings.Split(host, ".")...).key()]; h != nil {
		for _, a := range h.addresses() {
			targets = append(targets, netip.AddrPortFrom(a, uint16(number)))
		}
	}
	return targets
}

// addresses returns the addresses, best first: IPv4 before IPv6, because boards support
// it.
func (h *host) addresses() []netip.Addr {
	var all []netip.Addr
	for a := range h.addrs {
		all = append(all, a)
	}
	slices.SortFunc(all, netip.Addr.Compare) // compares the families first
	return all
}
