package api_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/api"
	"github.com/ferrulehq/ferrule/internal/testenv/homeassistant"
)

// run runs a client until the test ends.
func run(t *testing.T, cfg api.Config) *api.Client {
	t.Helper()
	c := api.New(cfg, slog.New(slog.DiscardHandler))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(t.Context()) }()
	t.Cleanup(func() { // the context has ended
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return c
}

// TestHomeConnection uses the API of a real Home Assistant.
func TestHomeConnection(t *testing.T) {
	home := homeassistant.Start(t, homeassistant.Options{})
	client := run(t, api.Config{URL: home.URL, Token: func() (string, error) { return home.Token + "\n", nil }})
	conn, err := client.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var config struct{ Version, State string }
	if err := conn.Request(t.Context(), "get_config", nil, &config); err != nil || config.Version != conn.Version() || config.State != "RUNNING" {
		t.Errorf("config %+v, version %s, error %v", config, conn.Version(), err)
	}
	type states struct {
		Added   map[string]struct{ S string }            `json:"a"`
		Changed map[string]map[string]struct{ S string } `json:"c"`
	}
	events := make(chan states, 100)
	stop, err := conn.Subscribe(t.Context(), "subscribe_entities", map[string]any{"entity_ids": []string{"light.bed_light"}}, func(event json.RawMessage) {
		var s states
		if err := json.Unmarshal(event, &s); err != nil {
			t.Error(err)
		}
		events <- s
	})
	if err != nil {
		t.Fatal(err)
	}
	if first := <-events; first.Added["light.bed_light"].S != "off" {
		t.Errorf("first event %+v", first)
	}
	call := map[string]any{"domain": "light", "service": "turn_on", "target": map[string]any{"entity_id": "light.bed_light"}}
	if err := conn.Request(t.Context(), "call_service", call, nil); err != nil {
		t.Fatal(err)
	}
	if next := <-events; next.Changed["light.bed_light"]["+"].S != "on" {
		t.Errorf("next event %+v", next)
	}
	stop()
	call["service"] = "explode"
	var refused *api.Error
	if err := conn.Request(t.Context(), "call_service", call, nil); !errors.As(err, &refused) || refused.Code != "not_found" || !refused.Refused() {
		t.Errorf("unknown service: %v", err)
	}
}
