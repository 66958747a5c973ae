package httpclient

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

var mcp = makeName("_mcp", "_tcp", "local")

// answer is a message with records.
func answer(records ...record) []byte {
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

// announced are the records of a board, as firmware sends them.
func announced(label, host, addr string, text ...string) []record {
	at := makeName(label, "_mcp", "_tcp", "local")
	on := makeName(host, "local")
	a := record{name: on, kind: typeA, flush: true, ttl: 120 * time.Second, addr: netip.MustParseAddr(addr)}
	if a.addr.Is6() {
		a.kind = typeAAAA
	}
	return []record{
		a, // what leads to it comes after it
		{name: at, kind: typeTXT, flush: true, ttl: 75 * time.Minute, text: text},
		{name: at, kind: typeSRV, flush: true, ttl: 120 * time.Second, target: on, port: 80},
		{name: mcp, kind: typePTR, ttl: 75 * time.Minute, target: at},
	}
}

// farewell are records that say goodbye.
func farewell(records []record) []record {
	records = slices.Clone(records)
	for i := range records {
		records[i].ttl = 0
	}
	return records
}

// labels are the names of what is there.
func labels(b *browser, now time.Time) string {
	all, _ := b.look(now)
	var names []string
	for _, f := range all {
		names = append(names, f.title())
	}
	return strings.Join(names, ", ")
}

var start = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// TestAnnounced: who announces itself is there, with any name, until a second after
// its goodbye. Names are the same in small and large letters.
func TestAnnounced(t *testing.T) {
	b := newBrowser([]string{"_mcp._tcp"})
	kitchen := announced("Küche v1.0 (2)", "esp", "10.0.0.7", "path=/mcp")
	b.take(answer(kitchen...), "", start)
	b.take(answer(announced("other", "ESP", "10.0.0.7")...), "", start)
	if got := labels(b, start); got != "Küche v1.0 (2), other" {
		t.Errorf("there are %s", got)
	}
	b.take(answer(farewell(kitchen)...), "", start.Add(time.Minute))
	if got := labels(b, start.Add(time.Minute+goodbye)); got != "" {
		t.Errorf("after a goodbye of its host, too, there are %s", got)
	}
}

// TestPowerCut: a board that says nothing more is asked for four times, and is gone
// when its time has passed; one that answers stays.
func TestPowerCut(t *testing.T) {
	b := newBrowser([]string{"_mcp._tcp"})
	cut, well := announced("cut", "c", "10.0.0.7"), announced("well", "w", "10.0.0.8")
	var asked []string
	for second := range 300 {
		now := start.Add(time.Duration(second) * time.Second)
		if second == 0 {
			b.take(answer(cut...), "", now)
			b.take(answer(well...), "", now)
		}
		for _, q := range b.ask(now) {
			switch label, _ := q.name.first(); {
			case label == "cut" && q.kind == typeSRV:
				asked = append(asked, fmt.Sprint(second))
			case label == "well" && q.kind == typeSRV:
				b.take(answer(well...), "", now)
			}
		}
		want := "cut, well"
		if second >= 120 {
			want = "well"
		}
		if got := labels(b, now); got != want {
			t.Fatalf("after %d s there are %s, want %s", second, got, want)
		}
	}
	if got := strings.Join(asked, " "); got != "96 102 108 114" {
		t.Errorf("asked after %s s", got)
	}
}

// TestShortTTL: one whose records all last for a short time is asked for in time, also for
// what leads to it, and stays as long as it answers.
func TestShortTTL(t *testing.T) {
	b := newBrowser([]string{"_mcp._tcp"})
	short := announced("short", "s", "10.0.0.7")
	for i := range short {
		short[i].ttl = 20 * time.Second
	}
	b.take(answer(short...), "", start)
	asked := 0
	for tenth := range 6000 {
		now := start.Add(time.Duration(tenth) * time.Second / 10)
		for _, q := range b.ask(now) {
			for _, r := range short {
				if q.name.key() == r.name.key() && q.kind == r.kind {
					asked++
					b.take(answer(r), "", now)
				}
			}
		}
		if got := labels(b, now); got != "short" {
			t.Fatalf("after %v there is %q", now.Sub(start), got)
		}
	}
	if asked > 4*600/16+100 {
		t.Errorf("it was asked %d times", asked)
	}
}

// TestZones: a host that is on two networks is told of on each. What is told on one says
// nothing of the other.
func TestZones(t *testing.T) {
	b := newBrowser([]string{"_mcp._tcp"})
	both := announced("both", "h", "fe80::7")
	b.take(answer(both...), "left", start)
	b.take(answer(both...), "right", start)
	b.take(answer(both...), "left", start.Add(time.Minute))
	all, _ := b.look(start.Add(time.Minute + 2*goodbye))
	if len(all) != 1 || fmt.Sprint(all[0].addrs) != "[fe80::7%left fe80::7%right]" {
		t.Errorf("got %v", all)
	}
}

// TestChain: a name that jumps from place to place costs no more than another.
func TestChain(t *testing.T) {
	packet := make([]byte, 12)
	packet[2] = 0x84
	packet = append(packet, 0, 0, 99, 0, 1, 0, 0, 0, 10, 0, 0) // a record of no matter, which has the places
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
		t.Errorf("%d records were read, each by thousands of jumps", len(records))
	}
}

