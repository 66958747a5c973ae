package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// engine is a connection to NATS, and the server behind it where that runs in
// this process.
type engine struct {
	server *server.Server // nil when joined
	conn   *nats.Conn
	// home is the JetStream that all nodes share, and local a leaf's own.
	home, local jetstream.JetStream
	// prefix stands before the subjects of keys of home.
	prefix string
	// streams are those behind buckets of home, by bucket, as far as they were needed.
	streams sync.Map
}

// siteDomain is the JetStream domain of a leaf. It differs from the hub's, and need
// not differ between leaves: nobody asks for it from outside.
func siteDomain(node string) string { return "site-" + node }

// startEngine starts the server, if there is one to start, and connects. A cluster
// that cannot be reached is gone on trying for.
func startEngine(cfg Config, dir string, log *slog.Logger, reconnected func()) (*engine, error) {
	e := &engine{}
	name := names{cfg.Tenant, cfg.Node}
	options := []nats.Option{
		nats.Name("ferrule " + cfg.Node),
		nats.CustomInboxPrefix(name.inbox()),
		nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(100 * time.Millisecond), nats.ReconnectJitter(100*time.Millisecond, 100*time.Millisecond),
		nats.ReconnectBufSize(-1), // what cannot be sent now is not sent later: its caller was told
		nats.PingInterval(5 * time.Second), nats.MaxPingsOutstanding(2),
		nats.ReconnectHandler(func(*nats.Conn) { reconnected() }),
		nats.ErrorHandler(toldOnce(log)),
	}
	servers := cfg.Servers
	if cfg.Mode != Join {
		if err := e.startServer(cfg, dir, log); err != nil {
			return nil, err
		}
		options = append(options, nats.InProcessServer(e.server))
		servers = []string{"nats://in-process"}
	} else {
		secure, err := secured(cfg)
		if err != nil {
			return nil, err
		}
		options = append(options, secure...)
	}
	var err error
	if e.conn, err = nats.Connect(strings.Join(servers, ","), options...); err != nil {
		e.close()
		return nil, fmt.Errorf("connecting: %w", err)
	}
	if err := e.open(cfg); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

// toldOnce logs what a server objects to, and does not repeat itself.
func toldOnce(log *slog.Logger) nats.ErrHandler {
	last := ""
	return func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if now := err.Error(); now != last {
			log.Warn("bus", "err", now)
			last = now
		}
	}
}

// open makes the contexts. What is written without waiting is given up in time: only
// so much may be under way.
func (e *engine) open(cfg Config) (err error) {
	options := []jetstream.JetStreamOpt{jetstream.WithPublishAsyncTimeout(writeTime), jetstream.WithPublishAsyncMaxPending(mostPending)}
	if cfg.Mode != Leaf {
		e.home, err = jetstream.New(e.conn, options...)
		return err
	}
	if e.local, err = jetstream.New(e.conn, options...); err != nil {
		return err
	}
	e.prefix = "$JS." + cfg.Domain + ".API."
	e.home, err = jetstream.NewWithDomain(e.conn, cfg.Domain, options...)
	return err
}

func secured(cfg Config) (options []nats.Option, err error) {
	if cfg.Credentials != "" {
		if _, err := os.Stat(cfg.Credentials); err != nil {
			return nil, fmt.Errorf("credentials: %w", err)
		}
		options = append(options, nats.UserCredentials(cfg.Credentials))
	}
	if cfg.CA != "" {
		options = append(options, nats.RootCAs(cfg.CA))
	}
	return options, nil
}

// readyTime is how long a server in this process may take to be ready: it reads
// what it has stored first.
const readyTime = 30 * time.Second

func (e *engine) startServer(cfg Config, dir string, log *slog.Logger) error {
	options := &server.Options{
		ServerName: "ferrule-" + cfg.Tenant + "-" + cfg.Node, DontListen: true, NoSigs: true,
		JetStream: true, StoreDir: dir, JetStreamMaxStore: cfg.Store, JetStreamMaxMemory: 64 << 20,
		MaxPayload: 1 << 20, NoSystemAccount: false,
	}
	if cfg.Mode == Leaf {
		options.JetStreamDomain = siteDomain(cfg.Node)
		remote, err := remoteLeaf(cfg)
		if err != nil {
			return err
		}
		options.LeafNode = server.LeafNodeOpts{Remotes: []*server.RemoteLeafOpts{remote}, ReconnectInterval: 500 * time.Millisecond}
		options.PingInterval, options.MaxPingsOut = 5*time.Second, 2
		options.ReconnectErrorReports = 1000 // of attempts; the bus itself tells once
	}
	s, err := server.NewServer(options)
	if err != nil {
		return fmt.Errorf("starting NATS: %w", err)
	}
	s.SetLoggerV2(serverLog{log}, false, false, false)
	s.Start()
	e.server = s
	if !s.ReadyForConnections(readyTime) {
		e.close()
		return fmt.Errorf("starting NATS: it is not ready after %v", readyTime)
	}
	if !s.JetStreamEnabled() {
		e.close()
		return fmt.Errorf("starting NATS: its files in %s cannot be used", filepath.Base(dir))
	}
	return nil
}

// remoteLeaf is how a leaf reaches its hub.
func remoteLeaf(cfg Config) (*server.RemoteLeafOpts, error) {
	remote := &server.RemoteLeafOpts{
		Credentials: cfg.Credentials,
		// A spool is its leaf's own: what one keeps, the others must not keep, too.
		DenyExports: []string{spoolSubjects}, DenyImports: []string{spoolSubjects},
	}
	for _, s := range cfg.Servers {
		u, err := url.Parse(s)
		if err != nil {
			return nil, err
		}
		if u.Scheme == "nats" {
			u.Scheme = "nats-leaf"
		}
		remote.TLS = remote.TLS || u.Scheme == "tls" || u.Scheme == "wss"
		remote.URLs = append(remote.URLs, u)
	}
	if cfg.CA != "" {
		pem, err := os.ReadFile(cfg.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, errors.New("ca: there is no certificate in it")
		}
		remote.TLS, remote.TLSConfig = true, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return remote, nil
}

// close closes the connection, and has a server of ours end in order.
func (e *engine) close() {
	if e.conn != nil {
		e.conn.Close()
	}
	if e.server != nil {
		e.server.Shutdown()
		e.server.WaitForShutdown()
	}
}

// linked waits until there is somebody to ask, or ctx ends.
func (e *engine) linked(ctx context.Context) error {
	for e.away() != nil {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// away tells that there is nobody to ask; nil if there is.
func (e *engine) away() error {
	switch {
	case e.conn.Status() != nats.CONNECTED:
		if err := e.conn.LastError(); err != nil {
			return fmt.Errorf("no server of NATS can be reached: %w", err)
		}
		return errors.New("no server of NATS can be reached")
	case e.local != nil && e.server.NumLeafNodes() == 0:
		return errors.New("the hub cannot be reached")
	}
	return nil
}

// serverLog passes on what a server in this process has to say: it is talkative,
// and what matters to people is told by the bus itself.
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
