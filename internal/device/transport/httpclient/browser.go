package httpclient

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

// What is kept of announcements, whoever sends them.
const (
	maxInstances = 1024
	maxAddresses = 8   // of a host
	maxQuestions = 128 // at once
	minTTL       = 10 * time.Second
	maxTTL       = 75 * time.Minute // as the protocol has it for what changes seldom
	goodbye      = time.Second      // after which what said goodbye is gone
	maxWait      = time.Minute      // between two questions for all
)

// browser knows who announces itself. It neither sends nor reads the clock.
//
// Whoever offers a service has a PTR record for it, which leads to its instance, an
// SRV with host and port, a TXT with more, and addresses of its host. Each of them
// lasts for a time that is told with it, and is asked for again before.
type browser struct {
	services []name // that are looked for

	mu        sync.Mutex
	instances map[name]*instance // by key
	hosts     map[name]*host     // of instances, by key
	count     uint64             // of instances
	dropped   int                // instances that there was no room for
	next      time.Time          // when all are asked for
	wait      time.Duration      // until they are asked for again
}

// instance is a service on a host.
type instance struct {
	name    name
	service name
	order   uint64 // of coming
	came    time.Time

	pointer, srv lease
	host         name // and its port
	port         uint16
	text         facts
	told         bool // there was a text, or there is none

	asked int       // how often it was asked for, since
	since time.Time // the lease that it was asked for
}

// host is where instances are.
type host struct{ leases map[netip.Addr]lease }

// lease is a time that something is known for.
type lease struct{ since, until time.Time }

func newBrowser(services []string) *browser {
	b := &browser{instances: make(map[name]*instance), hosts: make(map[name]*host)}
	for _, s := range services {
		b.services = append(b.services, makeName(append(strings.Split(s, "."), "local")...))
	}
	return b
}

// take learns from a message that came at a time. Its zone is where link-local
// addresses in it are valid; empty if that is not known.
func (b *browser) take(packet []byte, zone string, now time.Time) {
	records, err := decode(packet)
	if err != nil {
		return // much on this port is not for us
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, kinds := range [][]uint16{{typePTR}, {typeSRV, typeTXT}, {typeA, typeAAAA}} { // what leads to others comes first
		for _, r := range records {
			if slices.Contains(kinds, r.kind) {
				b.takeRecord(r, zone, now)
			}
		}
	}
}

func (b *browser) takeRecord(r record, zone string, now time.Time) {
	if r.kind == typePTR {
		b.takePointer(r, now)
		return
	}
	if r.kind == typeA || r.kind == typeAAAA {
		if h := b.hosts[r.name.key()]; h != nil {
			h.take(r, zone, now)
		}
		return
	}
	i := b.instances[r.name.key()]
	if i == nil {
		return
	}
	if r.kind == typeTXT {
		if r.ttl > 0 {
			i.text, i.told = readFacts(r.text), true
		}
		return
	}
	if r.ttl > 0 && !b.takeHost(i, r, now) {
		return
	}
	i.srv = i.srv.renew(r.ttl, now)
}

// takeHost learns where an instance is, if there is room for one more host.
func (b *browser) takeHost(i *instance, r record, now time.Time) bool {
	key := r.target.key()
	if b.hosts[key] == nil {
		if len(b.hosts) >= 2*maxInstances { // those that are not used go soon
			return false
		}
		b.hosts[key] = &host{leases: make(map[netip.Addr]lease)}
	}
	if i.host.key() != key {
		i.came, i.asked = now, 0 // its addresses may not be known yet
	}
	i.host, i.port = r.target, r.port
	return true
}

func (b *browser) takePointer(r record, now time.Time) {
	service := slices.IndexFunc(b.services, func(s name) bool { return s.key() == r.name.key() })
	label, rest := r.target.first()
	if service < 0 || label == "" || rest.key() != r.name.key() {
		return
	}
	key := r.target.key()
	i := b.instances[key]
	switch {
	case i != nil:
	case r.ttl == 0:
		return
	case len(b.instances) >= maxInstances:
		b.dropped++
		return
	default:
		b.count++
		i = &instance{name: r.target, service: b.services[service], order: b.count, came: now}
		b.instances[key] = i
	}
	i.pointer = i.pointer.renew(r.ttl, now)
}

// take learns an address of a host. Which network an IPv4 message came from is not
// told on every system, so that a link-local address is taken from IPv6 alone.
func (h *host) take(r record, zone string, now time.Time) {
	addr := r.addr.Unmap()
	if addr.Is6() && addr.IsLinkLocalUnicast() {
		if zone == "" {
			return
		}
		addr = addr.WithZone(zone)
	}
	// A stranger's announcement does not lead to what is on this machine only.
	if addr.IsLoopback() || addr.IsUnspecified() || addr.IsMulticast() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return
	}
	if r.flush {
		for a, old := range h.leases {
			if a.Is4() == addr.Is4() && a.Zone() == addr.Zone() && now.Sub(old.since) > time.Second {
				h.leases[a] = old.renew(0, now)
			}
		}
	}
	old, known := h.leases[addr]
	if known || r.ttl > 0 && len(h.leases) < maxAddresses {
		h.leases[addr] = old.renew(r.ttl, now)
	}
}

// renew is a lease from now on; one without time is a goodbye.
func (l lease) renew(ttl time.Duration, now time.Time) lease {
	if ttl > 0 {
		return lease{now, now.Add(max(minTTL, min(ttl, maxTTL)))}
	}
	if until := now.Add(goodbye); until.Before(l.until) {
		l.until = until
	}
	return l
}

