package httpclient

import (
	"encoding/binary"
	"log/slog"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/mdns"
)

// fakeBrowser has services, and resolves every host that they announce.
type fakeBrowser []mdns.Service

func (b fakeBrowser) Services(time.Time) []mdns.Service { return b }
func (b fakeBrowser) Close()                            {}

func (b fakeBrowser) Resolve(hostport string, _ time.Time) (targets []netip.AddrPort) {
	for _, s := range b {
		for _, addr := range s.Addrs {
			if strings.HasPrefix(hostport, s.Host+":") {
				targets = append(targets, netip.AddrPortFrom(addr, s.Port))
			}
		}
	}
	return targets
}

func newConnector(devices ...Device) *Connector {
	cfg := DefaultConfig()
	cfg.Devices = devices
	return New(cfg, nil, slog.New(slog.DiscardHandler))
}

// announced returns the service of a board. Text is a list of key=value.
func announced(instance, host string, addrs []string, text ...string) mdns.Service {
	s := mdns.Service{Instance: instance, Type: "_mcp._tcp", Host: host + ".local", Port: 80, Text: make(map[string]string)}
	for _, addr := range addrs {
		s.Addrs = append(s.Addrs, netip.MustParseAddr(addr))
	}
	for _, pair := range text {
		key, value, _ := strings.Cut(pair, "=")
		s.Text[key] = value
	}
	return s
}

func at(addrs ...string) []string { return addrs }

// sighted returns the sightings of services.
func sighted(t *testing.T, c *Connector, services ...mdns.Service) []transport.Sighting {
	t.Helper()
	sightings := c.sightings(c.discover(services))
	for _, s := range sightings {
		checkSighting(t, s)
	}
	return sightings
}

// checkSighting checks that an announcement leads to an untrusted sighting with a
// harmless address and URL.
func checkSighting(t *testing.T, s transport.Sighting) {
	t.Helper()
	if s.Adopted || s.AdoptFirst == "" || s.Name != "" {
		t.Errorf("an announced device is trusted: %+v", s)
	}
	if !strings.HasPrefix(s.Address, "mdns:") || len(s.Address) > len("mdns:")+maxID || strings.ContainsAny(s.Address, " \"'`$;&|<>(){}\\*?#!~") {
		t.Errorf("the address is %q", s.Address)
	}
	opened, err := s.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	raw, _ := opened.(transport.HTTP).HTTP()
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || hostport(u) != opened.(*link).at.host {
		t.Errorf("the URL is %q: %v", raw, err)
	}
}

func TestParseAnnouncement(t *testing.T) {
	type fields struct {
		path, id   string
		socketPort uint16
	}
	for _, test := range []struct {
		text string
		want fields
	}{
		{"path=/mcp version=2025-11-25 ws_port=9000", fields{path: "/mcp", socketPort: 9000}},
		{"endpoint=/e usn=uuid:98a316", fields{path: "/e", id: "uuid:98a316"}},
		{"path=mcp", fields{path: "/mcp"}},
		{"path=/ caps=x", fields{path: "/"}},
		{"path=http://evil/mcp endpoint=/e", fields{path: "/http://evil/mcp"}}, // a path, on this host
		{"path=//evil/mcp", fields{}},
		{"path=/mcp?key=1", fields{}},
		{"path=/mcp#x", fields{}},
		{"path=/%zz", fields{}},
		{"path=/\r\nEvil:x", fields{}},
		{"mac=98_A3_16_F9_D9_34", fields{id: "98:a3:16:f9:d9:34"}},
		{"mac=00:00:00:00:00:00", fields{}},
		{"usn=" + strings.Repeat("x", 129), fields{}},
		{"usn=ä", fields{}},
		{"usn=rig@rig.local", fields{}},
		{"usn=`reboot`", fields{}},
		{"ws_port=90000", fields{}},
		{"ws_port=-1", fields{}},
		{"usn", fields{}},
		{"=/mcp", fields{}},
	} {
		a := parseAnnouncement(announced("x", "x", nil, strings.Split(test.text, " ")...))
		if got := (fields{a.path, a.id, a.socketPort}); got != test.want {
			t.Errorf("%q: %+v, want %+v", test.text, got, test.want)
		}
	}
}

