package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/device/transport/tcp"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestEventsOfNodes checks that agents and people on one node receive the notifications
// of a toy on another.
func TestEventsOfNodes(t *testing.T) {
	servers := natscluster.Start(t, natscluster.Options{Size: 1})
	toys, _ := startToys(t, 1, "notifies")
	cfg := testConfig()
	joins(&cfg, "a", servers)
	cfg.Listen = "127.0.0.1:0"
	a := withToys(t, cfg)
	joins(&cfg, "b", servers)
	b := withToys(t, cfg, tcp.Board{Address: toys.Addrs()[0], Name: "toy"})
	b.online("toy")
	a.online("toy")
	people := watches(t, a.data, "toy")
	conn, err := nats.Connect(servers.URLs())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	subject, err := conn.SubscribeSync("ferrule." + cfg.ClusterConfig().Tenant + ".event.b.toy.notified")
	if err != nil || conn.Flush() != nil {
		t.Fatal(err)
	}
	for _, mcpVersion := range mcpVersions {
		agent := dialAgent(t, a, mcpVersion, "/mcp")
		agent.subscribes("toy", func() { a.lamp("toy") })
		if s := agent.state("toy"); len(s.Notifications) != 1 || string(s.Notifications[0].Params) != `{"newState":"idle","oldState":"connecting"}` {
			t.Errorf("%s reads %+v", agent.name, s)
		}
	}
	wait.For(t, "people at the other node see it", func() bool { return people.sees("toy", ferrule.Notified) })
	msg, err := subject.NextMsg(wait.Ample)
	if err != nil {
		t.Fatal(err)
	}
	var e ferrule.Event
	if err := json.Unmarshal(msg.Data, &e); err != nil || e.Device != "toy" || e.Node != "b" || e.Seq == 0 || e.Method != "notifications/state_changed" {
		t.Errorf("%s, %v", msg.Data, err)
	}
	for _, g := range []*testGateway{a, b} {
		heard := make(map[string]int)
		people := watches(t, g.data, "")
		wait.For(t, "it arrives", func() bool {
			b.lamp("toy")
			time.Sleep(200 * time.Millisecond)
			return people.sees("toy", ferrule.Notified)
		})
		people.mu.Lock()
		for _, e := range people.events {
			if heard[e.Time.String()]++; heard[e.Time.String()] > 1 || e.Node != "b" {
				t.Errorf("heard more than once, or from elsewhere: %+v", e)
			}
		}
		people.mu.Unlock()
	}
}
