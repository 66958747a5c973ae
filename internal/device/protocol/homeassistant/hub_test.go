package homeassistant

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/testenv/homeassistant/fake"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// recorded is a Home Assistant that answers as a real one did; see home/testdata.
type recorded struct {
	*fake.Home
	url string

	mu      sync.Mutex
	answers map[string]any
	refused map[string]string // code of the error, by command
	call    func(c *fake.Conn, cmd fake.Command)
	conn    *fake.Conn
	subs    map[string]int64 // by event type
}

func playRecorded(t testing.TB) *recorded {
	t.Helper()
	r := &recorded{Home: fake.New(), refused: make(map[string]string), answers: map[string]any{"config/floor_registry/list": []any{}, "config/label_registry/list": []any{}}}
	for command, name := range map[string]string{
		"config/area_registry/list": "areas", "config/device_registry/list": "devices", "config/entity_registry/list": "entities",
		"entity/source": "sources", "homeassistant/expose_entity/list": "exposed", "get_services": "services", "subscribe_entities": "states",
	} {
		data, err := os.ReadFile(filepath.Join("home", "testdata", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		r.answers[command] = json.RawMessage(data)
	}
	r.state("RUNNING")
	r.Handle = r.handle
	r.url = r.Listen(t)
	return r
}

// state sets the state of Home Assistant.
func (r *recorded) state(state string) {
	r.set("get_config", map[string]any{"state": state, "unit_system": map[string]any{"temperature": "°C"}})
}

func (r *recorded) set(command string, answer any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[command] = answer
}

// edit changes an answer, a list of objects or an object of them.
func (r *recorded) edit(t testing.TB, command string, fn func(one map[string]any)) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	data, err := json.Marshal(r.answers[command])
	if err != nil {
		t.Fatal(err)
	}
	var all []map[string]any
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		fn(one)
	}
	r.answers[command] = all
}

func (r *recorded) handle(c *fake.Conn, cmd fake.Command) {
	r.mu.Lock()
	answer, known := r.answers[cmd.Type]
	code, call := r.refused[cmd.Type], r.call
	if r.conn != c {
		r.conn, r.subs = c, make(map[string]int64)
	}
	if name, ok := cmd.Fields["event_type"].(string); ok {
		r.subs[name] = cmd.ID
	}
	if cmd.Type == "subscribe_entities" {
		r.subs[cmd.Type] = cmd.ID
	}
	r.mu.Unlock()
	switch {
	case code != "":
		c.Fail(cmd.ID, code, "no")
	case cmd.Type == "call_service" && call != nil:
		call(c, cmd)
	case cmd.Type == "subscribe_entities":
		c.Result(cmd.ID, nil)
		c.Event(cmd.ID, answer)
	case cmd.Type == "subscribe_events" || cmd.Type == "unsubscribe_events" || cmd.Type == "call_service":
		c.Result(cmd.ID, map[string]any{"context": map[string]any{"id": "01C"}})
	case known:
		c.Result(cmd.ID, answer)
	default:
		c.Fail(cmd.ID, "unknown_command", "Unknown command.")
	}
}

// event sends an event of a subscription.
func (r *recorded) event(t testing.TB, name, event string) {
	t.Helper()
	r.mu.Lock()
	conn, id := r.conn, r.subs[name]
	r.mu.Unlock()
	if id == 0 {
		t.Fatalf("nobody has subscribed to %s", name)
	}
	if err := conn.Event(id, json.RawMessage(event)); err != nil {
		t.Fatal(err)
	}
}

// use runs a hub with the Home Assistant and waits until everything is read.
func (r *recorded) use(t *testing.T, cfg HubConfig) *watched {
	t.Helper()
	w := watch(t, r.url, fake.Token, cfg)
	wait.For(t, "everything is read", func() bool { return w.Status().Complete && w.has("Bed Light") })
	return w
}

func TestHubWaitsForRunning(t *testing.T) {
	r := playRecorded(t)
	r.state("STARTING")
	w := watch(t, r.url, fake.Token, HubConfig{})
	wait.For(t, "it is asked again", func() bool {
		asked := 0
		for _, cmd := range r.Commands() {
			if cmd.Type == "get_config" {
				asked++
			}
		}
		return asked > 2
	})
	if s := w.Status(); s.Complete || s.Devices > 0 || s.Note != errStarting.Error() {
		t.Errorf("while starting: %+v", s)
	}
	r.state("RUNNING")
	wait.For(t, "the devices are there", func() bool { return w.has("Bed Light") })
	if s := w.Status(); !s.Complete || s.Note != "" {
		t.Errorf("while running: %+v", s)
	}
}