// TestAddress: hardware is identified by its ID or else by its names, never by its
// network address. A second device with the same ID is identified by its names.
func TestAddress(t *testing.T) {
	services := []mdns.Service{
		announced("Rig Uno 1", "Rig", at("10.0.0.7")),
		announced("Küche", "esp", at("10.0.0.8"), "usn=uuid:1"),
		announced("thief", "evil", at("10.0.0.9"), "usn=uuid:1"),
	}
	c := newConnector()
	all := sighted(t, c, services...)
	for i, want := range []struct {
		address string
		local   bool
	}{{"mdns:rig%20uno%201@rig.local", true}, {"mdns:uuid:1", false}, {"mdns:thief@evil.local", true}} {
		if all[i].Address != want.address || all[i].Local != want.local {
			t.Errorf("got %q, local %t, want %+v", all[i].Address, all[i].Local, want)
		}
	}
	long := strings.Repeat("客厅", 10)
	services = append(services, announced(long, "esp", at("10.0.0.8")), announced(long+"2", "esp", at("10.0.0.8")))
	all = sighted(t, c, services...)
	if a, b := all[3].Address, all[4].Address; a == b || len(a) != maxNames || len(b) != maxNames {
		t.Errorf("long names are %s and %s", a, b)
	}
	link, _ := all[0].Open(t.Context())
	if url, _ := link.(transport.HTTP).HTTP(); url != "http://10.0.0.7:80/mcp" {
		t.Errorf("the URL is %s", url)
	}
	link, _ = sighted(t, newConnector(), announced("six", "s", at("fd77::1"), "path=/x"))[0].Open(t.Context())
	if url, _ := link.(transport.HTTP).HTTP(); url != "http://[fd77::1]:80/x" {
		t.Errorf("the URL is %s", url)
	}
}

// TestInstance: a board that moves or comes back gets a new instance. A board with
// one more address does not.
func TestInstance(t *testing.T) {
	c := newConnector()
	board := func(addrs ...string) uint64 { return sighted(t, c, announced("b", "b", addrs))[0].Instance }
	first := board("10.0.0.7")
	if again := board("10.0.0.7", "2001:db8::1"); again != first {
		t.Error("one more address changed the instance")
	}
	moved := board("10.0.0.9", "2001:db8::1")
	if moved <= first {
		t.Error("the board moved and kept its instance")
	}
	if all := sighted(t, c); len(all) != 0 {
		t.Errorf("got %+v, want none", all)
	}
	if back := board("10.0.0.9", "2001:db8::1"); back <= moved {
		t.Error("the board came back with its old instance")
	}
}

// TestDiscoveredAndConfigured: a configured device is not discovered in addition. Its
// .local name is resolved by its announcement.
func TestDiscoveredAndConfigured(t *testing.T) {
	for url, hidden := range map[string]bool{
		"http://10.0.0.7/mcp": true, "http://10.0.0.7": true, "http://Esp.local:80/mcp": true,
		"ws://10.0.0.7:9000": true, "ws://10.0.0.7:80/": true, "ws://10.0.0.7:9001": false,
		"http://10.0.0.7:81/mcp": false, "http://10.0.0.7/other": false, "http://10.0.0.8/mcp": false,
	} {
		c := newConnector(Device{URL: url})
		service := announced("b", "esp", at("10.0.0.7"), "path=/mcp", "ws_port=9000")
		c.browser = fakeBrowser{service}
		if all := sighted(t, c, service); (len(all) == 0) != hidden {
			t.Errorf("%s: discovered %d", url, len(all))
		}
		if strings.HasPrefix(url, "ws") {
			continue
		}
		opened, err := c.named(Device{URL: url}).Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if targets := opened.(*link).at.targets; strings.Contains(url, "local") != (len(targets) == 1) {
			t.Errorf("%s: targets %v", url, targets)
		}
	}
}

// FuzzAnnouncement: no announcement leads to more than an untrusted sighting.
func FuzzAnnouncement(f *testing.F) {
	f.Add("Rig Uno 1", "rig.local", "_mcp._tcp", "/mcp", "uuid:1", "98_A3_16_F9_D9_34", uint16(80), uint64(0x0a000007))
	f.Add("Küche\x00'", "a b.local", "_x._udp", "//evil/", "`reboot`", "x", uint16(1), uint64(1<<63))
	f.Fuzz(func(t *testing.T, instance, host, kind, path, usn, mac string, port uint16, addr uint64) {
		if instance == "" || len(instance) > 63 || len(host) > 255 || len(path)+len(usn)+len(mac) > 3*255 || port == 0 {
			t.Skip("mdns does not report it")
		}
		ip := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(addr))))
		if addr>>63 == 1 {
			ip = netip.AddrFrom16([16]byte(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, 0xfd77<<48), addr)))
		}
		sighted(t, newConnector(), mdns.Service{
			Instance: instance, Type: kind, Host: host, Port: port, Addrs: []netip.Addr{ip},
			Text: map[string]string{"path": path, "usn": usn, "mac": mac, "ws_port": path},
		})
	})
}
