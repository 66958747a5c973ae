package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/websocket"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Probe returns the version of a Home Assistant, or why it cannot be reached. It sends no token,
// and Home Assistant does not count it as a login.
func Probe(ctx context.Context, cfg Config) (version string, err error) {
	link, err := cfg.link(ctx, new(net.Dialer).DialContext)
	if err != nil {
		return "", err
	}
	defer link.Close()
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var hello greeting
	if err := expect(ctx, link, "", "auth_required", &hello); err != nil {
		return "", err
	}
	return ferrule.Clean(hello.Version, 50), nil
}

// link opens a WebSocket. The token is not part of the handshake: only the API gets it.
func (c Config) link(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error)) (transport.Link, error) {
	endpoint, err := Endpoint(c.URL)
	if err != nil {
		return nil, err
	}
	cfg := websocket.Config{MaxMessage: maxMessage, Ping: pingAfter, Pong: pongTime, Send: sendTimeout}
	if cfg.TLS, err = c.tls(); err != nil {
		return nil, err
	}
	link, err := cfg.Dial(ctx, c.URL, endpoint, "", dial)
	if err != nil {
		return nil, dialError(c.URL, err)
	}
	return link, nil
}

// tls returns which certificates are accepted; nil for those of the system.
func (c Config) tls() (*tls.Config, error) {
	if c.CA == "" {
		return nil, nil
	}
	roots, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	if !config.RootCAs.AppendCertsFromPEM(roots) {
		return nil, fmt.Errorf("ca: %s has no certificate in PEM format", c.CA)
	}
	return config, nil
}
