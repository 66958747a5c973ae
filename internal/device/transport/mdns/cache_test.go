package mdns

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

var mcp = makeName("_mcp", "_tcp", "local")

// response returns a response message with records.
func response(records ...record) []byte {
	packet := make([]byte, 12)
	packet[2] = 0x84
	binary.BigEndian.PutUint16(packet[6:], uint16(len(records)))
	for _, r := range records {
		packet = append(append(packet, r.name...), 0)
		class := uint16(1)
		if r.flush {
			class |= 1 << 15
		}
		packet = binary.BigEndian.AppendUint16(packet, r.kind)
		packet = binary.BigEndian.AppendUint16(packet, class)
		packet = binary.BigEndian.AppendUint32(packet, uint32(r.ttl/time.Second))
		var data []byte
		switch r.kind {
		case typePTR:
			data = append([]byte(r.target), 0)
		case typeSRV:
			data = append(binary.BigEndian.AppendUint16(make([]byte, 4), r.port), r.target...)
			data = append(data, 0)
		case typeTXT:
			for _, s := range r.text {
				data = append(append(data, byte(len(s))), s...)
			}
		default:
			data = r.addr.AsSlice()
		}
		packet = append(binary.BigEndian.AppendUint16(packet, uint16(len(data))), data...)
	}
	return packet
}

// announcement returns the records of a board, as firmware sends them.
func announcement(label, host, addr string, text ...string) []record {
	at := makeName(label, "_mcp", "_tcp", "local")
	on := makeName(host, "local")
	a := record{name: on, kind: typeA, flush: true, ttl: 120 * time.Second, addr: netip.MustParseAddr(addr)}
	if a.addr.Is6() {
		a.kind = typeAAAA
	}
	return []record{
		a, // the record that leads to it comes later
		{name: at, kind: typeTXT, flush: true, ttl: 75 * time.Minute, text: text},
		{name: at, kind: typeSRV, flush: true, ttl: 120 * time.Second, target: on, port: 80},
		{name: mcp, kind: typePTR, ttl: 75 * time.Minute, target: at},
	}
}

// goodbye returns the records with a TTL of zero.
func goodbye(records []record) []record {
	records = slices.Clone(records)
	for i := range records {
		records[i].ttl = 0
	}
	return records
}

// names returns the instance names of the services.
func names(c *cache, now time.Time) string {
	all, _ := c.services(now)
	var names []string
	for _, s := range all {
		names = append(names, s.Instance)
	}
	return strings.Join(names, ", ")
}

var start = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// TestAnnounced: a service is listed, with any name, until a second after its
// goodbye. Names are not case sensitive.
func TestAnnounced(t *testing.T) {
	c := newCache([]string{"_mcp._tcp"}, []string{"path"})
	kitchen := announcement("Küche v1.0 (2)", "esp", "10.0.0.7", "path=/mcp")
	c.receive(response(kitchen...), start)
	c.receive(response(announcement("other", "ESP", "10.0.0.7")...), start)
	if got := names(c, start); got != "Küche v1.0 (2), other" {
		t.Errorf("got %s", got)
	}
	c.receive(response(goodbye(kitchen)...), start.Add(time.Minute))
	if got := names(c, start.Add(time.Minute+goodbyeDelay)); got != "" {
		t.Errorf("got %s after a goodbye that covers the host, want none", got)
	}
}

// TestPowerCut: a board that falls silent is queried four times and expires with its
// TTL. A board that answers stays.
func TestPowerCut(t *testing.T) {
	c := newCache([]string{"_mcp._tcp"}, []string{"path"})
	cut, well := announcement("cut", "c", "10.0.0.7"), announcement("well", "w", "10.0.0.8")
	var queried []string
	for second := range 300 {
		now := start.Add(time.Duration(second) * time.Second)
		if second == 0 {
			c.receive(response(cut...), now)
			c.receive(response(well...), now)
		}
		for _, q := range c.queries(now) {
			switch label, _ := q.name.first(); {
			case label == "cut" && q.kind == typeSRV:
				queried = append(queried, fmt.Sprint(second))
			case label == "well" && q.kind == typeSRV:
				c.receive(response(well...), now)
			}
		}
		want := "cut, well"
		if second >= 120 {
			want = "well"
		}
		if got := names(c, now); got != want {
			t.Fatalf("after %d s: got %s, want %s", second, got, want)
		}
	}
	if got := strings.Join(queried, " "); got != "96 102 108 114" {
		t.Errorf("queried after %s s", got)
	}
}

