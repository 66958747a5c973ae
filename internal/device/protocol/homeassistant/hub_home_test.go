package homeassistant

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/api"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/homeassistant"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// watched is a hub that runs, with its last sightings.
type watched struct {
	*Hub
	client *api.Client

	mu  sync.Mutex
	all map[string]transport.Sighting
}

// watch runs a hub until the test ends.
func watch(t *testing.T, url, token string, cfg HubConfig) *watched {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	client := api.New(api.Config{URL: url, Token: func() (string, error) { return token, nil }}, log)
	cfg.Home = "home"
	w := &watched{Hub: NewHub(cfg, client, log), client: client, all: make(map[string]transport.Sighting)}
	ctx, cancel := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	tasks.Go(func() { client.Run(ctx) })
	tasks.Go(func() { w.Watch(ctx, w.update) })
	t.Cleanup(func() {
		cancel()
		tasks.Wait()
	})
	return w
}

func (w *watched) update(group string, all []transport.Sighting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, group)
	for _, s := range all {
		w.all[s.Address] = s
	}
}

// sighting returns the sighting of the device with a title.
func (w *watched) sighting(title string) (transport.Sighting, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, address := range slices.Sorted(maps.Keys(w.all)) {
		if w.all[address].Title == title {
			return w.all[address], true
		}
	}
	return transport.Sighting{}, false
}

func (w *watched) has(title string) bool {
	_, found := w.sighting(title)
	return found
}

// open opens a device and returns its offer and first states.
func (w *watched) open(t *testing.T, title string) (transport.Link, home.Offer, map[string]home.State) {
	t.Helper()
	s, found := w.sighting(title)
	if !found {
		t.Fatalf("no device %q", title)
	}
	link, err := s.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close() })
	var offer home.Offer
	recv(t, link, channelOffer, &offer)
	var states map[string]home.State
	if m := recv(t, link, channelStates, &states); !m.Retained {
		t.Error("the first states are not retained")
	}
	return link, offer, states
}

// recv returns the next message, which must have a channel.
func recv(t *testing.T, link transport.Link, channel string, out any) transport.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	m, err := link.Recv(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if m.Channel != channel {
		t.Fatalf("channel %s: %s", m.Channel, m.Data)
	}
	if err := json.Unmarshal(m.Data, out); err != nil {
		t.Fatal(err)
	}
	return m
}

// request sends a command over the connection of the hub.
func (w *watched) request(t *testing.T, command string, fields map[string]any, out any) {
	t.Helper()
	conn, err := w.client.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Request(t.Context(), command, fields, out); err != nil {
		t.Fatal(err)
	}
}

