package main

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/internal/watch"
)

var maria = ferrule.Principal{Role: ferrule.Person, Name: "maria", Auth: ferrule.AuthSocket}

// notices are what one receiver got.
type notices struct {
	mu  sync.Mutex
	all []watch.Notice
}

func (n *notices) add(t *testing.T, data []byte) {
	var one watch.Notice
	if err := json.Unmarshal(data, &one); err != nil {
		t.Errorf("%s: %v", data, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, one)
}

// count returns how many notices meet a condition.
func (n *notices) count(of func(*watch.Notice) bool) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.all {
		if of(&n.all[i]) {
			count++
		}
	}
	return count
}

// receiveWebhook returns the URL of a server that checks signatures as the documentation says.
func receiveWebhook(t *testing.T, secret string, to *notices) string {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		stamp := r.Header.Get("Ferrule-Timestamp")
		mac := hmac.New(sha256.New, []byte(secret))
		io.WriteString(mac, stamp+"."+string(body))
		if got, want := r.Header.Get("Ferrule-Signature"), "sha256="+hex.EncodeToString(mac.Sum(nil)); got != want {
			t.Errorf("the signature is %q, want %q", got, want)
		}
		if at, err := strconv.ParseInt(stamp, 10, 64); err != nil || time.Since(time.Unix(at, 0)).Abs() > time.Minute {
			t.Errorf("the timestamp is %q", stamp)
		}
		to.add(t, body)
	}))
	t.Cleanup(web.Close)
	return web.URL
}

// receiveMQTT collects what a client of the broker gets below a topic.
func receiveMQTT(t *testing.T, broker *mosquitto.Broker, topic string, to *notices) {
	t.Helper()
	host, port, err := net.SplitHostPort(broker.Address)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), mosquitto.Path(t, "mosquitto_sub"), "-h", host, "-p", port, "-q", "1", "-v", "-t", topic+"/#", "-t", "test/ready")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Wait() })
	ready := make(chan struct{})
	go func() {
		isReady := sync.OnceFunc(func() { close(ready) })
		for lines := bufio.NewScanner(out); lines.Scan(); {
			at, payload, _ := strings.Cut(lines.Text(), " ")
			if at == "test/ready" {
				isReady()
				continue
			}
			before := to.count(func(*watch.Notice) bool { return true })
			to.add(t, []byte(payload))
			to.mu.Lock()
			if id := to.all[before].Watch; at != topic+"/"+id {
				t.Errorf("watch %s has the topic %s", id, at)
			}
			to.mu.Unlock()
		}
	}()
	wait.For(t, "the client of the broker is subscribed", func() bool {
		broker.Publish(t, "test/ready", "now")
		select {
		case <-ready:
			return true
		default:
			return false
		}
	})
}

