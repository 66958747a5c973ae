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
)

// DefaultPath is where most devices have their endpoint.
const DefaultPath = "/mcp"

// endpoint is where a device answers.
type endpoint struct {
	scheme string
	host   string // host:port
	path   string // as it stands in the URL
	// targets are the addresses of the host, best first, if they are known
	// otherwise than by its name.
	targets []netip.AddrPort
}

// ports are those of the schemes, where a URL has none.
var ports = map[string]string{"http": "80", "https": "443", "ws": "80", "wss": "443"}

// socket tells whether the device listens for a WebSocket.
func (e endpoint) socket() bool { return e.scheme == "ws" || e.scheme == "wss" }

// parseURL reads a URL as people write it.
func parseURL(raw string) (endpoint, error) {
	wrong := func(why string) (endpoint, error) {
		return endpoint{}, fmt.Errorf("url %q: %s", redact(raw), why)
	}
	u, err := url.Parse(raw)
	if err != nil || ports[u.Scheme] == "" || u.Hostname() == "" || u.Opaque != "" {
		return wrong("want one such as http://192.168.1.20/mcp, or ws://192.168.1.20:9000/")
	}
	switch {
	case u.User != nil || u.RawQuery != "" || u.ForceQuery:
		return wrong("a secret does not belong here: give the device a token")
	case u.Fragment != "":
		return wrong("what follows # never reaches a device")
	}
	at := endpoint{scheme: u.Scheme, host: hostport(u), path: u.EscapedPath()}
	_, port, _ := net.SplitHostPort(at.host)
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return wrong("the port must be a number from 1 to 65535")
	}
	switch {
	case at.path == "" && at.socket():
		at.path = "/"
	case at.path == "":
		at.path = DefaultPath
	}
	return at, nil
}

// hostport is the host and the port of a URL, in one spelling. Only the zone of an
// address has large letters that matter.
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

// redact is a URL without what may be a secret in it.
func redact(raw string) string {
	if i := strings.IndexByte(raw, '?'); i >= 0 {
		raw = raw[:i] + "?…"
	}
	if i := strings.LastIndexByte(raw, '@'); i >= 0 {
		raw = "…" + raw[i:]
	}
	return raw
}

// url is what requests are made to.
func (e endpoint) url() string {
	// The zone of an address is escaped in a URL.
	return e.scheme + "://" + strings.Replace(e.host, "%", "%25", 1) + e.path
}

// connect dials a device, at the address of its URL unless others are known.
// Keep-alive is on, and answered by the kernels alone: it finds a board that lost
// power while a stream is open.
func (e endpoint) connect(ctx context.Context, timeout time.Duration, network, address string) (conn net.Conn, err error) {
	dialer := net.Dialer{
		Timeout:         timeout,
		FallbackDelay:   -1, // a second connection, made in case, would block a board
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	if len(e.targets) == 0 {
		return dialer.DialContext(ctx, network, address)
	}
	for _, target := range e.targets { // in turn, never two at once
		if conn, err = dialer.DialContext(ctx, network, target.String()); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// address tells the device apart where nothing better is known.
func (e endpoint) address() string { return e.host + e.path }

// loopback tells whether the endpoint is on this machine, where on another machine
// there is another device, or none.
func (e endpoint) loopback() bool {
	host, _, _ := net.SplitHostPort(e.host)
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
