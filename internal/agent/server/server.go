// Package server serves MCP to agents, over standard input and output and over
// Streamable HTTP, in all protocol versions.
//
//	POST /mcp ─▶ Guard, token ─▶ mcphttp ─▶ SDK ─▶ view.receive
//	                                                 ├ tools/call ──────▶ catalog ─▶ pipeline
//	                                                 │  └ slow ─────────▶ tasks
//	                                                 ├ tasks/… ─────────▶ tasks
//	                                                 ├ tools/list ──────▶ catalog
//	                                                 ├ resources, prompts, completion
//	                                                 └ subscriptions ───▶ notify
//
// A view is what agents see at one address: the whole fleet at /mcp, one device at
// /mcp/devices/<id>. Each view has a server of the SDK, which decodes and encodes
// messages. Its registry of tools, resources and prompts stays empty, because it
// panics at input it does not accept: a receiving middleware answers all requests that
// concern devices.
//
// Most calls of tools pass the SDK by: direct.go describes how. A device may ask the caller
// something during a call: input.go describes how. A call may outlive its request: tasks.go
// describes how.
//
// A panic becomes the error of the request that caused it.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/agent/notify"
	"github.com/ferrulehq/ferrule/internal/agent/tasks"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// Config configures a Server.
type Config struct {
	// Sessions is the limit of agents that are connected at the same time, and
	// SessionsPerAgent the one of the sessions of one token.
	Sessions, SessionsPerAgent int
	// Connections is the limit of HTTP connections.
	Connections int
	// Idle is how long a session without a request and without an open stream is kept.
	Idle time.Duration
	// Hosts are names under which a reverse proxy on this machine serves the gateway.
	Hosts []string
}

// DefaultConfig suits a few thousand agents.
func DefaultConfig() Config {
	return Config{Sessions: 4096, SessionsPerAgent: 512, Connections: 10_000, Idle: time.Hour}
}

// Check returns an error if a setting is invalid.
func (c Config) Check() error {
	if c.Sessions < 1 {
		return fmt.Errorf("sessions: must be at least 1, got %d", c.Sessions)
	}
	if c.SessionsPerAgent < 1 {
		return fmt.Errorf("sessions_per_agent: must be at least 1, got %d", c.SessionsPerAgent)
	}
	if c.Connections < 1 {
		return fmt.Errorf("connections: must be at least 1, got %d", c.Connections)
	}
	if c.Idle <= 0 {
		return fmt.Errorf("idle: must be greater than 0, got %v", c.Idle)
	}
	for _, host := range c.Hosts {
		if len(host) > maxHostname || !hostname.MatchString(host) {
			return fmt.Errorf("hosts: must be names such as ferrule.example.com, without a port, got %q", ferrule.MaskURL(host))
		}
	}
	return nil
}

// hostname matches a DNS name or an IPv4 address of any length: a limit in the pattern would
// take the start of the program 2 ms.
var hostname = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)

// maxHostname is the length of the longest DNS name.
const maxHostname = 253

// Sampler reports what devices measure.
type Sampler = notify.Sampler

// Parts is what a Server works with.
type Parts struct {
	Config  Config
	Catalog *catalog.Catalog
	// Handle is the pipeline.
	Handle ferrule.Handler
	// Samples reports what devices measure; nil if agents cannot subscribe to signals.
	Samples Sampler
	// Verify checks the credentials that agents send over HTTP.
	Verify identity.Verifier
	// Open reports whether agents on this machine need no credential over HTTP, and until
	// when. If it is nil, they do not.
	Open func() (valid context.Context, open bool)
	// URL is the origin at which callers reach the gateway; empty if each one's own address
	// will do.
	URL string
	// AuthServers returns the issuers of authorization servers from which agents get tokens
	// for an origin; nil if there is none.
	AuthServers func(origin string) []string
	// Record records a credential that was refused; it may be nil.
	Record func(who ferrule.Principal, event ferrule.AccessEvent, from, message string, refused ferrule.Code)
	// SessionEnded is called with the Session of calls whose agent is gone, perhaps more
	// than once; it may be nil.
	SessionEnded func(session string)
	// Tasks keep calls that outlive their requests; nil if calls do not.
	Tasks *tasks.Tasks
	// Panels are the gateway's own views.
	Panels []Panel
	// Ready waits until the catalog has what an agent sees; nil if it always has.
	Ready   func(ctx context.Context, client ferrule.Client)
	Version string
	Log     *slog.Logger
}

// Server serves agents.
type Server struct {
	parts     Parts
	sdkLog    *slog.Logger
	http      *mcphttp.Handler
	notifier  *notify.Notifier
	signals   *signalNames
	pending   pendingCalls
	running   runningCalls
	taskCalls atomic.Uint64
	wrong     *ratelimit.Keyed[netip.Prefix] // wrong tokens
	sessions  sessions
	agents    agents
	hosts     atomic.Pointer[[]string]
	hostname  string // of this machine; empty if it is not known

	stop  context.Context // ends the calls under way
	halt  context.CancelFunc
	calls sync.WaitGroup

	skills  skillCache
	metas   requestMetas
	info    json.RawMessage // implementation
	onlySDK bool

	mu    sync.Mutex
	views map[string]*view // by device ID; empty for the whole fleet
}

