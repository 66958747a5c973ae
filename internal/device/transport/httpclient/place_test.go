package httpclient

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/mdns"
)

// visited is a server that records the tokens of its visitors.
type visited struct {
	*httptest.Server
	mu     sync.Mutex
	tokens []string // one per request; may be empty
}

func newVisited(t *testing.T, secure bool) *visited {
	t.Helper()
	v := &visited{}
	v.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.tokens = append(v.tokens, r.Header.Get("Authorization"))
		io.WriteString(w, "{}")
	}))
	v.Config.ErrorLog = nil
	if secure {
		v.StartTLS()
	} else {
		v.Start()
	}
	t.Cleanup(v.Close)
	return v
}

func (v *visited) port() uint16 { return netip.MustParseAddrPort(v.Listener.Addr().String()).Port() }

// visits returns the number of requests, and the tokens among them.
func (v *visited) visits() (n int, tokens string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.tokens), strings.Join(v.tokens, "")
}

// claim returns a browser in which somebody claims that a host is at a server.
func claim(host string, v *visited) fakeBrowser {
	return fakeBrowser{{Instance: "evil", Type: "_mcp._tcp", Host: host, Port: v.port(), Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}}
}

// visit opens a sighting and posts to it.
func visit(t *testing.T, s transport.Sighting) error {
	t.Helper()
	opened, err := s.Open(t.Context())
	if err != nil {
		return err
	}
	defer opened.Close()
	return send(t, opened)
}

func send(t *testing.T, opened transport.Link) error {
	t.Helper()
	raw, tripper := opened.(transport.HTTP).HTTP()
	response, err := (&http.Client{Transport: tripper}).Post(raw, "application/json", strings.NewReader("{}"))
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// TestConfiguredStays: no announcement moves a device whose URL has an IP address or a name
// outside .local, and no announced address gets a token that TLS does not protect.
func TestConfiguredStays(t *testing.T) {
	device, evil, evilTLS := newVisited(t, false), newVisited(t, false), newVisited(t, true)
	at, err := url.Parse(device.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "localhost"} {
		d := Device{URL: "http://" + host + ":" + at.Port() + "/mcp", Token: "secret"}
		c := newConnector(d)
		c.browser = claim(host, evil)
		if err := visit(t, c.named(d)); err != nil {
			t.Error(err)
		}
	}
	if n, tokens := device.visits(); n != 2 || tokens != "Bearer secretBearer secret" {
		t.Errorf("the device got %d requests with %q", n, tokens)
	}

	socket := func(context.Context, string, string, string, func(context.Context, string, string) (net.Conn, error)) (transport.Link, error) {
		t.Error("a WebSocket is opened with a token")
		return nil, errors.New("not in this test")
	}
	for _, raw := range []string{"http://esp.local/mcp", "http://Esp.Local./mcp", "ws://esp.local/"} {
		d := Device{URL: raw, Token: "secret"}
		c := newConnector(d)
		c.browser, c.socket = claim("esp.local", evil), socket
		if err := visit(t, c.named(d)); !errors.Is(err, errUnverified) {
			t.Errorf("%s: got %v", raw, err)
		}
	}
	d := Device{URL: "https://esp.local/mcp", Token: "secret"}
	c := newConnector(d)
	c.browser = claim("esp.local", evilTLS)
	if err := visit(t, c.named(d)); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v, want an error about the certificate", err)
	}
	for _, v := range []*visited{evil, evilTLS} {
		if n, tokens := v.visits(); n != 0 {
			t.Errorf("the announced host got %d requests with %q", n, tokens)
		}
	}
}

// TestLinkStays: a link to a .local name stays with the host that its first request reached,
// and says where that is.
func TestLinkStays(t *testing.T) {
	first, second := newVisited(t, false), newVisited(t, false)
	d := Device{URL: "http://esp.local/mcp"}
	c := newConnector(d)
	c.browser = claim("esp.local", first)
	s := c.named(d)
	if s.Announced == nil || s.Reached() != "" {
		t.Fatalf("got %+v", s)
	}
	opened, err := s.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := send(t, opened); err != nil {
		t.Fatal(err)
	}
	endpoint := first.Listener.Addr().String() + "/mcp"
	if got := s.Reached(); got != endpoint {
		t.Errorf("reached at %q, want %q", got, endpoint)
	}
	c.browser = claim("esp.local", second)
	if err := send(t, opened); err != nil {
		t.Fatal(err)
	}
	opened.Close()
	opened, err = s.Announced.OpenAt(t.Context(), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	if err := send(t, opened); err != nil {
		t.Fatal(err)
	}
	if n, _ := first.visits(); n != 3 {
		t.Errorf("%d requests, want 3", n)
	}
	if got := s.Announced.Endpoints(); len(got) != 1 || got[0] != second.Listener.Addr().String()+"/mcp" {
		t.Errorf("announced at %q", got)
	}
	if !s.Announced.Accepts(t.Context(), endpoint) {
		t.Error("the device is not found where it is")
	}
	if first.Close(); s.Announced.Accepts(t.Context(), endpoint) {
		t.Error("the device is found where it was")
	}
	if _, err := s.Announced.OpenAt(t.Context(), "nowhere"); err == nil {
		t.Error("an invalid endpoint was opened")
	}
	for _, raw := range []string{"http://10.0.0.7/mcp", "http://example.com/mcp", "https://esp.local/mcp"} {
		if s := c.named(Device{URL: raw}); s.Announced != nil {
			t.Errorf("%s counts as announced", raw)
		}
	}
}

// TestDiscoveredIsConfigured: a device that was reached by its URL is not listed a second time
// when it is also announced, whatever its URL is. Another one is.
func TestDiscoveredIsConfigured(t *testing.T) {
	device := newVisited(t, false)
	_, port, _ := net.SplitHostPort(device.Listener.Addr().String())
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var addrs []netip.Addr // as this machine announces itself
	for _, a := range own {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && !prefix.Addr().IsLoopback() {
			addrs = append(addrs, prefix.Addr())
		}
	}
	if len(addrs) == 0 {
		t.Skip("this machine has no network")
	}
	for _, raw := range []string{"http://localhost:" + port, "http://127.0.0.1:" + port + "/mcp/"} {
		d := Device{URL: raw}
		c := newConnector(d)
		service := mdns.Service{Instance: "x", Type: "_mcp._tcp", Host: "x.local", Port: device.port(), Addrs: addrs, Text: map[string]string{"path": "/mcp"}}
		if err := visit(t, c.named(d)); err != nil {
			t.Fatal(err)
		}
		if !c.takeRenewed() || c.takeRenewed() {
			t.Errorf("%s: reaching it is not news, or news twice", raw)
		}
		if all := sighted(t, c, service); len(all) != 0 {
			t.Errorf("%s is listed as %s, too", raw, all[0].Address)
		}
		service.Port++
		if all := sighted(t, c, service); len(all) != 1 {
			t.Errorf("%s hides another device", raw)
		}
	}
	// A name of the local DNS, which is known only once the device was reached.
	d := Device{URL: "http://lamp.lan/mcp"}
	c := newConnector(d)
	service := announced("lamp", "lamp", at("10.0.0.7"), "path=/mcp")
	if all := sighted(t, c, service); len(all) != 1 {
		t.Errorf("got %d", len(all))
	}
	named, err := parseURL(d.URL)
	if err != nil {
		t.Fatal(err)
	}
	c.placeOf(named).reach(netip.MustParseAddrPort("10.0.0.7:80"))
	if all := sighted(t, c, service); len(all) != 0 {
		t.Errorf("%s is listed as %s, too", d.URL, all[0].Address)
	}
}
