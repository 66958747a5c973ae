package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/homeassistant"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing"
)

// bench is a device that Home Assistant is to show. Its state is what its hardware would do.
type bench struct {
	address string

	mu     sync.Mutex
	on     map[string]bool
	level  int
	mode   int
	beeps  int
	refuse bool // the relay
	broken bool // the relay acts and says that it failed, and cannot be read
	stop   func()
}

type benchSwitch struct {
	On bool `json:"on"`
}

var benchModes = []string{"off", "eco", "boost"}

// startBench runs the device until the test ends.
func startBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{on: map[string]bool{"lock": true}}
	b.start(t, "127.0.0.1:0")
	t.Cleanup(func() { b.stop() })
	return b
}

// change changes what the hardware does.
func (b *bench) change(fn func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fn()
}

func (b *bench) isOn(what string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.on[what]
}

func (b *bench) start(t testing.TB, address string) {
	t.Helper()
	d := thing.New("bench", "1")
	thing.Tool(d, "relay", "Switch the relay", func(_ context.Context, in benchSwitch) (string, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.refuse {
			return "", &thing.RefusedError{Reason: "the fuse is out"}
		}
		b.on["relay"] = in.On
		if b.broken {
			return "", errors.New("the relay sticks")
		}
		return "ok", nil
	})
	thing.Tool(d, "get_relay", "Read the relay", func(context.Context, struct{}) (bool, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.broken {
			return false, errors.New("the relay sticks")
		}
		return b.on["relay"], nil
	}, thing.Polled(time.Second))
	thing.Tool(d, "set_level", "Set the level", func(_ context.Context, in struct {
		Level int `json:"level"`
	}) (string, error) {
		b.change(func() { b.level = in.Level })
		return "ok", nil
	}, thing.WithSchema(json.RawMessage(`{"type":"object","properties":{"level":{"type":"integer","minimum":0,"maximum":10}},"required":["level"]}`)))
	thing.Tool(d, "get_level", "Read the level", func(context.Context, struct{}) (int, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.level, nil
	}, thing.Polled(time.Second))
	thing.Tool(d, "set_mode", "Set the mode", func(_ context.Context, in struct {
		Mode string `json:"mode"`
	}) (string, error) {
		b.change(func() { b.mode = slices.Index(benchModes, in.Mode) })
		return "ok", nil
	}, thing.WithSchema(json.RawMessage(`{"type":"object","properties":{"mode":{"type":"string","enum":["off","eco","boost"]}},"required":["mode"]}`)))
	thing.Tool(d, "get_mode", "Read the mode", func(context.Context, struct{}) (int, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.mode, nil
	}, thing.Polled(time.Second))
	thing.Tool(d, "climate", "Read the climate", func(context.Context, struct{}) (float64, error) { return 21.5, nil }, thing.Polled(time.Second))
	thing.Tool(d, "beep", "Beep", func(context.Context, struct{}) (string, error) {
		b.change(func() { b.beeps++ })
		return "ok", nil
	})
	thing.Tool(d, "fire", "Light the furnace", func(context.Context, struct{}) (string, error) { return "ok", nil })
	thing.Tool(d, "bolt", "Move the bolt", func(_ context.Context, in benchSwitch) (string, error) {
		b.change(func() { b.on["lock"] = in.On })
		return "ok", nil
	})
	thing.Tool(d, "get_bolt", "Read the bolt", func(context.Context, struct{}) (bool, error) { return b.isOn("lock"), nil }, thing.Polled(time.Second))
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	b.address = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.ServeTCP(ctx, ln) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
}

// benchOverlay says what endangers, and which of that Home Assistant gets.
const benchOverlay = `
match: {device: bench}
tools:
  fire: {effect: endangers}
  bolt: {effect: endangers}
polls:
  climate: {unit: "°C"}
entities:
  door:
    component: lock
    name: Door
    signal: get_bolt
    commands:
      lock: {tool: bolt, args: {on: true}}
      unlock: {tool: bolt, args: {on: false}}
`

func published(url string) func(*config.Config) {
	return func(c *config.Config) {
		c.Devices.MQTT = []config.Broker{{URL: url, Name: "house", Adopt: "all", Publish: true}}
		c.Approvals.Wait = config.Interval(time.Minute)
	}
}

// homeShows waits until an entity has a state.
func homeShows(t *testing.T, home *homeassistant.Home, entity, want string) {
	t.Helper()
	var last string
	defer func() {
		if t.Failed() {
			t.Logf("%s is %q, want %q", entity, last, want)
		}
	}()
	wait.For(t, entity+" is "+want, func() bool {
		state, _, ok := home.Find(entity)
		if last = state; !ok {
			last = "missing"
		}
		return last == want
	})
}

