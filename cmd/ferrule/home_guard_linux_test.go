package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestHomeGuard: an agent must ask before it opens a lock, and not before it closes it.
// After a stop, no command reaches the broker.
func TestHomeGuard(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	home := startHome(t, broker.URL, 0)
	g := startGateway(t, nil, withBroker(broker.URL), func(c *config.Config) { c.Policy.Preset = "careful" })
	g.online("front-door")
	g.online("kitchen-lamp")
	if _, err := g.call("front-door", "lock", `{}`, 0); err != nil {
		t.Errorf("locking: %v", err)
	}
	for _, allow := range []bool{false, true} {
		done := make(chan error, 1)
		go func() {
			_, err := g.call("front-door", "lock_unlock", `{}`, 0)
			done <- err
		}()
		before := len(home.Commands())
		g.answers(allow)
		if err := <-done; allow && err != nil || !allow && ferrule.AsError(err).Code != ferrule.Denied {
			t.Errorf("allowed %t: %v", allow, err)
		}
		if n := len(home.Commands()) - before; n == 1 != allow {
			t.Errorf("allowed %t: the lock got %d commands", allow, n)
		}
	}
	if home.State("front_door", "lock") != "UNLOCKED" {
		t.Error("the lock was not opened")
	}
	if _, err := g.call(ferrule.GatewayID, ferrule.StopTool, `{"reason":"a test"}`, 0); err != nil {
		t.Fatal(err)
	}
	before := len(home.Commands())
	for _, c := range homeCalls {
		if c.tool == "lock_unlock" { // it waits for a person before that
			continue
		}
		g.online(c.device)
		if _, err := g.call(c.device, c.tool, c.args, 0); err == nil || ferrule.AsError(err).Code != ferrule.Denied {
			t.Errorf("%s of a stopped %s: %v", c.tool, c.device, err)
		}
	}
	if _, err := g.call("kitchen-lamp", "state", `{}`, 0); err != nil {
		t.Errorf("reading after the stop: %v", err)
	}
	if n := len(home.Commands()) - before; n != 0 {
		t.Errorf("%d commands after the stop", n)
	}
	if err := g.person("resume_devices", `{}`); err != nil {
		t.Fatal(err)
	}
	if _, err := g.call("kitchen-lamp", "light", `{"on":true}`, 0); err != nil {
		t.Errorf("after resuming: %v", err)
	}
}

// TestHomeEvents: agents and people are told of events, triggers and tags that devices
// publish, each once, and never of a retained one.
func TestHomeEvents(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	const about = `"dev":{"ids":"remote-1","name":"Remote","mdl_id":"AR-1"}`
	for topic, rest := range map[string]string{
		"event/remote/key":                `"stat_t":"remote/key","event_types":["press","hold"],"uniq_id":"key"`,
		"device_automation/remote/double": `"automation_type":"trigger","type":"click","subtype":"double","payload":"double","topic":"remote/action"`,
		"tag/remote/reader":               `"topic":"remote/tag","value_template":"{{ value_json.id }}"`,
	} {
		broker.Publish(t, "homeassistant/"+topic+"/config", "{"+rest+","+about+"}", "-r", "-q", "1")
	}
	broker.Publish(t, "remote/key", `{"event_type":"press","stale":true}`, "-r")
	g := startGateway(t, nil, withBroker(broker.URL))
	g.online("remote")
	people := watches(t, g.data, "")
	agent := dialAgent(t, g, modern, "/mcp")
	agent.subscribes("remote", func() { broker.Publish(t, "remote/key", `{"event_type":"hold"}`) })
	calm([]*testAgent{agent})
	for topic, payload := range map[string]string{"key": `{"event_type":"press"}`, "action": "double", "tag": `{"id":"04-a3-77"}`} {
		broker.Publish(t, "remote/"+topic, payload)
		agent.updated("remote")
	}
	said := func() string {
		var all []string
		for _, n := range agent.state("remote").Notifications {
			all = append(all, n.Method+" "+string(n.Params))
		}
		slices.Sort(all)
		return strings.Join(all, "\n")
	}
	want := `double {"value":{"subtype":"double","type":"click"}}` + "\n" + `key {"value":{"event_type":"press"}}` + "\n" + `reader {"value":"04-a3-77"}`
	wait.For(t, "the agent reads all events", func() bool { return said() == want })
	wait.For(t, "people see the events", func() bool { return people.sees("remote", ferrule.Notified) })
	people.mu.Lock()
	defer people.mu.Unlock()
	for _, e := range people.events {
		if strings.Contains(string(e.Params), "stale") {
			t.Errorf("a retained message was an event: %+v", e)
		}
	}
}

// TestHomeHistory: what a sensor publishes is recorded once and within seconds, with its
// unit, and a chart shows it.
func TestHomeHistory(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	startHome(t, broker.URL, 0)
	g := startGateway(t, nil, withBroker(broker.URL))
	g.online("living-room")
	began := time.Now()
	for i := range 10 {
		broker.Publish(t, "home/living_room", fmt.Sprintf(`{"temperature":%d.25,"humidity":40}`, 10+i))
	}
	agent := dialAgent(t, g, modern, "/mcp")
	var latest builtin.LatestOutput
	wait.For(t, "the last value can be read", func() bool {
		told, err := agent.use(t.Context(), "gateway__latest", `{"device":"living-room"}`)
		return err == nil && json.Unmarshal([]byte(told.text), &latest) == nil && slices.ContainsFunc(latest.Signals, func(s builtin.LatestSignal) bool {
			return s.Name == "temperature" && s.Value == 19.25 && s.Unit == "°C"
		})
	})
	t.Logf("the last value was there after %v", time.Since(began))
	query := ferrule.HistoryQuery{Device: "living-room", Signals: []string{"temperature"}, From: began, To: time.Now().Add(time.Minute), Points: 1000, Resolution: ferrule.Raw}
	var got []float64
	wait.For(t, "all values are recorded", func() bool {
		series, err := g.History.Series(t.Context(), query)
		got = nil
		for _, s := range series {
			for _, p := range s.Points {
				got = append(got, p.Mean)
			}
		}
		return err == nil && len(got) >= 10
	})
	if want := []float64{10.25, 11.25, 12.25, 13.25, 14.25, 15.25, 16.25, 17.25, 18.25, 19.25}; !slices.Equal(got, want) {
		t.Errorf("recorded %v, want %v", got, want)
	}
	if picture := g.plot("living-room", "temperature", began, time.Now()); len(lineIn(picture)) == 0 {
		t.Error("the chart shows nothing")
	}
}
