package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// serveWeb serves HTTP until ctx ends.
func (g *gateway) serveWeb(ctx context.Context) error {
	mux := http.NewServeMux()
	agents := g.agents.Handler()
	mux.Handle("GET /healthz", server.Guard(http.HandlerFunc(g.health)))
	if metrics := g.observe.Handler(); metrics != nil {
		mux.Handle("GET /metrics", g.agents.Protected(metrics))
	}
	mux.Handle("/mcp", agents)
	mux.Handle("/mcp/", agents)
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       5 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(g.web); ctx.Err() == nil {
		return fmt.Errorf("serving HTTP: %w", err)
	}
	return nil
}

// health tells whether the gateway can do its work: with a journal that cannot
// be written, nothing may be changed.
func (g *gateway) health(w http.ResponseWriter, _ *http.Request) {
	state := struct {
		Status  string                `json:"status"`
		Journal string                `json:"journal"`
		Bus     string                `json:"bus"`
		Devices map[ferrule.State]int `json:"devices"`
	}{"ok", "ok", "ok", map[ferrule.State]int{ferrule.StateOnline: 0, ferrule.StateOffline: 0, ferrule.StateReleased: 0}}
	for _, dev := range g.fleet.Devices() {
		state.Devices[dev.State]++
	}
	code := http.StatusOK
	if err := g.journal.Health(); err != nil {
		state.Status, state.Journal = "failing", err.Error()
		code = http.StatusServiceUnavailable
	}
	if s := g.bus.State(); !s.Working {
		state.Bus = s.Why
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(state)
}
