// Package server is MCP to agents, over standard input and output and over
// Streamable HTTP, in both eras of the protocol.
//
//	POST /mcp ─▶ guard ─▶ era ─▶ view ─▶ tools/call ─▶ Resolve ─▶ the road
//	             host,           │       tools/list ─▶ List
//	             origin,         │       resources/*, prompts/*, completion/complete
//	             token,          └ the whole fleet at /mcp, one device at
//	             bounds            /mcp/devices/<id>
//
// The SDK speaks the protocol. Nothing that a device says reaches its registry
// of tools, which panics on what it does not like: lists are answered here, before
// it looks, and all calls, reads and prompts go by the one tool, the one resource and
// the one prompt that it knows. It has one Server for each view, so that who looks at
// one device hears of that one alone.
//
// What a device has of its own is asked for on the same road as its tools: its
// resources, its prompts, completions, and that it tells of changes. What it asks
// meanwhile goes to whoever called: rounds.go draws how.
//
// A panic is the error of the request that caused it, and of nothing else.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
)

// Config is what can be set about serving agents.
type Config struct {
	// Sessions is how many agents may be connected at once.
	Sessions int
	// Idle is how long a session without a request and without an open stream is
	// kept.
	Idle time.Duration
}

// DefaultConfig suits a few thousand agents.
func DefaultConfig() Config { return Config{Sessions: 4096, Idle: time.Hour} }

// Check tells what is wrong with the config.
func (c Config) Check() error {
	if c.Sessions < 1 {
		return fmt.Errorf("sessions: want at least 1, got %d", c.Sessions)
	}
	if c.Idle <= 0 {
		return fmt.Errorf("idle: want more than nothing, got %v", c.Idle)
	}
	return nil
}

// Parts is what the front is made of.
type Parts struct {
	Config  Config
	Catalog *catalog.Catalog
	// Handle is the road.
	Handle ferrule.Handler
	// Samples tells of what devices measure; nil if nobody does, and then agents cannot
	// subscribe to it.
	Samples Sampler
	// Tokens are those of which an agent must show one over HTTP; none if there
	// are none.
	Tokens *identity.Tokens
	// Ready waits until a list of tools is worth reading; nil if it always is.
	Ready   func(ctx context.Context)
	Version string
	Log     *slog.Logger
}

// Front serves agents.
type Server struct {
	parts    Parts
	sdkLog   *slog.Logger
	sessions *sessions
	replays  *replays
	claims   claims
	teller   *teller
	follows  *follows
	ears     *ears
	signals  *signals
	waiting  waiting

	// How long an agent may take to send a request, and to take a piece of an
	// answer.
	sendTime, takeTime time.Duration

	stop  context.Context // ends the calls under way
	halt  context.CancelFunc
	calls sync.WaitGroup

	mu    sync.Mutex
	views map[string]*view // by the ID of the device; the whole fleet has none
}

// New makes a front. It serves when Run runs.
func New(p Parts) *Server {
	f := &Server{
		parts: p, sessions: newSessions(), replays: newReplays(), teller: newTeller(p.Log), views: make(map[string]*view),
		sendTime: 30 * time.Second, takeTime: 10 * time.Second,
	}
	f.sdkLog = slog.New(quieter{p.Log.Handler()})
	f.stop, f.halt = context.WithCancel(context.Background())
	f.follows = f.newFollows()
	f.ears = &ears{samples: p.Samples, heard: f.measured, all: make(map[string]*ear)}
	f.signals = &signals{ask: f.askSignals, known: make(map[string]known)}
	f.waiting.runs, f.claims.all = make(map[string]*run), make(map[string][]*claim)
	f.viewAt("")
	return f
}

// farewell is how long calls that are under way are waited for in the end.
const farewell = 5 * time.Second

// Run tells agents of changes until ctx ends. Calls that are under way then have
// their contexts ended, and are waited for.
func (f *Server) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { f.sweep(ctx) })
	wg.Go(func() { f.follows.keep(ctx) })
	err := f.parts.Catalog.Run(ctx, f.tell)
	wg.Wait()
	f.mu.Lock()
	f.halt()
	f.mu.Unlock()
	over := make(chan struct{})
	go func() {
		f.calls.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(farewell):
		err = errors.Join(err, errors.New("calls of agents did not end in time"))
	}
	return err
}

// tell tells the agents that look at something of what has changed about it.
func (f *Server) tell() {
	for _, v := range f.allViews() {
		v.tell()
	}
	f.follows.again()
}

// callerKey is the context key of who is asking.
type callerKey struct{}

// caller is who is asking.
func caller(ctx context.Context) ferrule.Principal {
	if who, ok := ctx.Value(callerKey{}).(ferrule.Principal); ok {
		return who
	}
	return ferrule.Principal{Role: ferrule.Agent, Name: "local"}
}
