package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxBody is the size of the largest request.
	maxBody = 1 << 20
	// maxConnections is how many connections may be open at once.
	maxConnections = 256
	// keepTime is how long a connection is kept that nothing is sent on.
	keepTime = 2 * time.Minute
	// farewell is how long the end of what is under way is waited for.
	farewell = 5 * time.Second
)

// modernVersion is the first version of the protocol that knows no sessions.
const modernVersion = "2026-07-28"

// The headers of MCP that are looked at here.
const (
	versionHeader = "Mcp-Protocol-Version"
	sessionHeader = "Mcp-Session-Id"
	methodHeader  = "Mcp-Method"
)

// Handler serves MCP over HTTP. Pins and tools are declared before it is asked for.
func (d *Device) Handler() http.Handler {
	d.offer.Do(d.offerTools)
	mux := http.NewServeMux()
	mux.Handle(d.config.Path, d.eras())
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
		Handler: keeping(handler), ReadHeaderTimeout: d.sendTime, IdleTimeout: keepTime, MaxHeaderBytes: 32 << 10,
		BaseContext: func(net.Listener) context.Context { return requests },
		ErrorLog:    slog.NewLogLogger(d.config.Log.Handler(), slog.LevelDebug),
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { d.sweep(requests) })
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

// eras sends each request to the handler of its era: the SDK serves versions
// without sessions only where there are none at all.
func (d *Device) eras() http.Handler {
	get := func(*http.Request) *mcp.Server { return d.server }
	modern := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: maxBody, DisableLocalhostProtection: true,
	})
	legacy := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		EventStore: newKept(), MaxRequestBodyBytes: maxBody, DisableLocalhostProtection: true,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isModern := r.Header.Get(versionHeader) >= modernVersion
		opens := isModern && r.Header.Get(methodHeader) == "subscriptions/listen" ||
			!isModern && r.Method == http.MethodPost && r.Header.Get(sessionHeader) == ""
		if opens && !d.room() {
			w.Header().Set("Retry-After", "60")
			http.Error(w, fmt.Sprintf("%d programs are connected; more are not possible", d.config.Sessions), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("X-Accel-Buffering", "no")
		w, r = d.patient(w, r)
		if isModern {
			modern.ServeHTTP(w, r)
			return
		}
		defer d.uses.begin(r.Header.Get(sessionHeader))()
		legacy.ServeHTTP(w, r)
	})
}

// guard refuses what a web page on another site could send: a name of its own that
// leads here, or a request from there.
func (d *Device) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !d.isOurs(r.Host) {
			http.Error(w, fmt.Sprintf("%q is not a name of this device; Config.Hosts may name it", r.Host), http.StatusForbidden)
			return
		}
		if origin := r.Header.Get("Origin"); origin != "" {
			if from, err := url.Parse(origin); err != nil || from.Host != r.Host {
				http.Error(w, fmt.Sprintf("pages of %q may not ask here", origin), http.StatusForbidden)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// isOurs tells whether a host, with or without a port, can be this device: nobody
// else on the Internet can have such a name.
func (d *Device) isOurs(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	return net.ParseIP(host) != nil || !strings.Contains(host, ".") || strings.HasSuffix(strings.ToLower(host), ".local") ||
		slices.ContainsFunc(d.config.Hosts, func(h string) bool { return strings.EqualFold(h, host) })
}

// patient bounds how long a caller may take to send, and to read what it is sent:
// one that does neither keeps nobody else waiting.
func (d *Device) patient(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request) {
	control := http.NewResponseController(w)
	if r.Method == http.MethodPost {
		control.SetReadDeadline(time.Now().Add(d.sendTime))
		r.Body = &timedBody{r.Body, control}
	}
	return &timedWriter{w, control, d.takeTime}, r
}

// timedBody lifts the deadline once the request is there: that nothing follows must
// not look as if the caller had gone.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// pieceSize is how much a caller has to take in its time.
const pieceSize = 32 << 10

// timedWriter gives each piece of an answer its time.
type timedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	time    time.Duration
}

func (w *timedWriter) Write(p []byte) (n int, _ error) {
	defer w.control.SetWriteDeadline(time.Time{})
	for piece := range slices.Chunk(p, pieceSize) {
		w.control.SetWriteDeadline(time.Now().Add(w.time))
		written, err := w.ResponseWriter.Write(piece)
		n += written
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// FlushError is what the controller of a response looks for.
func (w *timedWriter) FlushError() error {
	w.control.SetWriteDeadline(time.Now().Add(w.time))
	defer w.control.SetWriteDeadline(time.Time{})
	return w.control.Flush()
}