func TestHomeHub(t *testing.T) {
	ha := homeassistant.Start(t, homeassistant.Options{YAML: "input_number: {level: {name: Level, min: 0, max: 100}}"})
	for _, level := range []int{10, 20, 30} {
		ha.Ask(t, "POST", "/api/services/input_number/set_value", map[string]any{"entity_id": "input_number.level", "value": level}, nil)
	}
	w := watch(t, ha.URL, ha.Token, HubConfig{})
	wait.For(t, "everything is read", func() bool { return w.Status().Complete })
	status := w.Status()
	t.Logf("%+v", status)
	if status.Devices < 20 || status.Entities < 40 || status.Hidden < 20 || status.Note != "" {
		t.Errorf("found: %+v", status)
	}

	t.Run("call", func(t *testing.T) {
		link, offer, states := w.open(t, "Bed Light")
		if len(offer.Device.Entities) != 1 || offer.Device.Entities[0].Key != "light" || offer.Temperature != "°C" {
			t.Errorf("offer: %+v", offer.Device)
		}
		if states["light.bed_light"].Value != "off" {
			t.Errorf("states: %+v", states)
		}
		send(t, link, call{ID: 7, Domain: "light", Service: "turn_on", Data: map[string]any{"brightness_pct": 40}, Entities: []string{"light.bed_light"}})
		var changed map[string]home.State
		m := recv(t, link, channelStates, &changed)
		var answer result
		recv(t, link, channelResult, &answer)
		now := changed["light.bed_light"]
		if m.Retained || now.Value != "on" || string(now.Attributes["brightness"]) != "102" || answer.ID != 7 || answer.Error != nil || answer.Context != now.Context {
			t.Errorf("%s, then %+v", m.Data, answer)
		}
		for _, c := range []call{
			{Domain: "light", Service: "turn_on", Entities: []string{"light.ceiling_lights"}},
			{Domain: "homeassistant", Service: "restart", Entities: []string{"light.bed_light"}},
			{Domain: "light", Service: "turn_on"},
		} {
			data, _ := json.Marshal(c)
			if err := link.Send(t.Context(), transport.Message{Channel: channelCall, Data: data}); err == nil || !strings.Contains(err.Error(), transport.ErrUnsent.Error()) {
				t.Errorf("%+v was sent: %v", c, err)
			}
		}
		send(t, link, call{ID: 8, Domain: "light", Service: "turn_on", Data: map[string]any{"nonsense": 1}, Entities: []string{"light.bed_light"}})
		recv(t, link, channelResult, &answer)
		if answer.Error == nil || answer.Error.Code != "invalid_format" {
			t.Errorf("answer to nonsense: %+v", answer)
		}
	})

	t.Run("past", func(t *testing.T) { w.testPast(t) })

	t.Run("rename and area", func(t *testing.T) {
		before, _ := w.sighting("Ceiling Lights")
		_, offer, _ := w.open(t, "Ceiling Lights")
		w.request(t, "config/device_registry/update", map[string]any{"device_id": offer.Device.ID, "name_by_user": "Big Lamp", "area_id": "kitchen"}, nil)
		wait.For(t, "the device has its new name", func() bool { return w.has("Big Lamp") })
		after, _ := w.sighting("Big Lamp")
		if after.Address != before.Address || after.Instance != before.Instance || after.Claims["area"] != "Kitchen" {
			t.Errorf("before %+v, after %+v", before, after)
		}
	})

	t.Run("unexpose", func(t *testing.T) {
		link, _, _ := w.open(t, "Kitchen Lights")
		began := time.Now()
		w.request(t, "homeassistant/expose_entity", map[string]any{"assistants": []string{"conversation"}, "entity_ids": []string{"light.kitchen_lights"}, "should_expose": false}, nil)
		wait.For(t, "the device is gone", func() bool { return !w.has("Kitchen Lights") })
		t.Logf("gone after %v", time.Since(began))
		if _, err := link.Recv(t.Context()); err == nil {
			t.Error("the link is still there")
		}
	})

	t.Run("restart", func(t *testing.T) {
		before, _ := w.sighting("Bed Light")
		found := w.Status()
		ha.Stop(t)
		wait.For(t, "the device is absent", func() bool { s, _ := w.sighting("Bed Light"); return s.Absent != "" })
		ha.Restart(t)
		began := time.Now()
		wait.For(t, "the device is back", func() bool { s, _ := w.sighting("Bed Light"); return s.Absent == "" })
		t.Logf("back after %v", time.Since(began))
		if again := w.Status(); again.Devices != found.Devices || again.Entities != found.Entities {
			t.Errorf("before %+v, after %+v", found, again)
		}
		if after, _ := w.sighting("Bed Light"); after.Address != before.Address || after.Instance <= before.Instance {
			t.Errorf("before %+v, after %+v", before, after)
		}
	})
}

func send(t *testing.T, link transport.Link, c call) {
	t.Helper()
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := link.Send(t.Context(), transport.Message{Channel: channelCall, Data: data}); err != nil {
		t.Fatal(err)
	}
}

// testPast reads what the recorder has: samples of an entity that has changed before the hub was
// there, and hours that are older.
func (w *watched) testPast(t *testing.T) {
	w.request(t, "homeassistant/expose_entity", map[string]any{"assistants": []string{"conversation"}, "entity_ids": []string{"input_number.level"}, "should_expose": true}, nil)
	wait.For(t, "the group is there", func() bool { return w.has("input_number") })
	level, _ := w.sighting("input_number")
	latest := w.Latest(level.Address)
	if len(latest) != 1 || latest[0].Value != 30 || time.Since(latest[0].Time) > time.Hour {
		t.Fatalf("latest: %+v", latest)
	}
	now := time.Now()
	var past *ferrule.Past
	wait.For(t, "the recorder has written", func() bool {
		var err error
		past, err = w.Past(t.Context(), level.Address, latest[0].Signal, now.Add(-time.Hour), time.Now())
		return err == nil && len(past.Samples) >= 3 && past.Samples[len(past.Samples)-1].Value == 30
	})
	last := past.Samples[len(past.Samples)-1]
	if now.Sub(last.Time).Abs() > 10*time.Minute {
		t.Errorf("samples: %+v", past.Samples)
	}

	outside, _ := w.sighting("Outside Temperature")
	start := now.Add(-72 * time.Hour).Truncate(time.Hour).UTC()
	w.request(t, "recorder/import_statistics", map[string]any{
		"metadata": map[string]any{"has_mean": true, "has_sum": false, "name": nil, "source": "recorder", "statistic_id": "sensor.outside_temperature", "unit_of_measurement": "°C"},
		"stats":    []map[string]any{{"start": start.Format(time.RFC3339), "mean": 11.5, "min": 10, "max": 13}},
	}, nil)
	wait.For(t, "the recorder has the hour", func() bool {
		var err error
		past, err = w.Past(t.Context(), outside.Address, "temperature", now.Add(-100*time.Hour), time.Now())
		return err == nil && len(past.Hours) > 0
	})
	if hour := past.Hours[0]; !hour.Time.Equal(start) || hour.Mean != 11.5 || hour.Min != 10 || hour.Max != 13 || past.Unit != "°C" {
		t.Errorf("hours: %+v, unit %s", past.Hours, past.Unit)
	}
}
