package cluster

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/cluster/clustertest"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// eventLog records the events of a listener.
type eventLog struct {
	mu  sync.Mutex
	all []string
}

func (s *testNode) listen(only ...ferrule.EventType) (e *eventLog, stop func()) {
	e = &eventLog{}
	stop = s.cluster.Listen(func(event ferrule.Event) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.all = append(e.all, strings.TrimSpace(fmt.Sprintf("%s.%s.%s %s", event.Node, event.Device, event.Type, event.Params)))
	}, only...)
	return e, stop
}

func (e *eventLog) events() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

func (e *eventLog) expect(t *testing.T, want ...string) {
	t.Helper()
	for end := time.Now().Add(wait.Ample); len(e.events()) < len(want) && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	if got := e.events(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// say sends an event of a device of the node.
func (s *testNode) say(id, params string) {
	s.cluster.AddDeviceEvent(ferrule.Event{Time: time.Now(), Type: ferrule.Notified, Device: id, Method: "state", Params: []byte(params)})
}

// TestListen checks that a listener gets the events of all nodes, each once and in order,
// until it stops.
func TestListen(t *testing.T) {
	cfg := clustertest.OneServer(t)
	a, b := node(t, "a", cfg), node(t, "b", cfg)
	wait.For(t, "both have joined", func() bool { return a.cluster.State().Working && b.cluster.State().Working })
	atA, stop := a.listen()
	atB, _ := b.listen()
	said, _ := a.listen(ferrule.Notified)
	b.putDevice("robot", "arm", ferrule.StateOnline)
	b.say("robot", `{"a":"<1>"}`)
	want := []string{"b.robot.appeared", `b.robot.notified {"a":"<1>"}`}
	atB.expect(t, want...)
	atA.expect(t, want...)
	stop()
	b.say("robot", "2")
	atB.expect(t, append(want, "b.robot.notified 2")...)
	said.expect(t, want[1], "b.robot.notified 2")
	atA.expect(t, want...)
	wait.For(t, "all are stored", func() bool { return a.storedEvents() == 3 })
}

// TestListenWithoutServer checks that a listener gets the events of its own node without
// a NATS server.
func TestListenWithoutServer(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers = Join, []string{"nats://127.0.0.1:1"}
	a := node(t, "a", cfg)
	at, _ := a.listen()
	a.putDevice("robot", "arm", ferrule.StateOnline)
	a.say("robot", "1")
	at.expect(t, "a.robot.appeared", "a.robot.notified 1")
}

// TestListenAtLeaf checks that a leaf gets its own events while its hub is down, and that
// other nodes get them once the hub is up again, each once.
func TestListenAtLeaf(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	dir, client, leafPort := t.TempDir(), natscluster.Port(t), natscluster.Port(t)
	hub := hubServer(t, dir, client, leafPort)
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = Join, []string{fmt.Sprintf("nats://127.0.0.1:%d", client)}, 2, 1
	center := node(t, "center", cfg)
	cfg.Mode, cfg.Servers = Leaf, []string{fmt.Sprintf("nats://127.0.0.1:%d", leafPort)}
	leaf := node(t, "site", cfg)
	wait.For(t, "both have joined", func() bool { return center.cluster.State().Working && leaf.cluster.State().Working })
	atCenter, _ := center.listen()
	atSite, _ := leaf.listen()
	center.putDevice("lamp", "lamp", ferrule.StateOnline)
	atSite.expect(t, "center.lamp.appeared")
	leaf.putDevice("pump", "pump", ferrule.StateOnline)
	atCenter.expect(t, "center.lamp.appeared", "site.pump.appeared")

	hub.Shutdown()
	hub.WaitForShutdown()
	want := []string{"center.lamp.appeared", "site.pump.appeared"}
	for i := range 20 {
		leaf.say("pump", fmt.Sprint(i))
		want = append(want, fmt.Sprint("site.pump.notified ", i))
	}
	atSite.expect(t, want...)
	hubServer(t, dir, client, leafPort)
	atCenter.expect(t, want...)
}

// TestSaidIsCounted checks that events of talkative devices that are lost are counted.
func TestSaidIsCounted(t *testing.T) {
	c, err := New(Parts{Config: DefaultConfig(), Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	const limit = 1024
	for range 3 * limit { // nobody takes them
		c.AddDeviceEvent(ferrule.Event{Type: ferrule.Notified, Device: "toy"})
	}
	if lost := c.Stats().Lost; lost != 2*limit {
		t.Errorf("%d events are lost, want %d", lost, 2*limit)
	}
}

// TestRecent checks that the last stored events of a device at all nodes can be read.
func TestRecent(t *testing.T) {
	cfg := clustertest.OneServer(t)
	a, b := node(t, "a", cfg), node(t, "b", cfg)
	wait.For(t, "both have joined", func() bool { return a.cluster.State().Working && b.cluster.State().Working })
	for i := range 5 {
		a.say("pump", fmt.Sprint(i))
		a.say("lamp", fmt.Sprint(i))
	}
	recent := func(limit int) (got []string) {
		all, err := b.cluster.Recent(t.Context(), "pump", limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			got = append(got, fmt.Sprintf("%s.%s %s", e.Node, e.Device, e.Params))
		}
		return got
	}
	wait.For(t, "all are stored", func() bool { return len(recent(9)) == 5 })
	if got, want := recent(2), []string{"a.pump 3", "a.pump 4"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := recent(9); got[0] != "a.pump 0" {
		t.Errorf("the oldest comes first: %q", got)
	}
	if _, err := b.cluster.Recent(t.Context(), "no.>", 9); err == nil {
		t.Error("a pattern is not an ID")
	}
	if all, err := b.cluster.Recent(t.Context(), "other", 9); err != nil || len(all) != 0 {
		t.Error(all, err)
	}
}
