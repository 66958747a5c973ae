package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/localca"
)

// serveHTTP serves agents, health and metrics until ctx ends.
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
	approvals := g.Agents.Guard(g.approvalPages())
	mux.Handle("/approvals", approvals)
	mux.Handle("/approvals/", approvals)
	g.handleOAuth(mux)
	if g.certificate != nil {
		mux.Handle("GET "+localca.RootPath, g.Agents.Guard(http.HandlerFunc(g.certificate.serveRoot)))
	}
	mux.Handle("/mcp", agents)
	mux.Handle("/mcp/", agents)
	g.handleMetadata(mux)
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
