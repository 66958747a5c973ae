package httpclient

import (
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// checkSighting sees to it that what a stranger announced cannot do more than be seen.
func checkSighting(t *testing.T, s transport.Sighting) {
	t.Helper()
	if s.Adopted || s.Shy == "" || s.Name != "" {
		t.Errorf("a stranger is trusted: %+v", s)
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

func TestFacts(t *testing.T) {
	for _, test := range []struct {
		text string
		want facts
	}{
		{"path=/mcp version=2025-11-25 ws_port=9000", facts{path: "/mcp", socket: 9000}},
		{"PATH=/a path=/b", facts{path: "/a"}},
		{"endpoint=/e usn=uuid:98a316", facts{path: "/e", id: "uuid:98a316"}},
		{"path=mcp", facts{path: "/mcp"}},
		{"path=/ caps=x", facts{path: "/"}},
		{"path=http://evil/mcp endpoint=/e", facts{path: "/http://evil/mcp"}}, // a path, on this host
		{"path=//evil/mcp", facts{}},
		{"path=/mcp?key=1", facts{}},
		{"path=/mcp#x", facts{}},
		{"path=/%zz", facts{}},
		{"path=/\r\nEvil:x", facts{}},
		{"mac=98_A3_16_F9_D9_34", facts{id: "98:a3:16:f9:d9:34"}},
		{"mac=00:00:00:00:00:00", facts{}},
		{"usn=" + strings.Repeat("x", 129), facts{}},
		{"usn=ä", facts{}},
		{"usn=rig@rig.local", facts{}},
		{"usn=`reboot`", facts{}},
		{"ws_port=90000", facts{}},
		{"ws_port=-1", facts{}},
		{"usn", facts{}},
		{"=/mcp", facts{}},
	} {
		if got := readFacts(strings.Split(test.text, " ")); got != test.want {
			t.Errorf("%q: %+v, want %+v", test.text, got, test.want)
		}
	}
}

// sighted are the sightings of a connector that has heard a message.
func sighted(t *testing.T, c *Connector, records []record, now time.Time) []transport.Sighting {
	t.Helper()
	c.browser.take(answer(records...), "eth0", now)
	all, _ := c.browser.look(now)
	sightings := c.sightings(c.settle(all))
	for _, s := range sightings {
		checkSighting(t, s)
	}
	return sightings
}

// TestAddress: hardware is told apart by the id that it gives itself, or else by its
// names, and never by its network address. An id that is taken is not taken twice.
func TestAddress(t *testing.T) {
	c := New(DefaultConfig(), nil, slog.New(slog.DiscardHandler))
	sighted(t, c, announced("Rig Uno 1", "Rig", "10.0.0.7"), start)
	sighted(t, c, announced("Küche", "esp", "10.0.0.8", "usn=uuid:1"), start)
	all := sighted(t, c, announced("thief", "evil", "10.0.0.9", "usn=uuid:1"), start)
	for i, want := range []struct {
		address string
		local   bool
	}{{"mdns:rig%20uno%201@rig.local", true}, {"mdns:uuid:1", false}, {"mdns:thief@evil.local", true}} {
		if all[i].Address != want.address || all[i].Local != want.local {
			t.Errorf("got %q, local %t, want %+v", all[i].Address, all[i].Local, want)
		}
	}
	long := strings.Repeat("客厅", 10)
	for _, label := range []string{long, long + "2"} {
		all = sighted(t, c, announced(label, "esp", "10.0.0.8"), start)
	}
	if a, b := all[3].Address, all[4].Address; a == b || len(a) != maxNames || len(b) != maxNames {
		t.Errorf("long names are %s and %s", a, b)
	}
	link, _ := all[0].Open(t.Context())
	if url, _ := link.(transport.HTTP).HTTP(); url != "http://10.0.0.7:80/mcp" {
		t.Errorf("the URL is %s", url)
	}
	v6 := New(DefaultConfig(), nil, slog.New(slog.DiscardHandler))
	link, _ = sighted(t, v6, announced("six", "s", "fe80::1", "path=/x"), start)[0].Open(t.Context())
	if url, _ := link.(transport.HTTP).HTTP(); url != "http://[fe80::1%25eth0]:80/x" {
		t.Errorf("the URL is %s", url)
	}
}

// TestInstance: a board that has moved, or that comes back, comes anew; one that
// merely has an address more does not.
func TestInstance(t *testing.T) {
	c := New(DefaultConfig(), nil, slog.New(slog.DiscardHandler))
	first := sighted(t, c, announced("b", "b", "10.0.0.7"), start)[0].Instance
	if again := sighted(t, c, announced("b", "b", "2001:db8::1"), start)[0].Instance; again != first {
		t.Error("it has one more address, and came anew")
	}
	moved := announced("b", "b", "10.0.0.9")
	sighted(t, c, moved, start.Add(time.Minute))
	after := sighted(t, c, moved, start.Add(time.Minute+goodbye))[0].Instance
	if after <= first {
		t.Error("it has moved, and did not come anew")
	}
	now := start.Add(2 * time.Minute)
	sighted(t, c, farewell(moved), now)
	if all := sighted(t, c, nil, now.Add(goodbye)); len(all) != 0 {
		t.Errorf("there is %+v", all)
	}
	if back := sighted(t, c, moved, now.Add(time.Minute))[0].Instance; back <= after {
		t.Error("it came back, and not anew")
	}
}

// TestFoundAndNamed: a device that the owner gave a URL of is not found beside. Its
// name in .local is resolved by what it announces.
func TestFoundAndNamed(t *testing.T) {
	for url, hidden := range map[string]bool{
		"http://10.0.0.7/mcp": true, "http://10.0.0.7": true, "http://Esp.local:80/mcp": true,
		"ws://10.0.0.7:9000": true, "ws://10.0.0.7:80/": true, "ws://10.0.0.7:9001": false,
		"http://10.0.0.7:81/mcp": false, "http://10.0.0.7/other": false, "http://10.0.0.8/mcp": false,
	} {
		cfg := DefaultConfig()
		cfg.Devices = []Device{{URL: url}}
		c := New(cfg, nil, slog.New(slog.DiscardHandler))
		all := sighted(t, c, announced("b", "esp", "10.0.0.7", "path=/mcp", "ws_port=9000"), time.Now())
		if (len(all) == 0) != hidden {
			t.Errorf("%s: found %d", url, len(all))
		}
		if strings.HasPrefix(url, "ws") {
			continue
		}
		opened, err := c.named(cfg.Devices[0]).Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if targets := opened.(*link).at.targets; strings.Contains(url, "local") != (len(targets) == 1) {
			t.Errorf("%s: targets %v", url, targets)
		}
	}
}