// TestAsks: all are asked for at growing intervals, and anew on another network.
func TestAsks(t *testing.T) {
	b := newBrowser([]string{"_mcp._tcp", "_other._tcp"})
	var asked []string
	for second := range 200 {
		if n := len(b.ask(start.Add(time.Duration(second) * time.Second))); n == 2 {
			asked = append(asked, fmt.Sprint(second))
		} else if n != 0 {
			t.Fatalf("%d questions", n)
		}
	}
	if got := strings.Join(asked, " "); got != "0 1 3 7 15 31 63 123 183" {
		t.Errorf("asked after %s s", got)
	}
	now := start.Add(190 * time.Second)
	b.again(now)
	if len(b.ask(now)) == 0 {
		t.Error("not asked on another network")
	}
}

// TestPiecemeal: what is not told at once is asked for, and a board without a text
// is there in the end; of which nothing more comes, that is forgotten.
func TestPiecemeal(t *testing.T) {
	b := newBrowser([]string{"_mcp._tcp"})
	b.again(start.Add(time.Hour))
	all := announced("slow", "s", "10.0.0.7")
	b.take(answer(all[3]), "", start)
	if n := len(b.ask(start)); n != 2 {
		t.Errorf("%d questions, want for SRV and TXT", n)
	}
	b.take(answer(all[2]), "", start.Add(time.Second))
	if n := len(b.ask(start.Add(time.Second))); n != 4 {
		t.Errorf("%d questions, want for the host, too", n)
	}
	b.take(answer(all[0]), "", start.Add(2*time.Second))
	if got := labels(b, start.Add(2*time.Second)); got != "" {
		t.Errorf("%s is there before its text", got)
	}
	for second := range 10 {
		b.ask(start.Add(time.Duration(2+second) * time.Second))
	}
	if got := labels(b, start.Add(12*time.Second)); got != "slow" {
		t.Errorf("without a text, there are %q", got)
	}
	b.take(answer(announced("never", "n", "10.0.0.8")[3]), "", start.Add(13*time.Second))
	labels(b, start.Add(24*time.Second))
	if len(b.instances) != 1 {
		t.Errorf("%d instances", len(b.instances))
	}
}

// TestMoved: a new address takes the place of the old one, and IPv4 comes before
// IPv6. A link-local address has the zone that it was heard in.
func TestMoved(t *testing.T) {
	b := newBrowser([]string{"_mcp._tcp"})
	addrs := func(now time.Time) string {
		all, _ := b.look(now)
		if len(all) != 1 {
			t.Fatalf("there are %d", len(all))
		}
		return fmt.Sprint(all[0].addrs)
	}
	b.take(answer(announced("m", "m", "fe80::1")...), "", start)
	if got := labels(b, start); got != "" {
		t.Errorf("%s has a link-local address that may be on any network", got)
	}
	b.take(answer(announced("m", "m", "fe80::1")...), "eth0", start)
	b.take(answer(announced("m", "m", "2001:db8::1")...), "eth0", start)
	b.take(answer(announced("m", "m", "10.0.0.7")...), "", start)
	if got := addrs(start); got != "[10.0.0.7 2001:db8::1 fe80::1%eth0]" {
		t.Errorf("got %s", got)
	}
	now := start.Add(time.Minute)
	b.take(answer(announced("m", "m", "10.0.0.9")...), "", now)
	if got := addrs(now.Add(goodbye)); got != "[10.0.0.9 2001:db8::1 fe80::1%eth0]" {
		t.Errorf("got %s", got)
	}
	for i := range 100 {
		b.take(answer(announced("m", "m", fmt.Sprintf("10.0.1.%d", i))...), "", now)
	}
	b.take(answer(announced("m", "m", "127.0.0.1")...), "", now)
	if got := addrs(now); strings.Count(got, ".")/3+2 > maxAddresses || strings.Contains(got, "127.0.0.1") {
		t.Errorf("got %s", got)
	}
}

