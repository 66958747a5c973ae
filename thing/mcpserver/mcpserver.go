// Package mcpserver makes a device that is written with thing an MCP server. It serves
// Streamable HTTP and WebSockets in all protocol versions, and announces the device in
// the local network.
//
//	board := thing.New("greenhouse", "1.0.0")
//	thing.Tool(board, "water", "Water for some seconds", …)
//	device := mcpserver.New(board, mcpserver.Config{Listen: ":8080", Announce: true})
//	device.Resource(mcpserver.Resource{URI: "greenhouse://log"}, …)
//	err := device.Run(ctx)
//
// All calls take the same path. The lane lets one call through at a time, because that
// is how hardware works:
//
//	POST ─▶ guard ─▶ token ─▶ rate ─▶ mcphttp ─▶ SDK ─▶ lane ─▶ group ─▶ before ─▶ cache ─▶ tool ─▶ after
//	WebSocket ─▶ guard ─▶ token ─▶ rate (per message) ─▶ SDK ─▶ ...
//
// The error of a tool that did not try has the key Untried in its _meta, so that the
// caller knows that nothing has moved.
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
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/thing"
)

// Config configures a device. A field that is not set has the default that its comment
// names.
type Config struct {
	// Listen is the address of HTTP. Default: ":8080".
	Listen string
	// WebSocket is the address of WebSockets. Default: none.
	WebSocket string
	// Announce announces the device in the local network by multicast DNS, on the
	// given Interfaces or on all. A device that listens on a loopback address is not
	// announced.
	Announce   bool
	Interfaces []string
	// Path is the path of MCP. Default: "/mcp".
	Path string
	// Hosts are additional host names of the device. IP addresses, names without a
	// dot and names in .local are always accepted: a web page cannot have those. On a
	// loopback address, localhost and loopback addresses are.
	Hosts []string

	// Title is the device's name for people, Website a page about it.
	Title, Website string
	// Icons are icons of the device.
	Icons []Icon
	// Instructions tell a model how to use the device.
	Instructions string

	// Tokens are the bearer tokens that callers authenticate with. Without any,
	// everybody may call. New panics if one is empty.
	Tokens []string
	// Rate is the limit of requests per second, and Burst how many may come at once
	// after a pause. Default: no limit.
	Rate  float64
	Burst int
	// Sessions is the limit of connected clients. Default: 64.
	Sessions int
	// Idle is how long a session without a request and without an open stream is
	// kept. Default: 30 minutes.
	Idle time.Duration
	// TaskAfter is how long a call of a client that knows tasks takes until it becomes a
	// task. Default: 5 seconds.
	TaskAfter time.Duration
	// CacheEntries and CacheBytes are the limits of the cache. Default: 256 results and 4 MiB.
	CacheEntries, CacheBytes int
	// Log receives errors, and the URLs that the device is served at. Default: none.
	Log *slog.Logger
}

// Icon is an icon of a device, a resource or a prompt.
type Icon struct {
	// URL is an https: or data: URL.
	URL  string
	MIME string
	// Sizes are sizes like 48x48, or "any".
	Sizes []string
	// Theme is light or dark, or empty for both.
	Theme string
}

// Device is a device that is an MCP server.
type Device struct {
	*thing.Device
	config Config
	server *mcp.Server
	http   *mcphttp.Handler
	offer  sync.Once // of the tools
	key    []byte    // signs the states that callers keep

	before []func(context.Context, string, json.RawMessage) error
	after  []func(context.Context, Outcome)
	bucket *bucket // nil without a rate limit

	statistics    statistics
	cache         *cache
	groups        *groups
	lane          *lane
	halting       *halt
	spent         *spentStates
	subscriptions *subscriptions
	completers    *completers
	tasks         *tasks
	slow          map[string]slowness
	detached      chan struct{} // has an element for each call without a turn
}

// New makes a device an MCP server. It serves while Run runs.
func New(d *thing.Device, config Config) *Device {
	config = config.withDefaults()
	s := &Device{
		Device: d, config: config, key: make([]byte, 32),
		cache: newCache(config.CacheEntries, config.CacheBytes), groups: newGroups(), lane: newLane(), halting: newHalt(), spent: newSpentStates(),
		subscriptions: newSubscriptions(), completers: newCompleters(),
		tasks: newTasks(), slow: make(map[string]slowness), detached: make(chan struct{}, maxTasks),
	}
	rand.Read(s.key)
	if config.Rate > 0 {
		s.bucket = newBucket(config.Rate, max(config.Burst, 1))
	}
	if slices.Contains(config.Tokens, "") {
		panic("mcpserver: Config.Tokens has an empty token")
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
			//lint:ignore SA1019 versions up to 2025-11-25 have nothing else
			Logging:    &mcp.LoggingCapabilities{},
			Extensions: map[string]any{tasksExtension: map[string]any{}},
		},
	})
	s.addTaskMethods()
	s.http = s.newHandler()
	s.server.AddReceivingMiddleware(s.recoverPanics, s.http.Track, s.withTasks)
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
	if c.TaskAfter == 0 {
		c.TaskAfter = 5 * time.Second
	}
	if c.CacheEntries == 0 {
		c.CacheEntries = 256
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = 4 << 20
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

// Run listens, announces the device if configured, and serves until ctx ends; it then
// returns nil. A failed announcement is logged, and the device is served anyway.
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
	d.config.Log.Info("serving MCP at " + strings.Join(urls("http", ln.Addr(), d.config.Path), " and "))
	if sockets != nil {
		d.config.Log.Info("serving WebSockets at " + strings.Join(urls("ws", sockets.Addr(), ""), " and "))
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
				d.config.Log.Error("mDNS announcement failed", "err", err)
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

// maxURLs is how many URLs are logged.
const maxURLs = 3

// urls returns the URLs of a listener. One that listens on all addresses has a URL for
// each that others can reach, and for the loopback address.
func urls(scheme string, addr net.Addr, path string) (all []string) {
	at := addr.(*net.TCPAddr)
	hosts := []net.IP{at.IP}
	if at.IP.IsUnspecified() {
		hosts = []net.IP{net.IPv4(127, 0, 0, 1)}
		known, _ := net.InterfaceAddrs() // without them, the loopback address is enough
		for _, a := range known {
			if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() && len(hosts) < maxURLs {
				hosts = append(hosts, n.IP)
			}
		}
	}
	for _, host := range hosts {
		all = append(all, scheme+"://"+net.JoinHostPort(host.String(), strconv.Itoa(at.Port))+path)
	}
	return all
}

// recoverPanics is a receiving middleware. A panic becomes the error of the request
// that caused it.
func (d *Device) recoverPanics(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (result mcp.Result, err error) {
		defer func() {
			if r := recover(); r != nil {
				d.config.Log.Error("request panicked", "method", method, "err", fmt.Sprint(r))
				result, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("%s panicked: %v", method, r)}
			}
		}()
		if read, ok := req.(*mcp.ReadResourceRequest); ok && !quotable(read.Params.URI) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Resource not found"}
		}
		return next(ctx, method, req)
	}
}

// quotable reports whether the SDK can report that a URI is not found: it quotes the
// URI as Go does, and ends the session if the result is not valid JSON.
func quotable(uri string) bool { return json.Valid(strconv.AppendQuote(nil, uri)) }