// TestShortTTL: a service whose records all have a short TTL is queried in time,
// including its PTR record, and stays as long as it answers.
func TestShortTTL(t *testing.T) {
	c := newCache([]string{"_mcp._tcp"}, []string{"path"})
	short := announcement("short", "s", "10.0.0.7")
	for i := range short {
		short[i].ttl = 20 * time.Second
	}
	c.receive(response(short...), start)
	queries := 0
	for tenth := range 6000 {
		now := start.Add(time.Duration(tenth) * time.Second / 10)
		for _, q := range c.queries(now) {
			for _, r := range short {
				if q.name.key() == r.name.key() && q.kind == r.kind {
					queries++
					c.receive(response(r), now)
				}
			}
		}
		if got := names(c, now); got != "short" {
			t.Fatalf("after %v: got %q", now.Sub(start), got)
		}
	}
	if queries > 4*600/16+100 {
		t.Errorf("%d queries", queries)
	}
}

// TestRefusedAddresses: an announcement does not lead to addresses that only this machine
// can reach, to link-local ones, or to those where clouds keep credentials. A host that
// announces others as well is reached at those.
func TestRefusedAddresses(t *testing.T) {
	for _, addr := range []string{
		"127.0.0.1", "0.0.0.0", "224.0.0.251", "255.255.255.255", "169.254.1.2", "169.254.169.254", "100.100.100.200", "168.63.129.16",
		"::1", "::", "ff02::fb", "fe80::7", "fe80::a9fe:a9fe", "fd00:ec2::254", "fd20:ce::254", "::ffff:169.254.169.254", "::ffff:127.0.0.1",
	} {
		c := newCache([]string{"_mcp._tcp"}, nil)
		c.receive(response(announcement("evil", "h", addr)...), start)
		if all, _ := c.services(start); len(all) != 0 || len(c.resolve("h.local:80", start)) != 0 {
			t.Errorf("%s: got %+v", addr, all)
		}
		c.receive(response(announcement("evil", "h", "10.0.0.7")...), start)
		if all, _ := c.services(start); len(all) != 1 || fmt.Sprint(all[0].Addrs) != "[10.0.0.7]" {
			t.Errorf("%s and 10.0.0.7: got %+v", addr, all)
		}
	}
}

// TestPointerChain: long chains of compression pointers are rejected.
func TestPointerChain(t *testing.T) {
	packet := make([]byte, 12)
	packet[2] = 0x84
	packet = append(packet, 0, 0, 99, 0, 1, 0, 0, 0, 10, 0, 0) // an unused record that holds the pointers
	last := len(packet)
	packet = append(packet, 0)
	for len(packet) < 6000 {
		next := len(packet)
		packet = binary.BigEndian.AppendUint16(packet, uint16(0xc000|last))
		last = next
	}
	binary.BigEndian.PutUint16(packet[21:], uint16(len(packet)-23))
	count := 1
	for ; len(packet)+16 <= maxPacket && count < maxRecords; count++ {
		packet = binary.BigEndian.AppendUint16(packet, uint16(0xc000|last))
		packet = append(packet, 0, typeA, 0, 1, 0, 0, 0, 10, 0, 4, 10, 0, 0, 7)
	}
	binary.BigEndian.PutUint16(packet[6:], uint16(count))
	if records, err := decode(packet); err == nil {
		t.Errorf("%d records were decoded, each through thousands of pointers", len(records))
	}
}

// TestQueryInterval: all services are queried at growing intervals, which start again
// on a new network.
func TestQueryInterval(t *testing.T) {
	c := newCache([]string{"_mcp._tcp", "_other._tcp"}, nil)
	var queried []string
	for second := range 200 {
		if n := len(c.queries(start.Add(time.Duration(second) * time.Second))); n == 2 {
			queried = append(queried, fmt.Sprint(second))
		} else if n != 0 {
			t.Fatalf("%d questions", n)
		}
	}
	if got := strings.Join(queried, " "); got != "0 1 3 7 15 31 63 123 183" {
		t.Errorf("queried after %s s", got)
	}
	now := start.Add(190 * time.Second)
	c.restart(now)
	if len(c.queries(now)) == 0 {
		t.Error("no query on a new network")
	}
}

