package natscluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server is one server. Start, Stop and Kill must be called by the test's goroutine.
type Server struct {
	Name string

	t       testing.TB
	place   Place
	ports   ports
	store   string
	log     string // path
	command []string
	env     []string
	// encrypted reports whether it uses TLS.
	encrypted bool

	mu    sync.Mutex
	run   *exec.Cmd
	ended chan struct{} // closed when run has been waited for
}

func newServer(t testing.TB, dir, name string, place Place) (*Server, error) {
	p, err := takePorts(t, place)
	if err != nil {
		return nil, err
	}
	s := &Server{Name: name, t: t, place: place, ports: p, store: filepath.Join(dir, name), log: filepath.Join(dir, name+".log")}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", name, s.Log(4096))
		}
	})
	return s, nil
}

// variables returns the environment for the configuration.
func (s *Server) variables() []string {
	env := []string{
		"FERRULE_NATS_NAME=" + s.Name,
		"FERRULE_NATS_LISTEN=" + s.address(s.ports.client),
		"FERRULE_NATS_LEAF_LISTEN=" + s.address(s.ports.leaf),
		"FERRULE_NATS_CLUSTER_LISTEN=" + s.address(s.ports.cluster),
		"FERRULE_NATS_MONITOR=" + s.address(s.ports.monitor),
		"FERRULE_NATS_STORE=" + s.store,
	}
	for _, user := range []string{"ACME", "ACME_OPERATOR", "GLOBEX", "GLOBEX_OPERATOR"} {
		env = append(env, "FERRULE_NATS_"+user+"_PASSWORD="+Password)
	}
	return env
}

func (s *Server) address(port string) string { return net.JoinHostPort(s.place.Host, port) }

// URL returns the address for clients, with the operator of acme as the user.
func (s *Server) URL() string { return s.URLAs(operator) }

// URLAs is URL for another user, or without a user if empty.
func (s *Server) URLAs(user string) string { return s.url(user, s.ports.client) }

// LeafURL returns the address for leaf nodes, with the operator of acme as the user.
func (s *Server) LeafURL() string { return s.LeafURLAs(operator) }

// LeafURLAs is LeafURL for another user.
func (s *Server) LeafURLAs(user string) string { return s.url(user, s.ports.leaf) }

func (s *Server) url(user, port string) string {
	if user != "" {
		user += ":" + Password + "@"
	}
	return s.scheme() + user + s.address(port)
}

func (s *Server) scheme() string {
	if s.encrypted {
		return "tls://"
	}
	return "nats://"
}

// Start starts the server, or restarts it with the same ports and store. It does not wait
// until the server is healthy.
func (s *Server) Start() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run != nil {
		s.t.Fatalf("%s is already running", s.Name)
	}
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	run := exec.Command(s.command[0], s.command[1:]...)
	run.Env, run.Stdout, run.Stderr = s.env, log, log
	killWithParent(run)
	if err := run.Start(); err != nil {
		s.t.Fatalf("starting %s: %v", s.Name, err)
	}
	ended := make(chan struct{})
	s.run, s.ended = run, ended
	go func() {
		run.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.run = nil
		close(ended)
	}()
}

// Pid returns the process ID, or 0 if the server is not running.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return 0
	}
	return s.run.Process.Pid
}

// Running reports whether the process is running.
func (s *Server) Running() bool { return s.Pid() != 0 }

// Kill kills the server at once, like a power cut.
func (s *Server) Kill() { s.end((*os.Process).Kill) }

// Stop stops the server like systemd, and waits for it.
func (s *Server) Stop() { s.end(terminate) }

func (s *Server) end(signal func(*os.Process) error) {
	s.mu.Lock()
	run, ended := s.run, s.ended
	s.mu.Unlock()
	if run == nil {
		return
	}
	signal(run.Process)
	select {
	case <-ended:
	case <-time.After(timeout):
		run.Process.Kill()
		<-ended
	}
}

// WaitHealthy waits until the server is healthy.
func (s *Server) WaitHealthy() {
	s.t.Helper()
	var why error
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(pollInterval) {
		if why = s.Healthy(); why == nil {
			return
		}
	}
	s.t.Fatalf("%s does not become healthy: %v", s.Name, why)
}

// Healthy returns why the server is not healthy: it does not serve, or JetStream or a
// stream is not up to date.
func (s *Server) Healthy() error {
	var health struct{ Status, Error string }
	if err := s.get("/healthz", &health); err != nil {
		return err
	}
	if health.Status != "ok" {
		return fmt.Errorf("%s: %s %s", s.Name, health.Status, health.Error)
	}
	return nil
}

// Leader returns the name of the JetStream leader that this server knows. A single server
// leads itself.
func (s *Server) Leader() (string, error) {
	var js struct {
		Meta *struct{ Leader string } `json:"meta_cluster"`
	}
	if err := s.get("/jsz", &js); err != nil {
		return "", err
	}
	if js.Meta == nil {
		return s.Name, nil
	}
	return js.Meta.Leader, nil
}

// routes returns how many connections the server has to others.
func (s *Server) routes() (int, error) {
	var routes struct {
		Number int `json:"num_routes"`
	}
	err := s.get("/routez", &routes)
	return routes.Number, err
}

// Monitor returns the address of the monitoring port, such as http://127.0.0.1:8222.
func (s *Server) Monitor() string { return "http://" + s.address(s.ports.monitor) }

func (s *Server) get(path string, into any) error {
	client := http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	answer, err := client.Get(s.Monitor() + path)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return json.NewDecoder(answer.Body).Decode(into)
}

// Log returns the end of the server's log.
func (s *Server) Log(limit int) string {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	if len(text) > limit {
		text = text[len(text)-limit:]
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	return strings.TrimSpace(string(text))
}
