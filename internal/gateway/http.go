package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/ops/localca"
)

func (g *Gateway) listenHTTP() (err error) {
	if g.parts.Config.Listen == "" {
		return nil
	}
	if g.web, err = net.Listen("tcp", g.parts.Config.Listen); err != nil {
		return fmt.Errorf("%w; use --listen 127.0.0.1:0 for any free port", err)
	}
	g.web = g.Agents.Listener(g.web)
	if files := g.parts.Config.TLS; files != (config.TLS{}) {
		g.certificate, err = openCertificate(files, g.parts.Log)
	}
	return err
}

// Addr returns the address at which HTTP is served, or "" if it is not.
func (g *Gateway) Addr() string {
	if g.web == nil {
		return ""
	}
	return g.web.Addr().String()
}

// URL returns the URL at which HTTP is served, or "" if it is not. If it is served at all
// addresses, the URL has one that other machines can use.
func (g *Gateway) URL() string {
	if g.web == nil {
		return ""
	}
	url, err := baseURL("", g.web.Addr())
	if err != nil { // this machine has no network
		_, port, _ := net.SplitHostPort(g.web.Addr().String())
		url = "http://" + net.JoinHostPort("localhost", port)
	}
	if g.certificate != nil {
		url = "https" + strings.TrimPrefix(url, "http")
	}
	return url
}

// serveHTTP serves agents, the console, health and metrics until ctx ends.
func (g *Gateway) serveHTTP(ctx context.Context) error {
	mux := http.NewServeMux()
	agents := g.Agents.Handler()
	mux.Handle("GET /healthz", g.Agents.Guard(http.HandlerFunc(g.health)))
	if metrics := g.Telemetry.Handler(); metrics != nil {
		mux.Handle("GET /metrics", g.Agents.Protected(ferrule.ScopeMetrics, metrics))
	}
	for _, path := range []string{"/login", "/login/", "/logout"} {
		mux.Handle(path, g.Agents.Guard(g.People))
	}
	pages := g.Agents.Guard(g.Console)
	mux.Handle("/", pages)
	mux.Handle("/approvals", pages) // links are below it
	mux.Handle("/approvals/", g.Agents.Guard(g.approvalPages()))
	g.handleOAuth(mux)
	if g.certificate != nil {
		mux.Handle("GET "+localca.RootPath, g.Agents.Guard(http.HandlerFunc(g.certificate.serveRoot)))
	}
	mux.Handle("/mcp", agents)
	mux.Handle("/mcp/", agents)
	g.handleMetadata(mux)
	g.handleCard(mux)
	web := &http.Server{
		Handler:           mux,
		ConnContext:       server.ConnContext,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(g.parts.Log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { web.Close() })
	defer stop()
	if err := g.certificate.serve(web, g.web); ctx.Err() == nil {
		return fmt.Errorf("serving HTTP: %w", err)
	}
	return nil
}

// health serves /healthz. The gateway is failing if its journal cannot be written:
// then it refuses every call that changes something. Why something fails is not for
// everybody: it may name files and servers. The log and the status tool say it.
func (g *Gateway) health(w http.ResponseWriter, _ *http.Request) {
	state := struct {
		Status  string                `json:"status"`
		Journal string                `json:"journal"`
		Cluster string                `json:"cluster"`
		Stopped bool                  `json:"stopped,omitempty"` // who and why is not for everybody
		Devices map[ferrule.State]int `json:"devices"`
	}{"ok", "ok", "ok", g.Stop.Stopped().String() != "", map[ferrule.State]int{ferrule.StateOnline: 0, ferrule.StateOffline: 0, ferrule.StateReleased: 0}}
	for _, dev := range g.Fleet.Devices() {
		state.Devices[dev.State]++
	}
	code := http.StatusOK
	if err := g.Journal.Health(); err != nil {
		state.Status, state.Journal = "failing", "failing"
		code = http.StatusServiceUnavailable
	}
	if s := g.Cluster.State(); !s.Working {
		state.Cluster = "failing"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(state)
}
