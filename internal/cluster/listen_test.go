package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
)

// ears write down what they hear.
type ears struct {
	mu  sync.Mutex
	all []string
}

func (s *site) listens(only ...ferrule.EventType) (e *ears, stop func()) {
	e = &ears{}
	stop = s.bus.Listen(func(event ferrule.Event) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.all = append(e.all, strings.TrimSpace(fmt.Sprintf("%s.%s.%s %s", event.Node, event.Device, event.Type, event.Params)))
	}, only...)
	return e, stop
}

func (e *ears) heard() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

func (e *ears) hear(t *testing.T, want ...string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); len(e.heard()) < len(want) && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	if got := e.heard(); !slices.Equal(got, want) {
		t.Errorf("heard %q, want %q", got, want)
	}
}

// says has a device of the node say something.
func (s *site) says(id, params string) {
	s.bus.Said(ferrule.Event{Time: time.Now(), Type: ferrule.Notified, Device: id, Method: "state", Params: []byte(params)})
}

// TestListen: who listens at a node hears what happens to devices of all nodes and what
// they say, each once and in order, until it is enough.
func TestListen(t *testing.T) {
	cfg := oneServer(t)
	a, b := node(t, "a", cfg), node(t, "b", cfg)
	eventually(t, 10*time.Second, "both take part", func() bool { return a.bus.State().Working && b.bus.State().Working })
	atA, stop := a.listens()
	atB, _ := b.listens()
	words, _ := a.listens(ferrule.Notified)
	b.has("robot", "arm", ferrule.StateOnline)
	b.says("robot", `{"a":"<1>"}`)
	want := []string{"b.robot.appeared", `b.robot.notified {"a":"<1>"}`}
	atB.hear(t, want...)
	atA.hear(t, want...)
	stop()
	b.says("robot", "2")
	atB.hear(t, append(want, "b.robot.notified 2")...)
	words.hear(t, want[1], "b.robot.notified 2")
	atA.hear(t, want...)
	eventually(t, 10*time.Second, "all are kept", func() bool {
		info, err := a.bus.home.Load().events.Info(t.Context())
		return err == nil && info.State.Msgs == 3
	})
}

// TestListenWithoutEngine: what happens here is heard here, whether or not there is a
// server of NATS.
func TestListenWithoutEngine(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers = Join, []string{"nats://127.0.0.1:1"}
	a := node(t, "a", cfg)
	at, _ := a.listens()
	a.has("robot", "arm", ferrule.StateOnline)
	a.says("robot", "1")
	at.hear(t, "a.robot.appeared", "a.robot.notified 1")
}

// TestListenAtSite: a leaf hears its own devices while its hub is away, and the others
// hear of them once it is there again, each once.
func TestListenAtSite(t *testing.T) {
	t.Parallel()
	dir, client, leafPort := t.TempDir(), natscluster.Port(t), natscluster.Port(t)
	hub := hubServer(t, dir, client, leafPort)
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = Join, []string{fmt.Sprintf("nats://127.0.0.1:%d", client)}, 2, 1
	centre := node(t, "centre", cfg)
	cfg.Mode, cfg.Servers = Leaf, []string{fmt.Sprintf("nats://127.0.0.1:%d", leafPort)}
	outpost := node(t, "site", cfg)
	eventually(t, 20*time.Second, "both take part", func() bool { return centre.bus.State().Working && outpost.bus.State().Working })
	atCentre, _ := centre.listens()
	atSite, _ := outpost.listens()
	centre.has("lamp", "lamp", ferrule.StateOnline)
	atSite.hear(t, "centre.lamp.appeared")
	outpost.has("pump", "pump", ferrule.StateOnline)
	atCentre.hear(t, "centre.lamp.appeared", "site.pump.appeared")

	hub.Shutdown()
	hub.WaitForShutdown()
	want := []string{"centre.lamp.appeared", "site.pump.appeared"}
	for i := range 20 {
		outpost.says("pump", fmt.Sprint(i))
		want = append(want, fmt.Sprint("site.pump.notified ", i))
	}
	atSite.hear(t, want...)
	hubServer(t, dir, client, leafPort)
	atCentre.hear(t, want...)
}

