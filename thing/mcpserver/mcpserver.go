// Package mcpserver has a device that is written with thing be an MCP server: what
// is declared once is there over Streamable HTTP and over a WebSocket, in both eras
// of the protocol, and is found by its name in the local network.
//
//	board := thing.New("greenhouse", "1.0.0")
//	thing.Tool(board, "water", "Water for some seconds", …)
//	device := mcpserver.New(board, mcpserver.Config{Listen: ":8080", Announce: true})
//	device.Resource(mcpserver.Resource{URI: "greenhouse://log"}, …)
//	err := device.Run(ctx)
//
// A call goes one way, and one call at a time, for that is how hardware works:
//
//	POST ─▶ guard ─▶ token ─▶ rate ─▶ era ─▶ lane ─▶ group ─▶ before ─▶ cache ─▶ tool ─▶ after
//	socket ─▶ the same, message by message
//
// The SDK speaks the protocol. The error of a tool that did not try says so, under
// Untried: whoever calls can tell whether something may have moved.
package mcpserver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/thing"
)

// Config is how a device is served. What is left out has the value that is named
// with it.
type Config struct {
	// Listen is the address of HTTP; ":8080".
	Listen string
	// WebSocket is the address of WebSockets; none.
	WebSocket string
	// Announce has the device made known in the local network by multicast DNS, on
	// the Interfaces that are named, or on all; unless it listens on this machine
	// only.
	Announce   bool
	Interfaces []string
	// Path is where MCP is; "/mcp".
	Path string
	// Hosts are further names by which the device may be asked. Addresses, names
	// without a dot and names in .local need not be named: a web page cannot have
	// those.
	Hosts []string

	// Title is a name of the device for people to read, Website a page about it.
	Title, Website string
	// Icons are pictures of the device.
	Icons []Icon
	// Instructions tell a model how the device is meant to be used.
	Instructions string

	// Tokens are those of which a caller must show one, as a Bearer token; none if
	// everybody may call. An empty one is a mistake.
	Tokens []string
	// Rate is how many requests may come in a second, and Burst how many at once
	// after a pause; as many as like.
	Rate  float64
	Burst int
	// Sessions is how many programs may be connected at once; 64.
	Sessions int
	// Idle is how long a session is kept that asks for nothing and listens to
	// nothing; half an hour.
	Idle time.Duration
	// Log is where trouble is told; nowhere.
	Log *slog.Logger
}

// Icon is a picture for people to know something by.
type Icon struct {
	// URL is where it is: https: or data:.
	URL  string
	MIME string
	// Sizes are like 48x48, or any.
	Sizes []string
	// Theme is light or dark; empty if it suits both.
	Theme string
}

// Device is a device that is an MCP server.
type Device struct {
	*thing.Device
	config Config
	server *mcp.Server
	http   *mcphttp.Handler
	offer  sync.Once // of the tools
	key    []byte    // seals what callers keep for us

	before []func(context.Context, string, json.RawMessage) error
	after  []func(context.Context, Outcome)
	bucket *bucket // nil if requests may come as fast as they like

	cache         *cache
	groups        *groups
	lane          *lane
	halting       *halt
	spent         *spentStates
	subscriptions *subscriptions
	completers    *completers
}

// New makes a device an MCP server. It serves when Run runs.
func New(d *thing.Device, config Config) *Device {
	config = config.withDefaults()
	s := &Device{
		Device: d, config: config, key: make([]byte, 32),
		cache: newCache(), groups: newGroups(), lane: newLane(), halting: newHalt(), spent: newSpentStates(),
		subscriptions: newSubscriptions(), completers: newCompleters(),
	}
	rand.Read(s.key)
	if config.Rate > 0 {
		s.bucket = newBucket(config.Rate, max(config.Burst, 1))
	}
	if slices.Contains(config.Tokens, "") {
		panic("mcpserver: a token is empty")
	}
	s.server = mcp.NewServer(&mcp.Implementation{
		Name: d.Name(), Version: d.Version(), Title: config.Title, WebsiteURL: config.Website, Icons: icons(config.Icons),
	}, &mcp.ServerOptions{
		Instructions:       config.Instructions,
		SubscribeHandler:   s.subscribe,
		UnsubscribeHandler: s.unsubscribe,
		CompletionHandler:  s.complete,
		Logger:             slog.New(slog.DiscardHandler),
		Capabilities: &mcp.ServerCapabilities{
			Tools: &mcp.ToolCapabilities{ListChanged: true},
			//lint:ignore SA1019 callers of the older era know nothing else
			Logging: &mcp.LoggingCapabilities{},
		},
	})
	s.http = s.newHandler()
	s.server.AddReceivingMiddleware(s.survive, s.http.Track)
	return s
}

func (c Config) withDefaults() Config {
	if c.Listen == "" {
		c.Listen = ":8080"
	}
	if c.Path == "" {
		c.Path = "/mcp"
	}
	if c.Sessions == 0 {
		c.Sessions = 64
	}
	if c.Idle == 0 {
		c.Idle = 30 * time.Minute
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func icons(all []Icon) []mcp.Icon {
	var list []mcp.Icon
	for _, i := range all {
		list = append(list, mcp.Icon{Source: i.URL, MIMEType: i.MIME, Sizes: i.Sizes, Theme: mcp.IconTheme(i.Theme)})
	}
	return list
}

// Run listens, makes the device known if it is to be, and serves until ctx ends; it
// then returns nil. A network that cannot be told of the device keeps nobody else from
// it.
func (d *Device) Run(ctx context.Context) error {
	ln, port, err := listen(d.config.Listen)
	if err != nil {
		return err
	}
	var sockets net.Listener
	socketPort := 0
	if d.config.WebSocket != "" {
		if sockets, socketPort, err = listen(d.config.WebSocket); err != nil {
			ln.Close()
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	ended := make(chan error, 2)
	wg.Go(func() { defer cancel(); ended <- d.Serve(ctx, ln) })
	if sockets != nil {
		wg.Go(func() { defer cancel(); ended <- d.ServeWebSocket(ctx, sockets) })
	}
	if d.config.Announce && !ln.Addr().(*net.TCPAddr).IP.IsLoopback() {
		wg.Go(func() {
			if err := d.Announce(ctx, port, socketPort); err != nil {
				d.config.Log.Error("the local network is not told of the device", "err", err)
			}
		})
	}
	wg.Wait()
	close(ended)
	for e := range ended {
		err = errors.Join(err, e)
	}
	return err
}

func listen(address string) (ln net.Listener, port int, err error) {
	if ln, err = net.Listen("tcp", address); err != nil {
		return nil, 0, fmt.Errorf("listening: %w", err)
	}
	return ln, ln.Addr().(*net.TCPAddr).Port, nil
}

// survive makes a panic the error of the request that caused it, and of nothing
// else.
func (d *Device) survive(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (result mcp.Result, err error) {
		defer func() {
			if r := recover(); r != nil {
				d.config.Log.Error("a request panicked", "method", method, "err", fmt.Sprint(r))
				result, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("%s panicked: %v", method, r)}
			}
		}()
		if read, ok := req.(*mcp.ReadResourceRequest); ok && !tellable(read.Params.URI) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Resource not found"}
		}
		return next(ctx, method, req)
	}
}

// tellable tells whether the SDK can say that an address is not found: it quotes it
// as Go does, and ends the session when that is no JSON.
func tellable(uri string) bool { return json.Valid(strconv.AppendQuote(nil, uri)) }
