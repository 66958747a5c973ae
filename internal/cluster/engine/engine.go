// Package engine connects a node to NATS, and runs a NATS server in this process
// where the mode needs one.
//
//	embedded   server in this process, no listener
//	leaf       server in this process ── leaf connection ─▶ hub
//	join       ── client connection ─▶ cluster
//
// It is the only package that knows which of them is in use. It opens the buckets and
// streams that nodes share, and explains why NATS cannot be reached or written to.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Engine is a connection to NATS, with the server behind it if that runs in this
// process.
type Engine struct {
	Conn *nats.Conn
	// Shared is the JetStream of all nodes. Local is a leaf's own, nil for others.
	Shared, Local jetstream.JetStream

	cfg    Config
	dir    string
	server *server.Server // nil in mode join
	prefix string         // of subjects of keys in Shared
	// streams caches the streams behind buckets of Shared, by bucket.
	streams sync.Map
}

// LinkTime is how long a lost connection may take to come back.
const LinkTime = 2 * time.Second

// The times of a connection. One that is silent counts as lost when ping MaxPings+1 is
// due. It is then opened again after ReconnectWait and up to ReconnectJitter more.
const (
	PingInterval    = 5 * time.Second
	MaxPings        = 2
	ReconnectWait   = 100 * time.Millisecond
	ReconnectJitter = 100 * time.Millisecond
)

// Async publishing gives up after WriteTime. MaxPending limits how many messages wait
// for an acknowledgment; a caller that has to wait for room fails after a moment.
const (
	WriteTime  = 5 * time.Second
	MaxPending = 16384
)

// Start starts the server, if the mode needs one, and connects. It does not wait for a
// cluster that is unreachable: the connection is retried in the background.
func Start(cfg Config, dir string, log *slog.Logger, reconnected func()) (*Engine, error) {
	e := &Engine{cfg: cfg, dir: dir}
	options := []nats.Option{
		nats.Name("ferrule " + cfg.Node),
		nats.CustomInboxPrefix(Names{cfg.Tenant, cfg.Node}.Inbox()),
		nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(ReconnectWait), nats.ReconnectJitter(ReconnectJitter, ReconnectJitter),
		nats.ReconnectBufSize(-1), // a message that cannot be sent now must not be sent later: its caller got an error
		nats.PingInterval(PingInterval), nats.MaxPingsOutstanding(MaxPings),
		nats.ReconnectHandler(func(*nats.Conn) { reconnected() }),
		nats.ErrorHandler(logOnce(log)),
	}
	servers := cfg.Servers
	if cfg.Mode != Join {
		if err := e.startServer(log); err != nil {
			return nil, err
		}
		options = append(options, nats.InProcessServer(e.server))
		servers = []string{"nats://in-process"}
	} else {
		auth, err := authOptions(cfg, log)
		if err != nil {
			return nil, err
		}
		options = append(options, auth...)
	}
	var err error
	if e.Conn, err = nats.Connect(strings.Join(servers, ","), options...); err != nil {
		e.Close()
		return nil, fmt.Errorf("connecting: %w", err)
	}
	if err := e.openJetStream(); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// logOnce logs errors that a server reports, without repeating the last one.
func logOnce(log *slog.Logger) nats.ErrHandler {
	last := ""
	return func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if now := err.Error(); now != last {
			log.Warn("nats: error from the server", "err", now)
			last = now
		}
	}
}

func (e *Engine) openJetStream() (err error) {
	options := []jetstream.JetStreamOpt{jetstream.WithPublishAsyncTimeout(WriteTime), jetstream.WithPublishAsyncMaxPending(MaxPending)}
	if e.cfg.Mode != Leaf {
		e.Shared, err = jetstream.New(e.Conn, options...)
		return err
	}
	if e.Local, err = jetstream.New(e.Conn, options...); err != nil {
		return err
	}
	e.prefix = "$JS." + e.cfg.Domain + ".API."
	e.Shared, err = jetstream.NewWithDomain(e.Conn, e.cfg.Domain, options...)
	return err
}

// authOptions returns how a node and the servers of a cluster prove who they are.
func authOptions(cfg Config, log *slog.Logger) (options []nats.Option, err error) {
	encrypted, err := secure(cfg.Servers)
	if err != nil {
		return nil, fmt.Errorf("servers: %w", err)
	}
	if !encrypted {
		options = append(options, nats.SetCustomDialer(newLoopbackDialer(log)))
	}
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

// Close closes the connection and shuts down a server in this process.
func (e *Engine) Close() {
	if e.Conn != nil {
		e.Conn.Close()
	}
	if e.server != nil {
		e.server.Shutdown()
		e.server.WaitForShutdown()
	}
}

// InProcess reports whether the server runs in this process.
func (e *Engine) InProcess() bool { return e.server != nil }

// StoreDisabled reports whether a server in this process has given up its store. Only
// a restart enables it again.
func (e *Engine) StoreDisabled() bool { return e.server != nil && !e.server.JetStreamEnabled() }

// Own returns the JetStream in which this node stores what only it needs: a leaf's own,
// else the shared one.
func (e *Engine) Own() jetstream.JetStream {
	if e.Local != nil {
		return e.Local
	}
	return e.Shared
}

// WaitLinked waits until a server, and for a leaf the hub, is reachable.
func (e *Engine) WaitLinked(ctx context.Context) error {
	for e.Unreachable() != nil {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Unreachable returns why no server, or for a leaf no hub, is reachable; nil if one is.
func (e *Engine) Unreachable() error {
	switch {
	case e.Conn.Status() != nats.CONNECTED:
		if err := e.Conn.LastError(); err != nil {
			return fmt.Errorf("no NATS server is reachable: %w", explainTLS(err))
		}
		return errors.New("no NATS server is reachable")
	case e.Local != nil && e.server.NumLeafNodes() == 0:
		return errors.New("the hub is unreachable")
	}
	return nil
}