// TestHeardOnce: what a node sends again is heard once; what it sends after it was
// started anew is heard, though it counts from one again.
func TestHeardOnce(t *testing.T) {
	var a audience
	var heard []string
	a.join(&listener{fn: func(e ferrule.Event) { heard = append(heard, e.Method) }})
	for _, m := range []mark{{"x", 1}, {"x", 2}, {"x", 2}, {"x", 1}, {"x", 5}, {"y", 1}, {"y", 1}} {
		a.tellOnce(ferrule.Event{Node: "b", Method: fmt.Sprint(m.origin, m.last)}, m)
	}
	if got := strings.Join(heard, " "); got != "x1 x2 x5 y1" {
		t.Errorf("heard %s", got)
	}
	for i := range 2 * maxMarks {
		a.tellOnce(ferrule.Event{Node: fmt.Sprint(i)}, mark{"x", 1})
	}
	if len(a.heard) > maxMarks {
		t.Errorf("%d nodes are remembered", len(a.heard))
	}
}

// TestTalkative: devices that talk all the time lose some of what they said, which is
// counted, and nothing else is lost for it.
func TestTalkative(t *testing.T) {
	s := newSpool("x")
	i := &intake{wake: func() {}}
	b := &Cluster{spool: s, intake: i}
	for range 3 * maxSaid {
		b.Said(ferrule.Event{Type: ferrule.Notified, Device: "toy"})
	}
	if len(i.changes) != maxSaid || s.lost != 2*maxSaid {
		t.Errorf("%d wait, and %d are lost", len(i.changes), s.lost)
	}
	if len(i.take()) != maxSaid || !i.say(ferrule.Event{}) {
		t.Error("nothing more is taken in")
	}
	for n := range maxSpool {
		s.add(ferrule.Event{Type: ferrule.Notified, Device: "toy"})
		if n%16 == 0 {
			s.add(ferrule.Event{Type: ferrule.Gone, Device: "robot"})
		}
	}
	if s.said != maxSaid || len(s.events) != maxSaid+maxSpool/16 || s.dropped() != 2*maxSaid+maxSpool-maxSaid || s.dropped() != 0 {
		t.Errorf("%d of %d are said", s.said, len(s.events))
	}
	for after := uint64(0); len(s.events) > 1; {
		e, err := s.next(t.Context(), after)
		if err != nil || e.Seq <= after {
			t.Fatalf("got %+v, %v", e, err)
		}
		after = e.Seq
	}
	if s.said != 0 {
		t.Errorf("%d are still thought to wait", s.said)
	}
}

// FuzzEvent: whatever is sent as an event, what is made of it can be shown, and sent
// on as the same.
func FuzzEvent(f *testing.F) {
	n := names{"acme", "a"}
	f.Add("b", "toy", "notified", []byte(`{"time":"2026-11-15T12:00:00Z","type":"notified","device":"toy","node":"b","method":"m","params":{"a":1}}`), "1")
	f.Add("b", "toy", "gone", []byte(`{"type":"gone","device":"toy","node":"b","reason":"\u202e","tools":["a"]}`), "2")
	f.Fuzz(func(t *testing.T, node, device, what string, data []byte, last string) {
		msg := nats.NewMsg(names{"acme", node}.event(device, what))
		msg.Data = data
		msg.Header.Set(lastHeader, last)
		e, _, err := n.parseEvent(msg)
		if err != nil {
			return
		}
		if e.Node != node || e.Device != device || string(e.Type) != what || len(e.Params) > ferrule.MaxParams || e.Method != ferrule.Clean(e.Method, ferrule.MaxMethod) {
			t.Errorf("got %+v", e)
		}
		if msg.Data, err = encodeEvent(e); err != nil {
			t.Fatal(err)
		}
		if len(msg.Data) > maxEvent {
			return
		}
		again, _, err := n.parseEvent(msg)
		if err != nil || string(again.Params) != string(e.Params) || again.Method != e.Method {
			t.Errorf("%+v was sent on as %s: %v", e, msg.Data, err)
		}
	})
}
