package stdio

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/lifecycle"
	"github.com/ferrulehq/ferrule/internal/testenv/meter"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestSamples checks that subscriptions move from one gateway to the next, and end.
func TestSamples(t *testing.T) {
	var s samples
	var first, second meter.Meter
	got := make(map[string]int)
	subscribe := func(device string) (stop func()) {
		return s.Samples(device, "heat", func(r ferrule.Reading) { got[r.Device]++ })
	}
	robot, lamp := meter.Reading("robot", "heat", 1), meter.Reading("lamp", "heat", 1)
	stopRobot := subscribe("robot")
	s.use(&first)
	stopLamp := subscribe("lamp")
	if first.Measure(robot) != 1 || first.Measure(lamp) != 1 {
		t.Error("the first gateway has no subscribers")
	}
	s.use(&second)
	if first.Subscribers() != 0 || second.Measure(robot) != 1 || second.Measure(lamp) != 1 {
		t.Errorf("the first has %d subscribers, the second %d", first.Subscribers(), second.Subscribers())
	}
	stopLamp()
	s.use(nil)
	if second.Subscribers() != 0 {
		t.Error("a gateway that ended has subscribers")
	}
	s.use(&first)
	if first.Subscribers() != 1 || first.Measure(robot) != 1 {
		t.Errorf("the first has %d subscribers", first.Subscribers())
	}
	stopRobot()
	if first.Subscribers() != 0 || len(s.subscriptions) != 0 || got["robot"] != 3 || got["lamp"] != 2 {
		t.Errorf("got %v, %d subscribers left", got, first.Subscribers())
	}
}

// connect connects the official client to a proxy. Updates of resources go to a channel.
func connect(t *testing.T, p *Proxy, version string) (*mcp.ClientSession, <-chan string) {
	t.Helper()
	agentIn, proxyOut := io.Pipe()
	proxyIn, agentOut := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.server.Stdio(ctx, proxyIn, proxyOut) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serving the agent: %v", err)
		}
	})
	updates := make(chan string, 1000)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { updates <- r.Params.URI },
	})
	session, err := client.Connect(context.Background(), &mcp.IOTransport{Reader: agentIn, Writer: agentOut}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return session, updates
}

// listed reports whether an agent sees a resource.
func listed(session *mcp.ClientSession, uri string) bool {
	list, err := session.ListResources(context.Background(), nil)
	return err == nil && slices.ContainsFunc(list.Resources, func(r *mcp.Resource) bool { return r.URI == uri })
}

// TestJoinedSignals checks that an agent of a process that has joined a gateway reads
// measurements and subscribes to them, in each version of MCP, and that the subscription
// survives a change of the gateway.
func TestJoinedSignals(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	const heat = "ferrule://devices/robot/signals/heat"
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			var m meter.Meter
			data := t.TempDir()
			stop := meter.Serve(t, data, &m)
			p := New(Parts{Catalog: catalog.DefaultConfig(), Agents: server.DefaultConfig(), Data: data, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() {
				ended <- lifecycle.Run(ctx, p.server.Run, func(ctx context.Context) error {
					for ctx.Err() == nil {
						if err := p.join(ctx); err != nil {
							return err
						}
						time.Sleep(10 * time.Millisecond)
					}
					return nil
				})
			}()
			t.Cleanup(func() {
				cancel()
				if err := <-ended; err != nil {
					t.Errorf("the proxy: %v", err)
				}
			})
			agent, updates := connect(t, p, version)
			wait.For(t, "the signal is listed", func() bool { return listed(agent, heat) })
			got, err := agent.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: heat})
			if err != nil || !strings.HasPrefix(got.Contents[0].Text, `{"signals":[{"name":"heat","value":21.5,"unit":"°C","time":"`) {
				t.Errorf("%+v, %v", got, err)
			}
			if err := agent.Subscribe(t.Context(), &mcp.SubscribeParams{URI: heat}); err != nil {
				t.Fatal(err)
			}
			measure := func() int { return m.Measure(meter.Reading("robot", "heat", 21.5)) }
			updated := func(when string) {
				t.Helper()
				for end := time.Now().Add(wait.Ample); ; {
					measure()
					select {
					case uri := <-updates:
						if uri != heat {
							t.Errorf("update of %s", uri)
						}
						return
					case <-time.After(20 * time.Millisecond):
					}
					if time.Now().After(end) {
						t.Fatalf("no update %s", when)
					}
				}
			}
			updated("after joining a gateway")
			stop()
			if n := measure(); n != 0 {
				t.Errorf("%d subscribers of a gateway that ended", n)
			}
			meter.Serve(t, data, &m)
			wait.For(t, "the next gateway has a subscriber", func() bool { return measure() == 1 })
			updated("after the gateway has changed")
			if err := agent.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: heat}); err != nil {
				t.Fatal(err)
			}
			wait.For(t, "nobody subscribes", func() bool { return measure() == 0 })
		})
	}
}
