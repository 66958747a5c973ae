package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// errPlain is the reason for not connecting to a server.
var errPlain = errors.New("calls and passwords may cross a network only with TLS")

// secure reports whether connections to servers use TLS: one address that asks for it is
// enough, as for NATS itself. It returns an error for addresses on other machines that do
// not.
func secure(servers []string) (yes bool, err error) {
	for _, s := range servers {
		u, err := url.Parse(s)
		if err != nil || u.Hostname() == "" {
			return false, fmt.Errorf("must be addresses such as tls://nats-1.example.com:4222, got %q", ferrule.MaskURL(s))
		}
		switch u.Scheme {
		case "tls", "wss":
			yes = true
		case "nats", "ws":
			if !isLoopback(u.Hostname()) {
				return false, fmt.Errorf("%s is on another machine: %w. Write %s, and name the file of the CA that signed the server's certificate as cluster.ca, unless it is a public one; docs/how-to/run-a-cluster.md has the steps",
					ferrule.MaskURL(s), errPlain, map[string]string{"nats": "tls://", "ws": "wss://"}[u.Scheme]+u.Host)
			}
		default:
			return false, fmt.Errorf("must start with tls://, or for this machine with nats://, got %q", ferrule.MaskURL(s))
		}
	}
	return yes, nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// loopbackDialer connects to this machine only. It is for connections without TLS: a
// server on this machine may announce others, elsewhere.
type loopbackDialer struct {
	net.Dialer
	log     *slog.Logger
	refused sync.Map // addresses that were logged
}

// dialTimeout is the one of NATS.
const dialTimeout = 2 * time.Second

func newLoopbackDialer(log *slog.Logger) *loopbackDialer {
	return &loopbackDialer{Dialer: net.Dialer{Timeout: dialTimeout}, log: log}
}

// Dial implements nats.CustomDialer. NATS has looked up the address.
func (d *loopbackDialer) Dial(network, address string) (net.Conn, error) {
	if host, _, err := net.SplitHostPort(address); err != nil || !isLoopback(host) {
		if _, logged := d.refused.LoadOrStore(address, true); !logged {
			d.log.Warn("cluster: a NATS server on another machine is not used, because cluster.servers asks for no TLS; write tls:// there", "server", address)
		}
		return nil, fmt.Errorf("%s: %w", address, errPlain)
	}
	return d.Dialer.Dial(network, address)
}

// explainTLS adds what to do to an error about a connection with TLS.
func explainTLS(err error) error {
	if errors.Is(err, nats.ErrSecureConnWanted) {
		return fmt.Errorf("the server offers no TLS, so nothing was sent to it; configure a certificate there, see docs/how-to/run-a-cluster.md: %w", err)
	}
	return err
}