func TestHubRecoveryMode(t *testing.T) {
	r := playRecorded(t)
	w := r.use(t, HubConfig{})
	r.set("get_config", map[string]any{"state": "RUNNING", "recovery_mode": true})
	r.event(t, "core_config_updated", `{}`)
	wait.For(t, "the device is offline", func() bool {
		s, _ := w.sighting("Bed Light")
		return strings.Contains(s.Absent, "recovery mode")
	})
}

// A user who is not an administrator may not read what is exposed, and an old Home Assistant does
// not know floors.
func TestHubWithoutRights(t *testing.T) {
	r := playRecorded(t)
	r.refused["homeassistant/expose_entity/list"] = "unauthorized"
	r.refused["config/floor_registry/list"] = "unknown_command"
	w := r.use(t, HubConfig{})
	if w.has("demo") || !w.has("Bed Light") || w.Status().Note != "" {
		t.Errorf("%+v", w.Status())
	}
}

func TestHubReadError(t *testing.T) {
	r := playRecorded(t)
	r.refused["config/device_registry/list"] = "unauthorized"
	w := watch(t, r.url, fake.Token, HubConfig{})
	wait.For(t, "the error is noted", func() bool { return strings.Contains(w.Status().Note, "config/device_registry/list") })
	if !w.Status().Complete {
		t.Error("others would wait for it forever")
	}
}

func TestHubAvailability(t *testing.T) {
	r := playRecorded(t)
	w := r.use(t, HubConfig{})
	before, _ := w.sighting("Bed Light")
	// For a moment only.
	r.event(t, "subscribe_entities", `{"c":{"light.bed_light":{"+":{"s":"unavailable","lc":2}}}}`)
	r.event(t, "subscribe_entities", `{"c":{"light.bed_light":{"+":{"s":"on","lc":3}}}}`)
	r.event(t, "subscribe_entities", `{"c":{"light.ceiling_lights":{"+":{"s":"unavailable","lc":2}}}}`)
	wait.For(t, "the other one is offline", func() bool {
		s, _ := w.sighting("Ceiling Lights")
		return s.Absent != ""
	})
	if after, _ := w.sighting("Bed Light"); after.Absent != "" || after.Instance != before.Instance {
		t.Errorf("after a moment: %+v", after)
	}
	r.event(t, "subscribe_entities", `{"c":{"light.ceiling_lights":{"+":{"s":"on","lc":4}}}}`)
	wait.For(t, "it is back", func() bool {
		s, _ := w.sighting("Ceiling Lights")
		return s.Absent == ""
	})
}

