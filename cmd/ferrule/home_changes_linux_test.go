package main

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/homeassistant"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// ownerOf returns a function that sends commands as the owner of a Home Assistant.
func ownerOf(t *testing.T, ha *homeassistant.Home) func(command string, fields map[string]any, out any) {
	t.Helper()
	client := api.New(api.Config{URL: ha.URL, Token: func() (string, error) { return ha.Token, nil }}, slog.New(slog.DiscardHandler))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		client.Run(t.Context())
	}()
	t.Cleanup(func() { <-ended }) // the context of the test has ended then
	return func(command string, fields map[string]any, out any) {
		t.Helper()
		conn, err := client.Connect(t.Context())
		if err == nil {
			err = conn.Request(t.Context(), command, fields, out)
		}
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
	}
}

// TestHomeChanges: what the owner changes in Home Assistant. A device with another name or area is
// the same device of the same Kind, and one that is not exposed any more has no tools. What Home
// Assistant has recorded before is in the history.
func TestHomeChanges(t *testing.T) {
	ha := homeassistant.Start(t, homeassistant.Options{YAML: "input_number: {level: {name: Level, min: 0, max: 100}}"})
	for _, level := range []int{10, 20} {
		ha.Call(t, "input_number", "set_value", map[string]any{"entity_id": "input_number.level", "value": level})
	}
	owner := ownerOf(t, ha)
	owner("homeassistant/expose_entity", map[string]any{"assistants": []string{"conversation"}, "entity_ids": []string{"input_number.level"}, "should_expose": true}, nil)
	g := startGateway(t, nil, func(c *config.Config) {
		c.Devices.HomeAssistant = []config.Home{{URL: ha.URL, Name: "home", Token: ferrule.Secret(ha.Token), Adopt: "all"}}
		c.Policy.Preset = "open"
	})
	g.online("bed-light")
	g.online("input-number")
	agent := dialAgent(t, g, modern, "/mcp")
	uses := func(tool string) bool {
		told, err := agent.use(t.Context(), tool, `{}`)
		return err == nil && !told.isError
	}

	t.Run("history", func(t *testing.T) {
		var past struct {
			Signals []struct{ Points []struct{ Value float64 } }
		}
		wait.For(t, "the history has both values", func() bool {
			agent.mustUse("gateway__history", `{"device":"input-number","since":"1h"}`, &past)
			var values []float64
			for _, s := range past.Signals {
				for _, p := range s.Points {
					values = append(values, p.Value)
				}
			}
			return slices.Contains(values, 10) && slices.Contains(values, 20)
		})
	})

	t.Run("rename and area", func(t *testing.T) {
		before, _, _ := g.Fleet.Lookup("bed-light")
		var devices []struct{ ID, Name string }
		owner("config/device_registry/list", nil, &devices)
		i := slices.IndexFunc(devices, func(d struct{ ID, Name string }) bool { return d.Name == "Bed Light" })
		owner("config/device_registry/update", map[string]any{"device_id": devices[i].ID, "name_by_user": "Night Lamp", "area_id": "kitchen"}, nil)
		wait.For(t, "the device has its new area", func() bool {
			after, _, ok := g.Fleet.Lookup("bed-light")
			return ok && after.Title == "Night Lamp" && after.Claims["area"] == "Kitchen"
		})
		after, _, _ := g.Fleet.Lookup("bed-light")
		if after.Kind != before.Kind || after.Address != before.Address || after.State != ferrule.StateOnline || !after.Since.Equal(before.Since) {
			t.Errorf("before %+v, after %+v", before, after)
		}
	})

	t.Run("unexpose", func(t *testing.T) {
		if !uses("bed-light__turn_on") {
			t.Fatal("the light cannot be used")
		}
		began := time.Now()
		owner("homeassistant/expose_entity", map[string]any{"assistants": []string{"conversation"}, "entity_ids": []string{"light.bed_light"}, "should_expose": false}, nil)
		wait.For(t, "the tools are gone", func() bool { return !uses("bed-light__turn_on") })
		figure.AtMost(t, "time until the tools are gone", time.Since(began), 2*time.Second)
		list, err := agent.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range list.Tools {
			if strings.HasPrefix(tool.Name, "bed-light__") {
				t.Errorf("%s is listed", tool.Name)
			}
		}
	})
}
