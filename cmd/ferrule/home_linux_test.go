package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
)

// startHome runs a simulated home with some more lamps on a broker until the test ends.
func startHome(t testing.TB, broker string, lamps int) *sim.Home {
	t.Helper()
	home := sim.NewHome()
	home.AddLamps(lamps)
	ctx, cancel := context.WithCancel(context.Background())
	ready := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- sim.JoinHome(ctx, home, broker, slog.New(slog.DiscardHandler), func(string) error {
			select {
			case ready <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the home: %v", err)
		}
	})
	<-ready
	return home
}

// withBroker adds a broker whose devices are all adopted, and permits everything.
func withBroker(url string) func(*config.Config) {
	return func(c *config.Config) {
		c.Devices.MQTT = []config.Broker{{URL: url, Name: "house", Adopt: "all", Prefix: "homeassistant"}}
		c.Policy.Preset = "open"
	}
}

// echoed is the result of a call over MQTT.
type echoed struct {
	Confirmed bool           `json:"confirmed"`
	State     map[string]any `json:"state"`
	Note      string         `json:"note"`
}

// homeCalls are one call of each sort of device, and what it changes in the home.
var homeCalls = []struct{ device, tool, args, of, state, want string }{
	{"kitchen-lamp", "light", `{"on":true,"brightness":100}`, "kitchen_lamp", "brightness", "100"},
	{"kitchen-lamp", "light", `{"color":{"x":0.3,"y":0.4}}`, "kitchen_lamp", "color", "map[x:0.3 y:0.4]"},
	{"kettle-plug", "relay", `{"on":true}`, "kettle_plug", "relay", "ON"},
	{"bedroom-blind", "cover_position", `{"position":40}`, "bedroom_blind", "position", "40"},
	{"front-door", "lock_unlock", `{}`, "front_door", "lock", "UNLOCKED"},
	{"front-door", "lock", `{}`, "front_door", "lock", "LOCKED"},
	{"bathroom-heating", "climate_temperature", `{"temperature":22.5}`, "bathroom_heating", "setpoint", "22.5"},
	{"bathroom-heating", "climate_mode", `{"mode":"auto"}`, "bathroom_heating", "system_mode", "auto"},
}

// TestHome: an agent uses each device of a home behind a real broker, through HTTP and
// through standard input. Its state confirms each call.
func TestHome(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	home := startHome(t, broker.URL, 0)
	g := startGateway(t, nil, withBroker(broker.URL))
	g.online("kitchen-lamp")
	for _, agent := range []*testAgent{dialAgent(t, g, modern, "/mcp"), dialAgent(t, g, legacy, "/mcp"), pipeAgent(t, g, modern), pipeAgent(t, g, legacy)} {
		for _, c := range homeCalls {
			g.online(c.device)
			told, err := agent.use(t.Context(), c.device+"__"+c.tool, c.args)
			if err != nil {
				t.Fatalf("%s: %v", agent.name, err)
			}
			var got echoed
			if json.Unmarshal([]byte(told.text), &got) != nil || !got.Confirmed {
				t.Errorf("%s: %s %s of %s: %s", agent.name, c.tool, c.args, c.device, told.text)
			}
			if state := fmt.Sprint(home.State(c.of, c.state)); state != c.want {
				t.Errorf("%s: %s %s of %s: %s is %s", agent.name, c.tool, c.args, c.device, c.state, state)
			}
		}
		told, err := agent.use(t.Context(), "back-door__state", `{}`)
		if err != nil || !strings.Contains(told.text, "contact") || !strings.Contains(told.text, "battery") {
			t.Errorf("%s: the contact says %+v, %v", agent.name, told, err)
		}
	}
	if err := home.Misbehave("front_door", sim.Mute); err != nil {
		t.Fatal(err)
	}
	_, err := g.call("front-door", "lock_unlock", `{}`, 0)
	if e := ferrule.AsError(err); e.Code != ferrule.Unanswered || !e.MayHaveRun() || home.State("front_door", "lock") != "UNLOCKED" {
		t.Errorf("without an echo: %v", err)
	}
}

var homeCallCount = flag.Int("home-calls", 1000, "how many calls TestHomeFaults makes")

// homeLamps is how many lamps are called at the same time, and homeDeadline the deadline of
// the calls. A lamp answers in a few milliseconds.
const (
	homeLamps    = 4
	homeDeadline = 300 * time.Millisecond
)