// Home Assistant may give a device another ID. Its identifiers tell that it is the same.
func TestHubKeepsAddress(t *testing.T) {
	r := playRecorded(t)
	w := r.use(t, HubConfig{})
	before, _ := w.sighting("Bed Light")
	if before.Address != "home/demo:light_1" {
		t.Errorf("address %s", before.Address)
	}
	var id string
	r.edit(t, "config/device_registry/list", func(d map[string]any) {
		if d["name"] == "Bed Light" {
			id, d["id"], d["name"] = d["id"].(string), "another", "Night Light"
			d["identifiers"] = [][]string{{"demo", "light_1"}, {"abc", "first"}}
		}
	})
	r.edit(t, "config/entity_registry/list", func(e map[string]any) {
		if e["device_id"] == id {
			e["device_id"] = "another"
		}
	})
	r.event(t, "device_registry_updated", `{}`)
	wait.For(t, "the device has its new name", func() bool { return w.has("Night Light") })
	if after, _ := w.sighting("Night Light"); after.Address != before.Address || after.Instance != before.Instance {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

func TestHubNewOffer(t *testing.T) {
	r := playRecorded(t)
	w := r.use(t, HubConfig{})
	link, offer, _ := w.open(t, "Bed Light")
	r.event(t, "subscribe_entities", `{"c":{"light.bed_light":{"+":{"a":{"supported_features":44},"lu":5}}}}`)
	var states map[string]home.State
	recv(t, link, channelStates, &states)
	var again home.Offer
	recv(t, link, channelOffer, &again)
	if offer.Device.Entities[0].Features != 4 || again.Device.Entities[0].Features != 44 {
		t.Errorf("features %d, then %d", offer.Device.Entities[0].Features, again.Device.Entities[0].Features)
	}
	// Another name changes nothing of the offer, and what is restored is described as before.
	r.event(t, "subscribe_entities", `{"a":{"light.bed_light":{"s":"unavailable","a":{"restored":true},"lc":9}}}`)
	recv(t, link, channelStates, &states)
	wait.For(t, "the device is offline", func() bool {
		s, _ := w.sighting("Bed Light")
		return s.Absent != ""
	})
	link, again, _ = w.open(t, "Bed Light")
	if again.Device.Entities[0].Features != 44 {
		t.Errorf("restored: %+v", again.Device.Entities[0])
	}
	link.Close()
}

// What is not in the registry may come late after a restart: its device keeps it.
func TestHubKeepsMissing(t *testing.T) {
	r := playRecorded(t)
	w := r.use(t, HubConfig{All: true})
	found := w.Status()
	var states map[string]map[string]json.RawMessage
	data, _ := json.Marshal(r.answers["subscribe_entities"])
	json.Unmarshal(data, &states)
	delete(states["a"], "lock.front_door")
	r.set("subscribe_entities", states)
	r.SetDown(true)
	wait.For(t, "the device is offline", func() bool {
		s, _ := w.sighting("demo")
		return strings.Contains(s.Absent, "unreachable")
	})
	r.SetDown(false)
	wait.For(t, "the device is back", func() bool {
		s, _ := w.sighting("demo")
		return s.Absent == "" && s.Address != ""
	})
	if again := w.Status(); again.Entities != found.Entities {
		t.Errorf("before %+v, after %+v", found, again)
	}
	_, offer, first := w.open(t, "demo")
	if !slices.ContainsFunc(offer.Device.Entities, func(e home.Entity) bool { return e.ID == "lock.front_door" }) || first["lock.front_door"].Value != "unavailable" {
		t.Errorf("the lock: %+v", first["lock.front_door"])
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.dropMissing(time.Now().Add(2*missingTime)) || w.states.JSON("lock.front_door") != nil {
		t.Error("the lock is kept for ever")
	}
}

func TestHubEntities(t *testing.T) {
	w := playRecorded(t).use(t, HubConfig{})
	all := w.Entities(func(id string) bool { return strings.HasPrefix(id, "lock.") || strings.HasPrefix(id, "light.bed") })
	if len(all) != 2 || all[0].ID != "light.bed_light" || all[0].Address != "home/demo:light_1" || all[0].Name != "Bed Light" || all[0].Device != "Bed Light" ||
		all[1].ID != "lock.front_door" || all[1].Address != "" || all[1].Reason == "" || all[1].State.Value != "locked" {
		t.Errorf("%+v", all)
	}
}

func TestLinkLosesConnection(t *testing.T) {
	r := playRecorded(t)
	w := r.use(t, HubConfig{})
	link, _, _ := w.open(t, "Bed Light")
	r.mu.Lock()
	r.call = func(*fake.Conn, fake.Command) { go r.SetDown(true) }
	r.mu.Unlock()
	send(t, link, call{ID: 1, Domain: "light", Service: "turn_on", Entities: []string{"light.bed_light"}})
	if m, err := link.Recv(t.Context()); err == nil || errors.Is(err, transport.ErrUnsent) {
		t.Errorf("%s %s, %v", m.Channel, m.Data, err)
	}
	err := link.Send(t.Context(), transport.Message{Channel: channelCall, Data: []byte(`{"id":2,"domain":"light","service":"turn_on","entities":["light.bed_light"]}`)})
	if !errors.Is(err, transport.ErrUnsent) {
		t.Errorf("after the end: %v", err)
	}
}

func TestLinkSlowReader(t *testing.T) {
	r := playRecorded(t)
	w := r.use(t, HubConfig{})
	link, _, _ := w.open(t, "Bed Light")
	const events = 2000
	for i := range events {
		r.event(t, "subscribe_entities", fmt.Sprintf(`{"c":{"light.bed_light":{"+":{"s":"on","a":{"brightness":%d},"lc":%d}}}}`, i, i+10))
	}
	last := fmt.Sprint(events - 1)
	wait.For(t, "all events are heard", func() bool {
		w.Hub.mu.Lock()
		defer w.Hub.mu.Unlock()
		return string(w.states.Get("light.bed_light").Attributes["brightness"]) == last
	})
	received := 0
	for newest := ""; newest != last; received++ {
		var states map[string]home.State
		recv(t, link, channelStates, &states)
		newest = string(states["light.bed_light"].Attributes["brightness"])
	}
	if received > 2*maxStates {
		t.Errorf("%d states were kept", received)
	}
}

func TestLinkTooManyCalls(t *testing.T) {
	r := playRecorded(t)
	w := r.use(t, HubConfig{})
	link, _, _ := w.open(t, "Bed Light")
	r.mu.Lock()
	r.call = func(*fake.Conn, fake.Command) {} // never answers
	r.mu.Unlock()
	on := call{Domain: "light", Service: "turn_on", Entities: []string{"light.bed_light"}}
	for range maxCalls {
		send(t, link, on)
	}
	data, _ := json.Marshal(on)
	if err := link.Send(t.Context(), transport.Message{Channel: channelCall, Data: data}); !errors.Is(err, transport.ErrUnsent) {
		t.Errorf("one more: %v", err)
	}
}

// Secrets of the home do not come back in responses and traces.
func TestLinkSecrets(t *testing.T) {
	r := playRecorded(t)
	w := r.use(t, HubConfig{})
	link, _, _ := w.open(t, "Bed Light")
	var traced strings.Builder
	link.(transport.Traceable).Observe(func(f transport.Frame) { fmt.Fprintf(&traced, "%s %s\n", f.Message.Data, f.Note) })
	r.mu.Lock()
	r.call = func(c *fake.Conn, cmd fake.Command) {
		c.Result(cmd.ID, map[string]any{"context": map[string]any{"id": "01C"}, "response": map[string]any{"access_token": "SECRET", "picture": "/a?token=SECRET", "n": 1}})
	}
	r.mu.Unlock()
	send(t, link, call{ID: 3, Domain: "light", Service: "turn_on", Entities: []string{"light.bed_light"}, Answer: true, Secret: true, Data: map[string]any{"code": "SECRET"}})
	var answer result
	m := recv(t, link, channelResult, &answer)
	if strings.Contains(string(m.Data), "SECRET") || !strings.Contains(string(answer.Response), `"n":1`) {
		t.Errorf("result: %s", m.Data)
	}
	if text := traced.String(); strings.Contains(text, "SECRET") || !strings.Contains(text, "light.turn_on") {
		t.Errorf("trace: %s", text)
	}
}

// TestHubMany prints the memory of a hub for an entity, with many devices.
func TestHubMany(t *testing.T) {
	const devices, each = 500, 4
	r := playRecorded(t)
	var registry, entities []map[string]any
	states := make(map[string]any)
	for i := range devices {
		id := fmt.Sprintf("device%d", i)
		registry = append(registry, map[string]any{"id": id, "name": fmt.Sprintf("Lamp %d", i), "model": "Lamp", "identifiers": [][]string{{"zha", id}}})
		for j, domain := range []string{"light", "switch", "sensor", "binary_sensor"} {
			entity := fmt.Sprintf("%s.lamp_%d", domain, i)
			entities = append(entities, map[string]any{"entity_id": entity, "unique_id": fmt.Sprintf("%d-%d", i, j), "platform": "zha", "device_id": id,
				"options": map[string]any{"conversation": map[string]any{"should_expose": true}}})
			states[entity] = map[string]any{"s": "on", "a": map[string]any{"friendly_name": fmt.Sprintf("Lamp %d %s", i, domain), "supported_features": 44,
				"supported_color_modes": []string{"color_temp", "hs"}, "min_color_temp_kelvin": 2000, "max_color_temp_kelvin": 6500, "brightness": 128}, "c": "01J000", "lc": 1743500000.1}
		}
	}
	r.set("config/device_registry/list", registry)
	r.set("config/entity_registry/list", entities)
	r.set("subscribe_entities", map[string]any{"a": states})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := time.Now()
	w := watch(t, r.url, fake.Token, HubConfig{})
	wait.For(t, "everything is read", func() bool { return w.Status().Complete })
	took := time.Since(began)
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	status := w.Status()
	t.Logf("%d entities of %d devices after %v, %d bytes each", status.Entities, status.Devices, took.Round(time.Millisecond), int(after.HeapAlloc-before.HeapAlloc)/status.Entities)
	if status.Devices != devices || status.Entities != devices*each {
		t.Errorf("%+v", status)
	}
	runtime.KeepAlive(maps.Keys(states))
}