// TestFlood: ten thousand that announce themselves are too many. What is kept of them
// is bounded, it takes no time to speak of, and who was there before stays.
func TestFlood(t *testing.T) {
	var log strings.Builder
	b := newBrowser([]string{"_mcp._tcp"})
	e := newEar(b, slog.New(slog.NewTextHandler(&log, nil)))
	e.networks = start.Add(time.Hour) // it listens nowhere
	b.take(answer(announced("first", "f", "10.0.0.7")...), "", start)
	began := time.Now()
	for i := range 10_000 {
		b.take(answer(announced(fmt.Sprint("flood-", i), fmt.Sprint("h", i), "10.9.9.9", strings.Repeat("x", 200))...), "", start)
		if i%100 == 0 {
			e.listen(start)
		}
	}
	took := time.Since(began)
	t.Logf("10,000 announcements were taken in %v", took)
	all := e.listen(start)
	if len(all) != maxInstances || all[0].title() != "first" || len(b.hosts) > 2*maxInstances || took > 20*time.Second { // it takes 0.3 s where nobody else works
		t.Errorf("there are %d, on %d hosts, after %v", len(all), len(b.hosts), took)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
	for i := range 10_000 { // of which nothing more is known
		b.take(answer(announced(fmt.Sprint("bare-", i), "h", "10.9.9.9")[3]), "", start.Add(80*time.Minute))
	}
	if n := len(b.ask(start.Add(80 * time.Minute))); n > maxQuestions+4 {
		t.Errorf("%d questions at once", n)
	}
	if got := labels(b, start.Add(80*time.Minute)); got != "" {
		t.Errorf("there are %s", got)
	}
	if labels(b, start.Add(81*time.Minute)); len(b.instances) != 0 || len(b.hosts) != 0 {
		t.Errorf("%d instances and %d hosts are left", len(b.instances), len(b.hosts))
	}
}

// TestForeign: what is not for us, and what is not well formed, changes nothing.
func TestForeign(t *testing.T) {
	b := newBrowser([]string{"_mcp._tcp"})
	good := answer(announced("x", "x", "10.0.0.7")...)
	asking := slices.Clone(good)
	asking[2] = 0
	loop := append(slices.Clone(good[:12]), 0xc0, 12)
	elsewhere := announced("x", "x", "10.0.0.7")
	elsewhere[3].target = makeName("x", "_http", "_tcp", "local")
	for name, packet := range map[string][]byte{
		"a question": asking, "a name that leads to itself": loop, "half a message": good[:len(good)-3],
		"nothing": nil, "another service": answer(elsewhere...),
	} {
		if b.take(packet, "", start); len(b.instances) != 0 {
			t.Errorf("%s was taken", name)
		}
	}
}

func FuzzMessage(f *testing.F) {
	f.Add(answer(announced("Rig Uno 1", "rig", "10.0.0.7", "path=/mcp", "usn=uuid:1")...))
	f.Add(answer(announced("x", "x", "fe80::1", "path=//evil/", "mac=98_A3_16_F9_D9_34")...))
	f.Add(answer(farewell(announced("x", "x", "10.0.0.7"))...))
	// A name that ends in one that came before.
	f.Add(append(answer(record{name: mcp, kind: typePTR, ttl: time.Minute, target: mcp})[:12], "\x04_mcp\x04_tcp\x05local\x00\x00\x0c\x00\x01\x00\x00\x00\x78\x00\x04\x01x\xc0\x0c"...))
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
				n.text() // its labels are whole
			}
		}
		b := newBrowser([]string{"_mcp._tcp"})
		b.take(packet, "eth0", start)
		for i := range 5 {
			b.ask(start.Add(time.Duration(i) * time.Second))
		}
		all, _ := b.look(start.Add(5 * time.Second))
		c := New(DefaultConfig(), nil, slog.New(slog.DiscardHandler))
		for _, s := range c.sightings(c.settle(all)) {
			checkSighting(t, s)
		}
	})
}