// TestHomeFaults: devices that do not report, report something else, or do not hear, while
// the broker is killed, paused, cut off and out of reach. Each call has one outcome, what is
// confirmed has run, what is said not to have run has not, and no command is published
// twice.
func TestHomeFaults(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	home := startHome(t, broker.URL, homeLamps)
	cut := newCutter(t, broker.Address)
	g := startGateway(t, nil, withBroker("mqtt://"+cut.Addr().String()), func(c *config.Config) {
		c.Calls.PerMinute, c.Calls.Refused = 0, 0
	})
	var callers []*homeCaller
	for i := range homeLamps {
		c := &homeCaller{t: t, g: g, device: fmt.Sprintf("lamp-%d", i+1), home: home, of: fmt.Sprintf("lamp_%d", i+1), outcomes: map[string]int{}}
		g.online(c.device)
		callers = append(callers, c)
	}
	ctx, stop := context.WithCancel(t.Context())
	var disturbing, calling sync.WaitGroup
	disturbing.Go(func() { disturb(ctx, t, home, broker, cut) })
	for _, c := range callers {
		calling.Go(func() {
			for range *homeCallCount / len(callers) {
				c.call()
			}
		})
	}
	calling.Wait()
	stop()
	disturbing.Wait()
	for _, c := range callers {
		g.online(c.device)
		c.check()
		t.Logf("%s: %v", c.device, c.outcomes)
	}
}

// homeCaller calls one lamp again and again, each time with another color.
type homeCaller struct {
	t          *testing.T
	g          *testGateway
	home       *sim.Home
	device, of string // its names in the gateway and in the home
	outcomes   map[string]int
	calls      []homeCall
}

// homeCall is a call that was made: what it publishes, and what its outcome says.
type homeCall struct {
	published      string
	ran, mayHaveIt bool
}

// call makes the next call.
func (c *homeCaller) call() {
	n := len(c.calls)
	color := fmt.Sprintf(`"color":{"x":%v,"y":%v}}`, float64(n%100)/1000, float64(n/100)/1000)
	answer, err := c.g.call(c.device, "light", "{"+color, homeDeadline)
	made := homeCall{published: `{"state":"ON",` + color, mayHaveIt: true}
	var got echoed
	what := "not confirmed"
	switch {
	case err != nil:
		e := ferrule.AsError(err)
		what, made.mayHaveIt = string(e.Code), e.MayHaveRun()
		if e.Code == ferrule.Internal {
			c.t.Errorf("%s: %v", c.device, err)
		}
	case json.Unmarshal([]byte(answer), &got) != nil:
		c.t.Errorf("%s: %s", c.device, answer)
	case got.Confirmed:
		what, made.ran = "confirmed", got.Note == ""
	}
	c.outcomes[what]++
	c.calls = append(c.calls, made)
}

// check compares what the device received with the outcomes: in the order of the calls,
// each at most once.
func (c *homeCaller) check() {
	next := 0
	received := make([]bool, len(c.calls))
	for _, command := range c.home.Commands() {
		if command.Device != c.of {
			continue
		}
		i := slices.IndexFunc(c.calls, func(call homeCall) bool { return call.published == command.Payload })
		if i < 0 {
			c.t.Fatalf("%s: nobody asked for %s", c.device, command.Payload)
		}
		if i < next {
			c.t.Errorf("%s: %s was published twice or out of order", c.device, command.Payload)
			continue
		}
		received[i], next = true, i+1
		c.outcomes["received"]++
	}
	for i, call := range c.calls {
		if call.ran && !received[i] {
			c.t.Errorf("%s: call %d is confirmed, but the device never got it", c.device, i)
		}
		if !call.mayHaveIt && received[i] {
			c.t.Errorf("%s: call %d is said not to have run, but the device got it", c.device, i)
		}
	}
	if c.outcomes["confirmed"] == 0 {
		c.t.Errorf("%s: none of %d calls was confirmed", c.device, len(c.calls))
	}
	figure.AtMost(c.t, "share of calls to "+c.device+" that were not confirmed", 1-float64(c.outcomes["confirmed"])/float64(len(c.calls)), 0.9)
	if n := len(c.g.outcomes(c.device, "light")); n != len(c.calls) {
		c.t.Errorf("%s: %d calls have %d outcomes in the journal", c.device, len(c.calls), n)
	}
}

// disturb makes devices misbehave, and breaks the connection to the broker in all ways,
// until ctx ends. Then everything works again.
func disturb(ctx context.Context, t *testing.T, home *sim.Home, broker *mosquitto.Broker, cut *cutter) {
	pause := func(d time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
	faults := []sim.Fault{sim.Mute, sim.Deaf, sim.Lying, sim.Clamped}
	for n := 0; ctx.Err() == nil; n++ {
		pause(500*time.Millisecond + rand.N(time.Second))
		switch n % 8 {
		case 0:
			cut.cut(true)
		case 2:
			broker.Kill()
			pause(200 * time.Millisecond)
			broker.Restart(t)
		case 4:
			broker.Pause()
			pause(500 * time.Millisecond)
			broker.Resume()
		case 6:
			cut.hold()
			pause(2 * time.Second)
			cut.release()
		default:
			device := fmt.Sprintf("lamp_%d", 1+rand.N(homeLamps))
			home.Misbehave(device, faults[rand.N(len(faults))])
			pause(500 * time.Millisecond)
			home.Misbehave(device, sim.Obedient)
		}
	}
}
