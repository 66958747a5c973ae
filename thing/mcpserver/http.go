package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

const (
	// maxEvents is the limit of what is kept for callers that reconnect, in bytes.
	maxEvents = 256 << 10
	// maxConnections is the limit of open connections.
	maxConnections = 256
	// keepAlive is how long an idle connection is kept.
	keepAlive = 2 * time.Minute
	// stopTimeout is how long serving waits for a call to end.
	stopTimeout = 5 * time.Second
)

// Handler serves MCP over HTTP. Pins and tools must be declared before it is called.
func (d *Device) Handler() http.Handler {
	d.offer.Do(d.offerTools)
	mux := http.NewServeMux()
	mux.Handle(d.config.Path, d.http)
	return d.guard(d.authenticated(d.limited(mux)))
}

// Serve serves MCP over HTTP on ln until ctx ends; it then returns nil. It closes ln,
// ends all sessions, and cancels calls, including those over WebSockets. It returns an
// error if a tool ignores its context.
func (d *Device) Serve(ctx context.Context, ln net.Listener) error {
	defer d.statistics.serving(&d.statistics.http, ln.Addr())()
	return d.serve(ctx, ln, d.Handler())
}

func (d *Device) serve(ctx context.Context, ln net.Listener, handler http.Handler) error {
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	server := &http.Server{
		Handler: withKeepAlive(handler), ReadHeaderTimeout: d.http.Deadlines.Request, IdleTimeout: keepAlive, MaxHeaderBytes: 32 << 10,
		BaseContext: func(net.Listener) context.Context { return requests },
		ErrorLog:    slog.NewLogLogger(d.config.Log.Handler(), slog.LevelDebug),
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { d.http.Run(requests) })
	wg.Go(func() { d.sample(requests) })
	ended := make(chan error, 1)
	go func() {
		ended <- server.Serve(&limitedListener{Listener: ln, slots: make(chan struct{}, maxConnections)})
	}()
	select {
	case err := <-ended:
		return fmt.Errorf("serving HTTP: %w", err)
	case <-ctx.Done():
	}
	cancel()
	d.halting.now()
	for session := range d.server.Sessions() {
		go session.Close() // waits for calls, which end below
	}
	server.Close()
	<-ended
	ending, stop := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer stop()
	if !d.lane.empties(ending) || !d.tasks.empties(ending) {
		return errors.New("a tool did not return when its context ended")
	}
	return nil
}

// withKeepAlive sends the Keep-Alive header. Without it, some clients assume a board
// that can have only one connection.
func withKeepAlive(next http.Handler) http.Handler {
	header := fmt.Sprintf("timeout=%d", int(keepAlive.Seconds()))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Keep-Alive", header)
		next.ServeHTTP(w, r)
	})
}

// sample samples pins until ctx ends.
func (d *Device) sample(ctx context.Context) {
	for {
		next, any := d.Tick(time.Now())
		if !any {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(next)):
		}
	}
}

// limitedListener closes connections beyond its limit.
type limitedListener struct {
	net.Listener
	slots chan struct{}
}

func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return &limitedConn{Conn: conn, release: sync.OnceFunc(func() { <-l.slots })}, nil
		default:
			conn.Close()
		}
	}
}

// limitedConn frees its slot when it is closed.
type limitedConn struct {
	net.Conn
	release func()
}

func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// newHandler returns the handler of MCP over HTTP.
func (d *Device) newHandler() *mcphttp.Handler {
	return mcphttp.New(mcphttp.Config{
		Server:      func(*http.Request) *mcp.Server { return d.server },
		Servers:     func() iter.Seq[*mcp.Server] { return func(yield func(*mcp.Server) bool) { yield(d.server) } },
		MaxSessions: d.config.Sessions, Idle: d.config.Idle,
		Events:  mcphttp.EventLimits{Total: maxEvents, Session: maxEvents},
		AnyHost: true, // guard checks it
		Check:   checkTaskName,
	})
}

// guard refuses what a web page on another site could send.
func (d *Device) guard(next http.Handler) http.Handler {
	return mcphttp.Guard(func(r *http.Request) string {
		own := d.isOwnHost
		if at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok && at.IP.IsLoopback() {
			own = d.isLocalHost
		}
		if own(r.Host) {
			return ""
		}
		return fmt.Sprintf("%q is not a name of this device; add it to Config.Hosts, or with ferrule board --host", r.Host)
	}, next)
}

// isOwnHost reports whether a host, with or without a port, is a name of this device.
// Public DNS cannot have the names that are always accepted.
func (d *Device) isOwnHost(host string) bool {
	name := hostname(host)
	return net.ParseIP(name) != nil || !strings.Contains(name, ".") || strings.HasSuffix(name, ".local") || d.isLocalHost(host)
}

// isLocalHost is isOwnHost for a connection from this computer. A neighbor in the network can
// make a name without a dot or in .local resolve to a loopback address, which only programs
// on this computer may use.
func (d *Device) isLocalHost(host string) bool {
	name := hostname(host)
	ip := net.ParseIP(name)
	return name == "localhost" || ip != nil && ip.IsLoopback() ||
		slices.ContainsFunc(d.config.Hosts, func(h string) bool { return strings.EqualFold(h, name) })
}

func hostname(host string) string {
	return strings.ToLower(strings.TrimSuffix(mcphttp.Hostname(host), "."))
}