// part is when so many of a hundred parts of a lease are over.
func (l lease) part(hundredths int) time.Time {
	return l.since.Add(l.until.Sub(l.since) * time.Duration(hundredths) / 100)
}

// over tells whether a lease that there was has ended.
func (l lease) over(now time.Time) bool { return !l.until.IsZero() && !now.Before(l.until) }

// schedule is when an instance is asked for of which something is not known yet.
var schedule = []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}

// maxUnknown is how long such an instance is kept.
const maxUnknown = 10 * time.Second

// complete tells whether enough is known to reach an instance. Its text is waited
// for: without, the path would change a moment later.
func (b *browser) complete(i *instance) bool {
	h := b.hosts[i.host.key()]
	return i.port != 0 && h != nil && len(h.leases) > 0 && i.told
}

// expire forgets what is over.
func (b *browser) expire(now time.Time) {
	for _, h := range b.hosts {
		for addr, l := range h.leases {
			if l.over(now) {
				delete(h.leases, addr)
			}
		}
	}
	used := make(map[name]bool)
	for key, i := range b.instances {
		if i.pointer.over(now) || i.srv.over(now) || !b.complete(i) && now.Sub(i.came) > maxUnknown {
			delete(b.instances, key)
		} else {
			used[i.host.key()] = true
		}
	}
	for key := range b.hosts {
		if !used[key] {
			delete(b.hosts, key)
		}
	}
}

// ask returns what is to be asked now. All are asked for at growing intervals; what
// would be forgotten soon, and that of which something is not known, by itself.
func (b *browser) ask(now time.Time) []question {
	b.mu.Lock()
	defer b.mu.Unlock()
	var questions []question
	if !now.Before(b.next) {
		for _, s := range b.services {
			questions = append(questions, question{s, typePTR})
		}
		b.wait = min(max(time.Second, 2*b.wait), maxWait)
		b.next = now.Add(b.wait)
	}
	for _, i := range b.instances {
		if len(questions) >= maxQuestions || now.Before(b.due(i)) {
			continue
		}
		if i.asked++; i.asked > 2 {
			i.told = true // some have no text
		}
		questions = append(questions, question{i.name, typeSRV}, question{i.name, typeTXT})
		if i.host != "" {
			questions = append(questions, question{i.host, typeA}, question{i.host, typeAAAA})
		}
		if all := (question{i.service, typePTR}); !now.Before(i.pointer.part(80)) && !slices.Contains(questions, all) {
			questions = append(questions, all)
		}
	}
	return questions
}

// due is when an instance is to be asked for next: at 80, 85, 90 and 95 of a hundred
// parts of what ends first.
func (b *browser) due(i *instance) time.Time {
	never := i.came.Add(maxTTL * 1000)
	if !b.complete(i) {
		if i.asked < len(schedule) {
			return i.came.Add(schedule[i.asked])
		}
		return never
	}
	first := i.srv
	for _, other := range []lease{b.hosts[i.host.key()].longest(), i.pointer} {
		if other.until.Before(first.until) {
			first = other
		}
	}
	if !i.since.Equal(first.since) {
		i.since, i.asked = first.since, 0
	}
	if i.asked >= 4 {
		return never
	}
	return first.part(80 + 5*i.asked)
}

// longest is the lease of the address that is known for the longest time.
func (h *host) longest() (best lease) {
	for _, l := range h.leases {
		if l.until.After(best.until) {
			best = l
		}
	}
	return best
}

// again asks for all anew, as on a network that was not there before.
func (b *browser) again(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next, b.wait = now, 0
}

// found is an instance that can be reached, as it says itself.
type found struct {
	name, service, host name
	port                uint16
	text                facts
	addrs               []netip.Addr // best first
}

func (f found) equal(other found) bool {
	return f.name == other.name && f.service == other.service && f.host == other.host && f.port == other.port && f.text == other.text && slices.Equal(f.addrs, other.addrs)
}

// look returns all that can be reached, in the order of their coming, and how many
// there was no room for since the last time.
func (b *browser) look(now time.Time) (all []found, dropped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(now)
	var there []*instance
	for _, i := range b.instances {
		if b.complete(i) {
			there = append(there, i)
		}
	}
	slices.SortFunc(there, func(x, y *instance) int { return cmp.Compare(x.order, y.order) })
	for _, i := range there {
		all = append(all, found{i.name, i.service, i.host, i.port, i.text, b.hosts[i.host.key()].addresses()})
	}
	dropped, b.dropped = b.dropped, 0
	return all, dropped
}

// resolve returns the addresses of a host that an instance is on, with the port; nil
// if it is not known.
func (b *browser) resolve(hostport string, now time.Time) (targets []netip.AddrPort) {
	host, port, err := net.SplitHostPort(hostport)
	number, _ := strconv.ParseUint(port, 10, 16) // it was checked
	if err != nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(now)
	if h := b.hosts[makeName(strings.Split(host, ".")...).key()]; h != nil {
		for _, a := range h.addresses() {
			targets = append(targets, netip.AddrPortFrom(a, uint16(number)))
		}
	}
	return targets
}

// addresses are those of a host, and those first that work everywhere: boards do
// IPv4, and a link-local address needs its zone.
func (h *host) addresses() []netip.Addr {
	rank := func(a netip.Addr) int {
		switch {
		case a.Is4() && !a.IsLinkLocalUnicast():
			return 0
		case !a.IsLinkLocalUnicast():
			return 1
		case a.Is4():
			return 2
		}
		return 3
	}
	var all []netip.Addr
	for a := range h.leases {
		all = append(all, a)
	}
	slices.SortFunc(all, func(x, y netip.Addr) int { return cmp.Or(cmp.Compare(rank(x), rank(y)), x.Compare(y)) })
	return all
}