// receiveNATS collects the events of watches, as the documentation says.
func receiveNATS(t *testing.T, servers *natscluster.Cluster, to *notices) {
	t.Helper()
	conn, err := nats.Connect(servers.URLs())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if _, err := conn.Subscribe("ferrule.*.event.*.*.watch", func(m *nats.Msg) {
		var e ferrule.Event
		if err := json.Unmarshal(m.Data, &e); err != nil || e.Type != ferrule.WatchFired {
			t.Errorf("event %s: %v", m.Data, err)
			return
		}
		to.add(t, e.Params)
	}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
}

// watching calls a tool for watches as a person.
func watching[Out any](g *testGateway, tool string, in any) (out Out) {
	g.t.Helper()
	args, err := json.Marshal(in)
	if err != nil {
		g.t.Fatal(err)
	}
	result, err := g.Pipeline.Handle(g.t.Context(), &ferrule.Call{Principal: maria, Device: ferrule.GatewayID, Tool: tool, Args: args})
	if err == nil {
		err = json.Unmarshal(result.Value, &out)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return out
}

// TestWatchOfDeadNodes: a watch on a board of one node calls a board of another, once for an
// edge. The first node is killed, and its board moves to a third one, while the condition
// holds: nothing is called for the same edge. The next edge is called once. Clients of NATS,
// of a real broker, and a webhook hear of it.
func TestWatchOfDeadNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	const id, dark, bright, secret = "rig-uno", 1000, 4500, "0123456789abcdef0123"
	servers := natscluster.Start(t, natscluster.Options{Size: 1})
	broker := mosquitto.Start(t, mosquitto.Options{})
	var byWebhook, byMQTT, byNATS notices
	hook := receiveWebhook(t, secret, &byWebhook)
	receiveMQTT(t, broker, "ferrule/watches", &byMQTT)
	receiveNATS(t, servers, &byNATS)
	board := uno.Start(t, uno.Options{Link: filepath.Join(t.TempDir(), "uno")})
	board.ADC(0, dark)
	line := bridge(t, board)
	node := func(name string) config.Config {
		cfg := testConfig()
		joins(&cfg, name, servers)
		withOverlay(t, `
match: {device: rig-uno}
polls:
  light:
    tool: get_pin_buffer
    args: {pin: 14, limit: 20}
    every: 250ms
    ring: {interval: 100ms, size: 20}
`)(&cfg)
		cfg.Devices.MQTT = []config.Broker{{URL: broker.URL, Name: "house", Prefix: "homeassistant"}}
		cfg.Watches.MQTT.Broker = "house"
		return cfg
	}
	settings, err := json.Marshal(node("a")) // secrets are masked, so this node has no webhook
	if err != nil {
		t.Fatal(err)
	}
	atA := freeAddress(t)
	a := exec.Command("dialed", string(settings), t.TempDir(), atA)
	a.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	a.Stderr = t.Output()
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	killA := sync.OnceFunc(func() {
		a.Process.Kill()
		a.Wait()
	})
	t.Cleanup(killA)
	withWebhook := func(c *config.Config) {
		c.Watches.Webhook = config.WatchWebhook{URL: ferrule.Secret(hook), Secret: secret}
	}
	cfg := node("b")
	withWebhook(&cfg)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	g, err := gateway.New(gateway.Parts{
		Config: cfg, Data: data, Version: version(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)).With("at", "b"), Connectors: dialInAt(ln, unoAddress),
	})
	if err != nil {
		t.Fatal(err)
	}
	b := runGateway(t, g, data)
	boards := startSim(t, sim.Config{})
	c := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, unmeasured, func(cfg *config.Config) {
		joins(cfg, "c", servers)
		cfg.Devices.MQTT = node("c").Devices.MQTT
		cfg.Watches.MQTT.Broker = "house"
		withWebhook(cfg)
	})
	line.move(atA)
	c.online("robot")
	b.online("robot")
	c.online(id)
	wait.For(t, "the board is at node a", func() bool { return c.device(id).Node == "a" })

	const token = "edge"
	calls := func() int { return boards.Boards[0].Runs()[token] }
	above := 700.0
	w := watching[watch.Status](c, builtin.WatchTool, builtin.WatchInput{
		Name: "bright", When: &condition.Condition{Device: id, Signal: "light", Above: &above, Hysteresis: 100}, Notify: []string{watch.MQTT, watch.Webhook},
		Call: &builtin.WatchCall{Device: "robot", Tool: "pulse", Args: map[string]any{"token": token}}, Every: ferrule.Duration(time.Second), PerHour: 60,
	})
	state := func(at *testGateway) watch.Status {
		return watching[builtin.ListWatchesOutput](at, builtin.ListWatchesTool, builtin.ListWatchesInput{Watch: w.ID}).Watches[0]
	}
	hits := func(from *notices) int {
		return from.count(func(n *watch.Notice) bool { return n.Event == "watch" && n.Watch == w.ID })
	}

	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("webhook %+v\nMQTT %+v\nNATS %+v", byWebhook.all, byMQTT.all, byNATS.all)
		}
	})
	called := func(n *watch.Notice) bool {
		return n.Watch == w.ID && n.Event == "watch" && !n.Unsure && n.NotCalled == "" && n.Hit.Device == id && n.Hit.Value > above
	}
	// Until other nodes know that node a evaluates the watch, it does not call, and says so.
	wait.For(t, "the watch calls", func() bool {
		before := hits(&byMQTT)
		board.ADC(0, bright)
		for range 200 { // without a hit, the dark was too short for a busy machine
			if hits(&byMQTT) > before {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if byMQTT.count(called) > 0 {
			return true
		}
		board.ADC(0, dark)
		time.Sleep(1500 * time.Millisecond) // the board keeps samples for longer
		return false
	})
	wait.For(t, "the board is called", func() bool { return calls() > 0 })
	wait.For(t, "the outcome is known", func() bool { o := state(c).Outcome; return o != nil && o.Message == "called" })
	if n := calls(); n != 1 {
		t.Fatalf("%d calls for one edge", n)
	}

	killA()
	line.move(ln.Addr().String())
	wait.For(t, "the board is at node b", func() bool { d := c.device(id); return d.Node == "b" && d.State == ferrule.StateOnline })
	unsure := func(n *watch.Notice) bool {
		return n.Watch == w.ID && n.Unsure && strings.Contains(n.NotCalled, "another node held "+id)
	}
	wait.For(t, "node b reports what holds, and does not call", func() bool {
		return byWebhook.count(unsure) == 1 && byMQTT.count(unsure) == 1 && byNATS.count(func(n *watch.Notice) bool { return n.Unsure }) == 1
	})
	reported := hits(&byNATS)   // events say nothing about the call
	time.Sleep(3 * time.Second) // nothing follows
	if n := calls(); n != 1 {
		t.Fatalf("%d calls after the board has moved, for one edge", n)
	}

	dim := func() {
		board.ADC(0, dark)
		wait.For(t, "the condition does not hold", func() bool { return len(state(b).Active) == 0 })
	}
	dim()
	board.ADC(0, bright)
	wait.For(t, "the next edge is called", func() bool { return calls() == 2 })
	wait.For(t, "all hear of it", func() bool {
		return byWebhook.count(called) == 1 && byMQTT.count(called) == 2 && hits(&byNATS) == reported+1
	})
	dim()
	if n := calls(); n != 2 {
		t.Errorf("%d calls for two edges", n)
	}
}

// TestWatchStorm: the sensor of a board flaps. Its watch moves the actuator of another board at
// most as often as its limit says.
func TestWatchStorm(t *testing.T) {
	const limit, token = 3, "storm"
	boards := startSim(t, sim.Config{Count: 2})
	g := startGateway(t, map[string]string{"sensor": boards.Addrs()[0], "actuator": boards.Addrs()[1]}, withOverlay(t, `
match: {device: sensor}
tools:
  gpio_read: {effect: reads}
polls:
  lamp:
    tool: gpio_read
    args: {pin: 2}
    every: 100ms
`))
	g.online("sensor")
	g.online("actuator")
	set := func(on bool) {
		t.Helper()
		if _, err := g.call("sensor", "gpio_write", fmt.Sprintf(`{"pin":2,"value":%v}`, on), ample); err != nil {
			t.Fatal(err)
		}
	}
	lamp := g.lampSignal("sensor")
	one := 1.0
	w := watching[watch.Status](g, builtin.WatchTool, builtin.WatchInput{
		When: &condition.Condition{Device: "sensor", Signal: lamp, Equals: &one}, Every: ferrule.Duration(time.Second), PerHour: limit,
		Call: &builtin.WatchCall{Device: "actuator", Tool: "pulse", Args: map[string]any{"token": token}},
	})
	start := time.Now()
	state := func() watch.Status {
		return watching[builtin.ListWatchesOutput](g, builtin.ListWatchesTool, builtin.ListWatchesInput{Watch: w.ID}).Watches[0]
	}
	wait.For(t, "the sensor has flapped often", func() bool {
		set(true)
		time.Sleep(150 * time.Millisecond)
		set(false)
		time.Sleep(150 * time.Millisecond)
		return state().Hits >= 20 && time.Since(start) > 6*time.Second && boards.Boards[1].Runs()[token] >= limit
	})
	set(true) // it stays: the limit of the hour holds all the same
	time.Sleep(2 * time.Second)
	s, moved := state(), boards.Boards[1].Runs()[token]
	t.Logf("%d edges in %v, %d held back, %d calls", s.Hits, time.Since(start).Round(time.Second), s.Held, moved)
	if moved != limit {
		t.Errorf("the actuator moved %d times, the limit is %d", moved, limit)
	}
}
