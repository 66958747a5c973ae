package httpclient

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport/mdns"
)

// DefaultPath is the path of the endpoint on most devices.
const DefaultPath = "/mcp"

// endpoint is the parsed URL of a device.
type endpoint struct {
	scheme string
	host   string // host:port
	path   string // escaped, as in the URL
	// targets are the addresses of the host, best first; empty if the name must be
	// resolved.
	targets []netip.AddrPort
}

// ports are the default ports of the schemes.
var ports = map[string]string{"http": "80", "https": "443", "ws": "80", "wss": "443"}

// socket reports whether the device is reached by WebSocket.
func (e endpoint) socket() bool { return e.scheme == "ws" || e.scheme == "wss" }

// secure reports whether TLS verifies the device.
func (e endpoint) secure() bool { return e.scheme == "https" || e.scheme == "wss" }

// local reports whether the host name belongs to mDNS, also if the system resolves it.
func (e endpoint) local() bool {
	host, _, _ := net.SplitHostPort(e.host)
	return mdns.IsLocalName(host)
}

// announced reports whether only an announcement says where the device is, and TLS does
// not verify it.
func (e endpoint) announced() bool { return e.local() && !e.secure() }

// parseURL parses a URL as people write it.
func parseURL(raw string) (endpoint, error) {
	invalid := func(why string) (endpoint, error) {
		return endpoint{}, fmt.Errorf("url %q: %s", redact(raw), why)
	}
	u, err := url.Parse(raw)
	if err != nil || ports[u.Scheme] == "" || u.Hostname() == "" || u.Opaque != "" {
		return invalid("must be a URL such as http://192.168.1.20/mcp or ws://192.168.1.20:9000/")
	}
	switch {
	case u.User != nil || u.RawQuery != "" || u.ForceQuery:
		return invalid("must not contain credentials or a query; set a token for the device")
	case u.Fragment != "":
		return invalid("must not contain a fragment (#)")
	}
	at := endpoint{scheme: u.Scheme, host: hostport(u), path: u.EscapedPath()}
	_, port, _ := net.SplitHostPort(at.host)
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return invalid("port must be a number from 1 to 65535")
	}
	switch {
	case at.path == "" && at.socket():
		at.path = "/"
	case at.path == "":
		at.path = DefaultPath
	}
	return at, nil
}

// hostport returns the host and port of a URL in one spelling. The zone of an address
// is case sensitive and stays as it is.
func hostport(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = ports[u.Scheme]
	}
	host, zone, zoned := strings.Cut(u.Hostname(), "%")
	host = strings.ToLower(host)
	if zoned {
		host += "%" + zone
	}
	return net.JoinHostPort(host, port)
}

// redact removes the parts of a URL that may be a secret.
func redact(raw string) string {
	if i := strings.LastIndexByte(raw, '@'); i >= 0 { // first: a password may contain a ?
		raw = "…" + raw[i:]
	}
	if i := strings.IndexByte(raw, '?'); i >= 0 {
		raw = raw[:i] + "?…"
	}
	return raw
}

// url returns the URL for requests. The zone of an address is escaped in it.
func (e endpoint) url() string {
	return e.scheme + "://" + strings.Replace(e.host, "%", "%25", 1) + e.path
}

// connect dials the targets, or the address if there are none. TCP keep-alive detects
// a board that lost power while a stream is open; its firmware is not involved.
func (e endpoint) connect(ctx context.Context, timeout time.Duration, network, address string) (conn net.Conn, err error) {
	dialer := net.Dialer{
		Timeout:         timeout,
		FallbackDelay:   -1, // a parallel second connection would block a board
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	if len(e.targets) == 0 {
		return dialer.DialContext(ctx, network, address)
	}
	for _, target := range e.targets { // one by one, for the same reason
		if conn, err = dialer.DialContext(ctx, network, target.String()); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// address returns the address of a configured device.
func (e endpoint) address() string { return e.host + e.path }

// loopback reports whether the endpoint is on this machine. On another machine, the
// same address belongs to another device.
func (e endpoint) loopback() bool {
	host, _, _ := net.SplitHostPort(e.host)
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