// TestIncomplete: missing records are queried. A board without a TXT record is listed
// in the end; an instance that stays incomplete is forgotten.
func TestIncomplete(t *testing.T) {
	c := newCache([]string{"_mcp._tcp"}, []string{"path"})
	c.restart(start.Add(time.Hour))
	all := announcement("slow", "s", "10.0.0.7")
	c.receive(response(all[3]), start)
	if n := len(c.queries(start)); n != 2 {
		t.Errorf("%d questions, want SRV and TXT", n)
	}
	c.receive(response(all[2]), start.Add(time.Second))
	if n := len(c.queries(start.Add(time.Second))); n != 4 {
		t.Errorf("%d questions, want SRV, TXT, A and AAAA", n)
	}
	c.receive(response(all[0]), start.Add(2*time.Second))
	if got := names(c, start.Add(2*time.Second)); got != "" {
		t.Errorf("%s is listed before its TXT record came", got)
	}
	for second := range 10 {
		c.queries(start.Add(time.Duration(2+second) * time.Second))
	}
	if got := names(c, start.Add(12*time.Second)); got != "slow" {
		t.Errorf("without a TXT record: got %q", got)
	}
	c.receive(response(announcement("never", "n", "10.0.0.8")[3]), start.Add(13*time.Second))
	names(c, start.Add(24*time.Second))
	if len(c.instances) != 1 {
		t.Errorf("%d instances", len(c.instances))
	}
}

// TestMoved: a new address replaces the old one, and IPv4 comes before IPv6.
func TestMoved(t *testing.T) {
	c := newCache([]string{"_mcp._tcp"}, []string{"path"})
	addrs := func(now time.Time) string {
		all, _ := c.services(now)
		if len(all) != 1 {
			t.Fatalf("%d services", len(all))
		}
		return fmt.Sprint(all[0].Addrs)
	}
	c.receive(response(announcement("m", "m", "2001:db8::1")...), start)
	c.receive(response(announcement("m", "m", "10.0.0.7")...), start)
	if got := addrs(start); got != "[10.0.0.7 2001:db8::1]" {
		t.Errorf("got %s", got)
	}
	now := start.Add(time.Minute)
	c.receive(response(announcement("m", "m", "10.0.0.9")...), now)
	if got := addrs(now.Add(goodbyeDelay)); got != "[10.0.0.9 2001:db8::1]" {
		t.Errorf("got %s", got)
	}
	for i := range 100 {
		c.receive(response(announcement("m", "m", fmt.Sprintf("10.0.1.%d", i))...), now)
	}
	c.receive(response(announcement("m", "m", "127.0.0.1")...), now)
	if got := addrs(now); strings.Count(got, ".")/3+1 > maxAddresses || strings.Contains(got, "127.0.0.1") {
		t.Errorf("got %s", got)
	}
}

// TestFlood: of ten thousand announced services, a bounded number is kept, and those seen
// first stay.
func TestFlood(t *testing.T) {
	var log strings.Builder
	c := newCache([]string{"_mcp._tcp"}, []string{"path"})
	b := New(nil, nil, slog.New(slog.NewTextHandler(&log, nil)))
	b.cache, b.refreshed = c, start.Add(time.Hour) // listens on no network
	c.receive(response(announcement("first", "f", "10.0.0.7")...), start)
	began := time.Now()
	for i := range 10_000 {
		c.receive(response(announcement(fmt.Sprint("flood-", i), fmt.Sprint("h", i), "10.9.9.9", strings.Repeat("x", 200))...), start)
		if i%100 == 0 {
			b.Services(start)
		}
	}
	figure.AtMost(t, "10,000 announcements", time.Since(began), 20*time.Second)
	all := b.Services(start)
	if len(all) != maxInstances || all[0].Instance != "first" || len(c.hosts) > 2*maxInstances {
		t.Errorf("%d services on %d hosts", len(all), len(c.hosts))
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d log lines, want 1", n)
	}
	for i := range 10_000 { // never complete
		c.receive(response(announcement(fmt.Sprint("bare-", i), "h", "10.9.9.9")[3]), start.Add(80*time.Minute))
	}
	if n := len(c.queries(start.Add(80 * time.Minute))); n > maxQuestions+4 {
		t.Errorf("%d questions at once", n)
	}
	if got := names(c, start.Add(80*time.Minute)); got != "" {
		t.Errorf("got %s", got)
	}
	if names(c, start.Add(81*time.Minute)); len(c.instances) != 0 || len(c.hosts) != 0 {
		t.Errorf("%d instances and %d hosts are left", len(c.instances), len(c.hosts))
	}
}

