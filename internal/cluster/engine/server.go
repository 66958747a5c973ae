package engine

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// readyTime is how long a server in this process may take to start: it reads its store
// first.
const readyTime = 30 * time.Second

// siteDomain returns the JetStream domain of a leaf. It must differ from the hub's.
func siteDomain(node string) string { return "site-" + node }

func (e *Engine) startServer(log *slog.Logger) error {
	options := &server.Options{
		ServerName: "ferrule-" + e.cfg.Tenant + "-" + e.cfg.Node, DontListen: true, NoSigs: true,
		JetStream: true, StoreDir: e.dir, JetStreamMaxStore: e.cfg.Store, JetStreamMaxMemory: 64 << 20,
		MaxPayload: 1 << 20, NoSystemAccount: false, DisableJetStreamBanner: true,
	}
	if e.cfg.Mode == Leaf {
		options.JetStreamDomain = siteDomain(e.cfg.Node)
		remote, err := hubRemote(e.cfg)
		if err != nil {
			return err
		}
		options.LeafNode = server.LeafNodeOpts{Remotes: []*server.RemoteLeafOpts{remote}, ReconnectInterval: 500 * time.Millisecond}
		options.PingInterval, options.MaxPingsOut = 5*time.Second, 2
		options.ReconnectErrorReports = 1000 // attempts between two log lines
	}
	s, err := server.NewServer(options)
	if err != nil {
		return fmt.Errorf("starting NATS: %w", err)
	}
	s.SetLoggerV2(serverLog{log}, false, false, false)
	s.Start()
	e.server = s
	if !s.ReadyForConnections(readyTime) {
		e.Close()
		return fmt.Errorf("starting NATS: not ready after %v", readyTime)
	}
	if !s.JetStreamEnabled() {
		e.Close()
		return fmt.Errorf("starting NATS: cannot use its files in %s", filepath.Base(e.dir))
	}
	return nil
}

// hubRemote returns how a leaf connects to its hub.
func hubRemote(cfg Config) (*server.RemoteLeafOpts, error) {
	remote := &server.RemoteLeafOpts{
		Credentials: cfg.Credentials,
		// A spool is private to its leaf: another leaf must not store it too.
		DenyExports: []string{SpoolSubjects}, DenyImports: []string{SpoolSubjects},
	}
	encrypted, err := secure(cfg.Servers)
	if err != nil {
		return nil, fmt.Errorf("servers: %w", err)
	}
	// Without TLS, only the servers in the configuration are on this machine for sure.
	remote.TLS, remote.IgnoreDiscoveredServers = encrypted, !encrypted
	for _, s := range cfg.Servers {
		u, err := url.Parse(s)
		if err != nil {
			return nil, err
		}
		if u.Scheme == "nats" {
			u.Scheme = "nats-leaf"
		}
		remote.URLs = append(remote.URLs, u)
	}
	if cfg.CA != "" {
		pem, err := os.ReadFile(cfg.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, errors.New("ca: the file contains no certificate")
		}
		remote.TLS, remote.TLSConfig = true, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return remote, nil
}

// serverLog passes on the log of a server in this process at a lower level: the
// cluster package reports what matters to people.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Noticef(format string, args ...any) {
	l.log.Debug("nats: " + fmt.Sprintf(format, args...))
}
func (l serverLog) Warnf(format string, args ...any) {
	l.log.Debug("nats: " + fmt.Sprintf(format, args...))
}
func (l serverLog) Errorf(format string, args ...any) {
	l.log.Warn("nats: " + fmt.Sprintf(format, args...))
}
func (l serverLog) Fatalf(format string, args ...any) {
	l.log.Error("nats: " + fmt.Sprintf(format, args...))
}
func (l serverLog) Debugf(string, ...any) {}
func (l serverLog) Tracef(string, ...any) {}
