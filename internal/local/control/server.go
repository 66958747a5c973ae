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

// Tracer shows the wire to a device. Fn is called until ctx ends; it must be
// quick.
type Tracer interface {
	Trace(ctx context.Context, device string, fn func(ferrule.Trace)) error
}

// Fleet tells of devices until stop is called.
type Fleet interface {
	WatchDevices(follower ferrule.DeviceWatcher) (stop func())
}

// Wishes is what devices are asked for, by anybody.
type DeviceRequests interface {
	// Wish asks for devices, and waits until they are there or cannot be
	// reached. Those that are asked for already make no difference.
	Wish(ctx context.Context, wishes []DeviceRequest) error
	Wishes() []DeviceRequest
}

// Parts is what the gateway's end is made of.
type Parts struct {
	// Handle is the road.
	Handle  ferrule.Handler
	Tracer  Tracer
	Watcher Watcher
	// Samples is nil where nothing is measured.
	Samples Sampler
	Fleet   Fleet
	Wishes  DeviceRequests
	// Journals is nil where the gateway stands alone.
	Journals Journals
	// Yield has the gateway end soon, or tells why it does not.
	Yield func() error
	Log   *slog.Logger
}

// Server is the gateway's end of the socket.
type Server struct {
	ln        net.Listener
	parts     Parts
	questions questions
}

// Listen opens the socket at path, in the place of one that a gateway left
// behind: whoever calls has made sure that no gateway runs. Callers wait until
// Run.
func Listen(path string, parts Parts) (*Server, error) {
	ln, err := listen(path)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return &Server{ln: ln, parts: parts, questions: questions{open: make(map[string]chan answer)}}, nil
}

func listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		ln.Close()
		return nil, err
	}
	return ln, nil
}

// Close closes the socket. Run does so, too.
func (s *Server) Close() { s.ln.Close() }

// Run serves until ctx ends. Calls that are under way then have their contexts
// ended, and are waited for.
func (s *Server) Run(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /call", s.call)
	mux.HandleFunc("POST /answer", s.answer)
	mux.HandleFunc("GET /trace", s.trace)
	mux.HandleFunc("GET /watch", s.watch)
	mux.HandleFunc("POST /fleet", s.fleet)
	mux.HandleFunc("GET /journal", s.journal)
	mux.HandleFunc("POST /yield", s.yield)
	server := &http.Server{
		Handler:           mux,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(s.parts.Log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(s.ln) }()
	select {
	case err := <-ended:
		return fmt.Errorf("control socket: %w", err)
	case <-ctx.Done():
	}
	farewell, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(farewell); err != nil {
		server.Close()
	}
	<-ended
	return nil
}

// call serves one call, and writes what is told of it as it comes.
func (s *Server) call(w http.ResponseWriter, r *http.Request) {
	call := &ferrule.Call{}
	asked := request{Call: call}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	call.Parent = ferrule.Traceparent(call.Parent)
	if call.Principal.Role != ferrule.Agent {
		call.Principal.Role = ferrule.Person
	}
	out := newLines(w)
	call.Progress = func(p ferrule.Progress) { out.write(reply{Progress: &p}) }
	if asked.Asks {
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

// yield has the gateway end.
func (s *Server) yield(w http.ResponseWriter, _ *http.Request) {
	if err := s.parts.Yield(); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

// traceBacklog is how many frames wait for a slow reader; more are dropped, and
// counted.
const traceBacklog = 1024

// trace writes what is seen on the wire as it comes.
func (s *Server) trace(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	frames := make(chan ferrule.Trace, traceBacklog)
	ended := make(chan error, 1)
	var missed missed
	go func() {
		ended <- s.parts.Tracer.Trace(ctx, r.URL.Query().Get("device"), func(t ferrule.Trace) {
			select {
			case frames <- t:
			default:
				missed.add()
			}
		})
	}()
	out := newLines(w)
	for {
		select {
		case t := <-frames:
			if n := missed.take(); n > 0 {
				out.write(reply{Trace: &ferrule.Trace{Time: t.Time, Direction: "note", Note: fmt.Sprintf("%d frames came too fast to be shown", n)}})
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

// missed counts what was dropped.
type missed struct {
	mu sync.Mutex
	n  int
}

func (m *missed) add() {
	m.mu.Lock()
	m.n++
	m.mu.Unlock()
}

func (m *missed) take() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.n
	m.n = 0
	return n
}

// lines writes replies, one a line, at once.
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

// write writes a reply. That the reader has gone is seen by the context.
func (l *lines) write(r reply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	json.NewEncoder(l.w).Encode(r)
	http.NewResponseController(l.w).Flush()
}