// eventLimits are for agents that reconnect to a call.
var eventLimits = mcphttp.EventLimits{Total: 8 << 20, Session: 2 << 20, Age: 2 * time.Minute}

// New returns a server. It serves while Run runs.
func New(p Parts) *Server {
	s := &Server{parts: p, sdkLog: slog.New(quieter{p.Log.Handler()}), views: make(map[string]*view)}
	if p.Open == nil {
		s.parts.Open = func() (context.Context, bool) { return context.Background(), true }
	}
	if p.AuthServers == nil {
		s.parts.AuthServers = func(string) []string { return nil }
	}
	s.SetHosts(p.Config.Hosts)
	s.hostname, _ = os.Hostname()
	s.stop, s.halt = context.WithCancel(context.Background())
	var err error
	if s.info, err = json.Marshal(s.implementation()); err != nil { // not with this type
		panic(err)
	}
	s.http = mcphttp.New(mcphttp.Config{
		Direct: s.serveDirect,
		Server: s.serverFor, Servers: s.servers, MaxSessions: p.Config.Sessions, Idle: p.Config.Idle,
		Left: s.sessionLeft, Check: s.check, Prepare: withDropped,
		Caller: agentName, MaxPerCaller: p.Config.SessionsPerAgent,
		Events: eventLimits, AnyHost: true, SSE: true, Log: s.sdkLog, // Guard checks the host
	})
	s.notifier = notify.New(notify.Config{Handle: s.handle, Samples: p.Samples, Device: s.device, Log: p.Log})
	s.signals = &signalNames{ask: s.askSignals, known: make(map[string]knownSignals)}
	s.pending.calls = make(map[string]*pendingCall)
	s.wrong = newWrongTokens()
	s.viewAt("")
	return s
}

// stopTimeout is how long Run waits for calls under way after ctx has ended.
const stopTimeout = 5 * time.Second

// Run notifies agents of changes until ctx ends. It then cancels the calls under way
// and waits for them.
func (s *Server) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { s.http.Run(ctx) })
	wg.Go(func() { s.notifier.Run(ctx) })
	wg.Go(func() { s.dropViews(ctx) })
	err := s.parts.Catalog.Run(ctx, s.changed)
	wg.Wait()
	s.mu.Lock()
	s.halt()
	s.mu.Unlock()
	over := make(chan struct{})
	go func() {
		s.calls.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(stopTimeout):
		err = errors.Join(err, fmt.Errorf("calls of agents did not end within %v", stopTimeout))
	}
	return err
}

// changed notifies agents after the catalog or the signals of devices have changed.
func (s *Server) changed() {
	for _, v := range s.allViews() {
		v.listsChanged()
	}
	s.notifier.DevicesChanged()
}

// PolicyChanged notifies agents after the policy was replaced, and ends subscriptions to
// what is now hidden.
func (s *Server) PolicyChanged() {
	for _, v := range s.allViews() {
		v.listsChanged()
		for _, method := range []string{notify.ToolsChanged, notify.ResourcesChanged, notify.PromptsChanged} {
			v.group.ListChanged(method)
		}
	}
	s.notifier.Recheck(s.maySubscribe)
}

// maySubscribe reports whether a caller may be told about changes of a topic.
func (s *Server) maySubscribe(who ferrule.Principal, t notify.Topic) bool {
	if t.Watch != "" { // the tool that reads it has decided
		return true
	}
	see := s.parts.Catalog.As(who)
	if t.URI != "" {
		return see.Shows(t.Device, ferrule.Subscribe, t.URI)
	}
	_, _, ok := see.Lookup(t.Device)
	return ok
}

// Sessions returns the number of connected agents: their sessions, and streams that need none.
func (s *Server) Sessions() int { return s.http.Sessions() }

// device returns a device, unless no agent may know it.
func (s *Server) device(id string) (*ferrule.Device, bool) {
	dev, _, ok := s.parts.Catalog.Lookup(id)
	return dev, ok
}

// currentID returns the ID of a device that is given by its ID or an earlier one. An unknown
// ID is returned as it is.
func (s *Server) currentID(id string) string {
	if dev, ok := s.device(id); ok {
		return dev.ID
	}
	return id
}

// callerKey is the context key of the principal that makes a request. Its name is empty if
// the agent names itself.
type callerKey struct{}

// caller returns the principal that makes a request.
func caller(ctx context.Context) ferrule.Principal {
	who, ok := ctx.Value(callerKey{}).(ferrule.Principal)
	if !ok { // HTTP without a token, which only a loopback address serves
		who = ferrule.Principal{Role: ferrule.Agent, Auth: ferrule.AuthLoopback}
	}
	if who.Name == "" {
		who.Name = identity.SelfNamed(client(ctx).Name)
	}
	return who
}

// seenBy returns the catalog as the caller of a request sees it.
func (s *Server) seenBy(ctx context.Context) catalog.View { return s.parts.Catalog.As(caller(ctx)) }
