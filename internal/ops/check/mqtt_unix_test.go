//go:build unix

package check_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/agent/mqttserver"
	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
	"github.com/ferrulehq/ferrule/internal/mqttclient/mcptopics"
	"github.com/ferrulehq/ferrule/internal/ops/check"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
)

// TestBroker checks an MCP server on a real broker, by its ID and by its name. One that does not
// exist is an error that names those that do.
func TestBroker(t *testing.T) {
	slow(t)
	b := mosquitto.Start(t, mosquitto.Options{})
	offerMCP(t, b)
	for _, name := range []string{"gateway-1", "ferrule/home"} {
		var report *check.Report
		var err error
		for range 20 { // it may not be announced yet
			if report, err = check.Run(t.Context(), target(t, b.URL+"/"+name), check.Options{}); err == nil {
				break
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		judge(t, report, nil, []string{"robot__look"})
	}
	_, err := check.Run(t.Context(), target(t, b.URL+"/lamp"), check.Options{})
	if err == nil || !strings.Contains(err.Error(), "only gateway-1") {
		t.Errorf("got %v", err)
	}
}

// offerMCP offers a device on a broker until the test ends.
func offerMCP(t *testing.T, b *mosquitto.Broker) {
	t.Helper()
	devices := catalog.New(catalog.DefaultConfig())
	devices.Put(&ferrule.Device{ID: "robot", Kind: "k", Model: "board", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted},
		&ferrule.Manifest{Model: "board", Tools: []ferrule.Tool{{Name: "look", Effect: ferrule.Reads}, {Name: "move", Effect: ferrule.Changes}}})
	handle := func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		return &ferrule.Result{Value: []byte(`{"seen":true}`)}, nil
	}
	agents := server.New(server.Parts{Config: server.DefaultConfig(), Catalog: devices, Handle: handle, Version: "1", Log: slog.New(slog.DiscardHandler)})
	cfg := mqttclient.DefaultConfig()
	cfg.URL, cfg.RetryMin, cfg.RetryMax = b.URL, 10*time.Millisecond, 100*time.Millisecond
	offer, err := mqttserver.New(mqttserver.Parts{
		Config: mqttserver.Config{Broker: "home", Server: mcptopics.Server{ID: "gateway-1", Name: "ferrule/home"}, Description: "a board", Client: cfg},
		Server: agents, Check: server.CheckMessage, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- agents.Run(ctx) }()
	go func() { ended <- offer.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}
