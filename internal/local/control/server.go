package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Tracer calls fn with the frames to and from a device until ctx ends. fn must not
// block.
type Tracer interface {
	Trace(ctx context.Context, device string, fn func(ferrule.Trace)) error
}

// Fleet reports all devices and their changes until stop is called.
type Fleet interface {
	WatchDevices(follower ferrule.DeviceWatcher) (stop func())
}

// DeviceRequests holds the devices that were requested in the config, on the command
// line, and by `ferrule mcp` processes.
type DeviceRequests interface {
	// Add requests devices, and waits until they are online or failed to connect.
	// Devices that were requested before are ignored.
	Add(ctx context.Context, requests []DeviceRequest) error
	All() []DeviceRequest
}

// Parts are what a Server needs from its gateway.
type Parts struct {
	// Handle runs a call: it is the pipeline.
	Handle  ferrule.Handler
	Tracer  Tracer
	Watcher Watcher
	// Samples is nil if the gateway measures nothing.
	Samples Sampler
	Fleet   Fleet
	// Visibility says what an agent is shown of the fleet; nil shows everything.
	Visibility     Visibility
	DeviceRequests DeviceRequests
	// Journals is nil if the gateway is not part of a cluster.
	Journals Journals
	// SessionEnded is called when a `ferrule mcp` process has disconnected; it may be nil.
	SessionEnded func(session string)
	// Reload reads the configuration again, or returns why it cannot be used.
	Reload func() (Reloaded, error)
	// HandOver makes the gateway exit soon, or returns why it stays.
	HandOver func() error
	// GroupSocket is the path of a second socket, for members of this process's group. It
	// is empty if there is none.
	GroupSocket string
	Log         *slog.Logger
}

// Server is the gateway's end of the socket.
type Server struct {
	lns       []net.Listener
	parts     Parts
	questions questions
	agents    agents
}

// Listen opens the socket at path and replaces a socket that is left there. The
// caller must have made sure that no other gateway is running. Clients can connect
// at once, and are served when Run is called.
func Listen(path string, parts Parts) (*Server, error) {
	ln, err := listen(path, 0o600)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	s := &Server{lns: []net.Listener{ln}, parts: parts, questions: questions{open: make(map[string]chan answer)}}
	if parts.GroupSocket != "" {
		if err := s.addGroup(parts.GroupSocket); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// listen opens a socket with the permissions perm, in a directory that only this user can
// write to.
func listen(path string, perm os.FileMode) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, perm); err != nil {
		ln.Close()
		return nil, err
	}
	return ln, nil
}

// Close closes the sockets. It is only needed if Run is not called.
func (s *Server) Close() {
	for _, ln := range s.lns {
		ln.Close()
	}
}

// Run serves until ctx ends. It then cancels the running calls and waits for them.
func (s *Server) Run(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /call", s.call)
	mux.HandleFunc("POST /answer", s.answer)
	mux.HandleFunc("GET /trace", s.trace)
	mux.HandleFunc("GET /watch", s.watch)
	mux.HandleFunc("POST /fleet", s.fleet)
	mux.HandleFunc("GET /journal", s.journal)
	if s.parts.Reload != nil {
		mux.HandleFunc("POST /reload", s.reload)
	}
	mux.HandleFunc("POST /handover", s.handOver)
	server := &http.Server{
		Handler:           mux,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       withPeer,
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(s.parts.Log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, len(s.lns))
	for _, ln := range s.lns {
		go func() { ended <- server.Serve(ln) }()
	}
	select {
	case err := <-ended:
		server.Close()
		return fmt.Errorf("control socket: %w", err)
	case <-ctx.Done():
	}
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(shutdown); err != nil {
		server.Close()
	}
	for range s.lns {
		<-ended
	}
	return nil
}

// call runs one call, and writes its progress and questions as they come.
func (s *Server) call(w http.ResponseWriter, r *http.Request) {
	call := &ferrule.Call{}
	req := request{Call: call}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	call.Parent = ferrule.Traceparent(call.Parent)
	call.Client = call.Client.Bounded()
	call.Principal = principal(r.Context(), call)
	s.agents.called(call)
	if call.Principal.Role == ferrule.Person && call.Client == (ferrule.Client{}) {
		call.Client.Name = "ferrule"
	}
	out := newLines(w)
	call.Progress = func(p ferrule.Progress) { out.write(reply{Progress: &p}) }
	if req.Asks {
		call.Ask = func(ctx context.Context, q ferrule.Question) (ferrule.Answer, error) {
			return s.questions.ask(ctx, r.Context(), q, out)
		}
	}
	result, err := s.parts.Handle(r.Context(), call)
	if err != nil {
		out.write(reply{Error: ferrule.AsError(err)})
		return
	}
	out.write(reply{Result: result})
}

func (s *Server) handOver(w http.ResponseWriter, _ *http.Request) {
	if err := s.parts.HandOver(); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

// traceBacklog is how many frames may wait for a slow reader. More are dropped and
// counted.
const traceBacklog = 1024

// trace writes the frames of a device as they come.
func (s *Server) trace(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	frames := make(chan ferrule.Trace, traceBacklog)
	ended := make(chan error, 1)
	var dropped dropCounter
	go func() {
		ended <- s.parts.Tracer.Trace(ctx, r.URL.Query().Get("device"), func(t ferrule.Trace) {
			select {
			case frames <- t:
			default:
				dropped.add()
			}
		})
	}()
	out := newLines(w)
	for {
		select {
		case t := <-frames:
			if n := dropped.take(); n > 0 {
				out.write(reply{Trace: &ferrule.Trace{Time: t.Time, Direction: "note", Note: fmt.Sprintf("%d frames dropped: the reader is too slow", n)}})
			}
			out.write(reply{Trace: &t})
		case err := <-ended:
			if err != nil {
				out.write(reply{Error: ferrule.AsError(err)})
			}
			return
		}
	}
}

// dropCounter counts what was dropped since the last take.
type dropCounter struct {
	mu sync.Mutex
	n  int
}

func (m *dropCounter) add() {
	m.mu.Lock()
	m.n++
	m.mu.Unlock()
}

func (m *dropCounter) take() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.n
	m.n = 0
	return n
}

// lines writes replies as JSON lines and flushes each one.
type lines struct {
	mu sync.Mutex
	w  http.ResponseWriter
}

func newLines(w http.ResponseWriter) *lines {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	http.NewResponseController(w).Flush()
	return &lines{w: w}
}

// write writes a reply. It ignores errors: when the reader disconnects, the context
// of the request ends.
func (l *lines) write(r reply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	json.NewEncoder(l.w).Encode(r)
	http.NewResponseController(l.w).Flush()
}