// TestIgnored: malformed packets and those of other services change nothing.
func TestIgnored(t *testing.T) {
	c := newCache([]string{"_mcp._tcp"}, []string{"path"})
	good := response(announcement("x", "x", "10.0.0.7")...)
	query := slices.Clone(good)
	query[2] = 0
	loop := append(slices.Clone(good[:12]), 0xc0, 12)
	elsewhere := announcement("x", "x", "10.0.0.7")
	elsewhere[3].target = makeName("x", "_http", "_tcp", "local")
	for name, packet := range map[string][]byte{
		"a query": query, "a name that points to itself": loop, "half a message": good[:len(good)-3],
		"an empty packet": nil, "another service": response(elsewhere...),
	} {
		if c.receive(packet, start); len(c.instances) != 0 {
			t.Errorf("%s was accepted", name)
		}
	}
}

func FuzzMessage(f *testing.F) {
	f.Add(response(announcement("Rig Uno 1", "rig", "10.0.0.7", "path=/mcp", "usn=uuid:1")...))
	f.Add(response(announcement("x", "x", "fe80::1", "path=//evil/", "mac=98_A3_16_F9_D9_34")...))
	f.Add(response(goodbye(announcement("x", "x", "10.0.0.7"))...))
	// A name that ends in a compression pointer.
	f.Add(append(response(record{name: mcp, kind: typePTR, ttl: time.Minute, target: mcp})[:12], "\x04_mcp\x04_tcp\x05local\x00\x00\x0c\x00\x01\x00\x00\x00\x78\x00\x04\x01x\xc0\x0c"...))
	f.Fuzz(func(t *testing.T, packet []byte) {
		records, err := decode(packet)
		if err == nil && len(records) > maxRecords {
			t.Fatalf("%d records", len(records))
		}
		for _, r := range records {
			for _, n := range []name{r.name, r.target} {
				if len(n) > maxName {
					t.Fatalf("a name of %d bytes", len(n))
				}
				n.text() // must not panic: the labels are whole
			}
		}
		c := newCache([]string{"_mcp._tcp"}, []string{"path"})
		c.receive(packet, start)
		for i := range 5 {
			c.queries(start.Add(time.Duration(i) * time.Second))
		}
		all, _ := c.services(start.Add(5 * time.Second))
		for _, s := range all {
			if s.Instance == "" || len(s.Instance) > 63 || len(s.Host) > maxName || s.Port == 0 || len(s.Addrs) == 0 {
				t.Fatalf("got %+v", s)
			}
		}
	})
}

// TestText: only requested keys are kept, in lower case, and the first of a key counts.
func TestText(t *testing.T) {
	c := newCache([]string{"_mcp._tcp"}, []string{"path", "usn"})
	c.receive(response(announcement("x", "x", "10.0.0.7", "PATH=/a", "path=/b", "caps=x", "usn", "=/c")...), start)
	all, _ := c.services(start)
	if len(all) != 1 || fmt.Sprint(all[0].Text) != "map[path:/a usn:]" {
		t.Errorf("got %+v", all)
	}
	if s := all[0]; s.Type != "_mcp._tcp" || s.Host != "x.local" || s.Port != 80 {
		t.Errorf("got %+v", s)
	}
}

// TestResolve: an announced host is resolved, in any case, and no other. What somebody
// announces for an address or for a name outside .local is ignored.
func TestResolve(t *testing.T) {
	c := newCache([]string{"_mcp._tcp"}, nil)
	c.receive(response(announcement("x", "esp", "10.0.0.7")...), start)
	for _, host := range []string{"Esp.local:8080", "esp.local.:8080"} {
		if got := c.resolve(host, start); fmt.Sprint(got) != "[10.0.0.7:8080]" {
			t.Errorf("%s: got %v", host, got)
		}
	}
	if got := c.resolve("other.local:8080", start); got != nil {
		t.Errorf("got %v, want none", got)
	}
	for _, host := range []string{"192.168.1.20", "example.com", "esp", "local"} {
		evil := announcement("evil", "x", "10.6.6.6")
		evil[0].name = makeName(strings.Split(host, ".")...)
		evil[2].target = evil[0].name
		c.receive(response(evil...), start)
		if got := c.resolve(host+":80", start); got != nil {
			t.Errorf("%s is at %v, as announced", host, got)
		}
	}
}
