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
	// maxConnections is how many connections may be open at once.
	maxConnections = 256
	// keepTime is how long a connection is kept that nothing is sent on.
	keepTime = 2 * time.Minute
	// farewell is how long the end of what is under way is waited for.
	farewell = 5 * time.Second
)

// Handler serves MCP over HTTP. Pins and tools are declared before it is asked for.
func (d *Device) Handler() http.Handler {
	d.offer.Do(d.offerTools)
	mux := http.NewServeMux()
	mux.Handle(d.config.Path, d.http)
	return d.guard(d.known(d.limited(mux)))
}

// Serve serves MCP over HTTP on ln until ctx ends; it then returns nil. It closes ln.
// In the end all sessions end and so does what is under way, whichever way it came. A
// tool that does not heed its context is an error.
func (d *Device) Serve(ctx context.Context, ln net.Listener) error {
	return d.serve(ctx, ln, d.Handler())
}

func (d *Device) serve(ctx context.Context, ln net.Listener, handler http.Handler) error {
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	server := &http.Server{
		Handler: keeping(handler), ReadHeaderTimeout: d.http.Deadlines.Request, IdleTimeout: keepTime, MaxHeaderBytes: 32 << 10,
		BaseContext: func(net.Listener) context.Context { return requests },
		ErrorLog:    slog.NewLogLogger(d.config.Log.Handler(), slog.LevelDebug),
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { d.http.Run(requests) })
	wg.Go(func() { d.sample(requests) })
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(&fewListener{Listener: ln, seats: make(chan struct{}, maxConnections)}) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving agents: %w", err)
	case <-ctx.Done():
	}
	cancel()
	d.halting.now()
	for session := range d.server.Sessions() {
		go session.Close() // it waits for what is under way, and that is waited for below
	}
	server.Close()
	<-ended
	ending, stop := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer stop()
	if !d.lane.empties(ending) {
		return errors.New("a tool did not end when its context did")
	}
	return nil
}

// keeping tells callers for how long a connection is kept that nothing is sent on. Some
// take devices for boards that can have one at a time, unless they are told.
func keeping(next http.Handler) http.Handler {
	header := fmt.Sprintf("timeout=%d", int(keepTime.Seconds()))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Keep-Alive", header)
		next.ServeHTTP(w, r)
	})
}

// sample has samples of pins taken until ctx ends.
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

// fewListener holds no more connections than it has seats.
type fewListener struct {
	net.Listener
	seats chan struct{}
}

func (l *fewListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.seats <- struct{}{}:
			return &seatedConn{Conn: conn, stand: sync.OnceFunc(func() { <-l.seats })}, nil
		default:
			conn.Close()
		}
	}
}

// seatedConn leaves its seat when it is closed.
type seatedConn struct {
	net.Conn
	stand func()
}

func (c *seatedConn) Close() error {
	defer c.stand()
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
	})
}

// guard refuses what a web page on another site could send.
func (d *Device) guard(next http.Handler) http.Handler {
	return mcphttp.Guard(func(r *http.Request) string {
		if d.isOurs(r.Host) {
			return ""
		}
		return fmt.Sprintf("%q is not a name of this device; add it to Config.Hosts", r.Host)
	}, next)
}

// isOurs reports whether a host, with or without a port, can be this device: nobody
// else on the Internet can have such a name.
func (d *Device) isOurs(host string) bool {
	host = strings.TrimSuffix(mcphttp.Hostname(host), ".")
	return net.ParseIP(host) != nil || !strings.Contains(host, ".") || strings.HasSuffix(strings.ToLower(host), ".local") ||
		slices.ContainsFunc(d.config.Hosts, func(h string) bool { return strings.EqualFold(h, host) })
}