// TestHomePublish: a real Home Assistant shows a device of the gateway over a real broker. It
// sees the state and sends commands, which policy and approvals guard. Device, gateway, broker
// and Home Assistant end and come back.
func TestHomePublish(t *testing.T) {
	home := homeassistant.Start(t, homeassistant.Options{Bare: true})
	broker := mosquitto.Start(t, mosquitto.Options{})
	host, port, _ := net.SplitHostPort(broker.Address)
	number, _ := strconv.Atoi(port)
	home.Configure(t, "mqtt", map[string]any{"broker": host, "port": number})
	b := startBench(t)
	g := startGateway(t, map[string]string{"bench": b.address}, published(broker.URL), withOverlay(t, benchOverlay))
	g.online("bench")
	press := func(domain, service, entity string, more map[string]any) {
		t.Helper()
		data := map[string]any{"entity_id": entity}
		maps.Copy(data, more)
		home.Call(t, domain, service, data)
	}

	t.Run("states", func(t *testing.T) {
		for entity, want := range map[string]string{
			"switch.bench_relay": "off", "number.bench_set_level": "0", "select.bench_set_mode": "off", "sensor.bench_climate": "21.5",
			"lock.bench_door": "locked", "button.bench_beep": "unknown", "sensor.bench_last_command": "unknown",
		} {
			homeShows(t, home, entity, want)
		}
		if _, about := home.State(t, "sensor.bench_climate"); about["unit_of_measurement"] != "°C" || about["device_class"] != "temperature" {
			t.Errorf("the sensor is %v", about)
		}
		for _, entity := range []string{"button.bench_fire", "switch.bench_bolt", "button.bench_bolt_on", "button.bench_get_relay"} {
			if _, _, ok := home.Find(entity); ok {
				t.Errorf("there is a %s", entity)
			}
		}
		b.change(func() { b.on["relay"], b.level = true, 7 })
		homeShows(t, home, "switch.bench_relay", "on")
		homeShows(t, home, "number.bench_set_level", "7")
	})

	t.Run("commands", func(t *testing.T) {
		press("switch", "turn_off", "switch.bench_relay", nil)
		homeShows(t, home, "switch.bench_relay", "off")
		press("number", "set_value", "number.bench_set_level", map[string]any{"value": 3})
		homeShows(t, home, "number.bench_set_level", "3")
		press("select", "select_option", "select.bench_set_mode", map[string]any{"option": "boost"})
		homeShows(t, home, "select.bench_set_mode", "boost")
		press("button", "press", "button.bench_beep", nil)
		wait.For(t, "it beeps", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.beeps == 1 })
		homeShows(t, home, "sensor.bench_last_command", "done")
		if b.isOn("relay") || b.level != 3 || b.mode != 2 {
			t.Errorf("the device: %+v", b.on)
		}
	})

	t.Run("refused and failed", func(t *testing.T) {
		b.change(func() { b.refuse = true })
		press("switch", "turn_on", "switch.bench_relay", nil)
		wait.For(t, "the refusal is told", func() bool {
			state, _, _ := home.Find("sensor.bench_last_command")
			return strings.HasPrefix(state, "refused") && strings.Contains(state, "the fuse is out")
		})
		homeShows(t, home, "switch.bench_relay", "off")
		b.change(func() { b.refuse, b.broken = false, true })
		press("switch", "turn_on", "switch.bench_relay", nil)
		homeShows(t, home, "switch.bench_relay", "unknown")
		b.change(func() { b.broken = false })
		homeShows(t, home, "switch.bench_relay", "on")
	})

	t.Run("approval", func(t *testing.T) {
		press("lock", "unlock", "lock.bench_door", nil)
		wait.For(t, "somebody is asked", func() bool { return len(g.Approvals.List()) == 1 })
		if state, _, _ := home.Find("lock.bench_door"); state != "locked" || !b.isOn("lock") {
			t.Errorf("before a person has decided it is %s", state)
		}
		g.answers(true)
		homeShows(t, home, "lock.bench_door", "unlocked")
		if b.isOn("lock") {
			t.Error("it is still locked")
		}
	})

	t.Run("no loop", func(t *testing.T) {
		for _, dev := range g.Fleet.Devices() {
			if dev.ID != "bench" {
				t.Errorf("the gateway has a device %s of %s", dev.ID, dev.Hub)
			}
		}
		if problems := g.Status().Brokers; len(problems) > 0 {
			t.Errorf("the broker: %v", problems)
		}
	})

	t.Run("ends and comes back", func(t *testing.T) {
		b.stop()
		homeShows(t, home, "switch.bench_relay", "unavailable")
		b.start(t, b.address)
		homeShows(t, home, "switch.bench_relay", "on")
		broker.Kill()
		wait.For(t, "the broker is missed", func() bool { return len(g.Status().Brokers) > 0 })
		broker.Restart(t)
		homeShows(t, home, "switch.bench_relay", "on")
		press("switch", "turn_off", "switch.bench_relay", nil)
		homeShows(t, home, "switch.bench_relay", "off")
		home.Stop(t)
		b.change(func() { b.on["relay"] = true })
		home.Restart(t)
		homeShows(t, home, "switch.bench_relay", "on")
		if b.beeps != 1 {
			t.Errorf("it has beeped %d times for one command", b.beeps)
		}
	})
	g.stop()
	homeShows(t, home, "switch.bench_relay", "unavailable")
}
