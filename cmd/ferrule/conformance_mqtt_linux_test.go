package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"github.com/ferrulehq/ferrule/internal/agent/mqttserver"
	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
	"github.com/ferrulehq/ferrule/internal/mqttclient/mcptopics"
	"github.com/ferrulehq/ferrule/internal/testenv/mcp/fixtures"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// TestConformanceOverMQTT runs the official suite as TestConformance does, with the device
// on a broker: each request goes through both roles of MCP over MQTT. Between them, the
// version is always that of a session.
func TestConformanceOverMQTT(t *testing.T) {
	dir := mcpTools(t)
	broker := mosquitto.Start(t, mosquitto.Options{})
	device := fixtures.New(mcpserver.Config{})
	go fixtures.Watch(t.Context(), device)
	offerThing(t, broker.URL, device)
	g := startGateway(t, nil, withBroker(broker.URL), allowQuestions(t, "thing-conformance"), unmeasured)
	wait.For(t, "the device is found", func() bool { return g.device("thing-conformance").ID != "" })
	if err := g.Dock.Adopt("thing-conformance"); err != nil {
		t.Fatal(err)
	}
	g.online("thing-conformance")
	go g.acceptAll(t, "thing-conformance")
	results := t.TempDir()
	out, err := node(dir, suite, "server", "--url", g.url("/mcp/devices/thing-conformance"), "--requirements", legacy, "-o", results).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	scenarios, checks := countChecks(t, results)
	t.Logf("%d scenarios, %d checks passed, %d failed, %d warnings", scenarios, checks["SUCCESS"], checks["FAILURE"], checks["WARNING"])
	if checks["SUCCESS"] < 82 || checks["FAILURE"] > 0 || checks["WARNING"] > 0 {
		t.Errorf("%+v\n%s", checks, out)
	}
}

// offerThing puts a device on a broker until the test ends.
func offerThing(t *testing.T, broker string, d *mcpserver.Device) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := mqttclient.DefaultConfig()
	cfg.URL = broker
	offer, err := mqttserver.New(mqttserver.Parts{
		Config: mqttserver.Config{Broker: "test", Server: mcptopics.Server{ID: "thing", Name: "thing/conformance"}, Client: cfg},
		Server: socketServer("ws://" + ln.Addr().String()), Check: server.CheckMessage, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- d.ServeWebSocket(ctx, ln) }()
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

// socketServer is the URL of a server over WebSockets, which serves the sessions of MCP
// over MQTT.
type socketServer string

func (s socketServer) Serve(ctx context.Context, _ ferrule.Principal, _ int, in io.ReadCloser, out io.WriteCloser) error {
	conn, _, _, err := ws.Dial(ctx, string(s))
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	go func() {
		defer conn.Close()
		lines := bufio.NewScanner(in)
		lines.Buffer(nil, server.MaxLine)
		for lines.Scan() && wsutil.WriteClientText(conn, lines.Bytes()) == nil {
		}
	}()
	for {
		text, err := wsutil.ReadServerText(conn)
		if err != nil {
			return nil // the session has ended
		}
		if _, err := out.Write(append(text, '\n')); err != nil {
			return err
		}
	}
}
