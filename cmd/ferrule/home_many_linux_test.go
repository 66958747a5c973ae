package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/homeassistant"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// withHomeAssistant uses a Home Assistant, adopts all its devices, and permits everything.
func withHomeAssistant(ha *homeassistant.Home, edits ...func(*config.Home)) func(*config.Config) {
	return func(c *config.Config) {
		home := config.Home{URL: ha.URL, Name: "home", Token: ferrule.Secret(ha.Token), Adopt: "all"}
		for _, edit := range edits {
			edit(&home)
		}
		c.Devices.HomeAssistant = []config.Home{home}
		c.Policy.Preset = "open"
	}
}

// The home of TestHomeMany: helpers and templates.
const (
	manyEntities = 2000
	// manyMemory is the limit of memory for an entity, and manyTime that until all are listed.
	manyMemory = 3 << 10
	manyTime   = 5 * time.Second
)

// manyYAML returns the configuration of a home with many entities.
func manyYAML() string {
	var switches, numbers, sensors strings.Builder
	for i := range manyEntities / 4 {
		fmt.Fprintf(&switches, "  switch_%d: {name: Switch %d}\n  more_%d: {name: More %d}\n", i, i, i, i)
		fmt.Fprintf(&numbers, "  number_%d: {name: Number %d, min: 0, max: 100, step: 1}\n", i, i)
		fmt.Fprintf(&sensors, "      - {name: Sensor %d, unique_id: sensor_%d, state: '{{ %d }}', unit_of_measurement: W, device_class: power}\n", i, i, i)
	}
	return "input_boolean:\n" + switches.String() + "input_number:\n" + numbers.String() + "template:\n  - sensor:\n" + sensors.String()
}

// TestHomeMany: all 2,000 entities of a Home Assistant can be used. .ci/measure checks that they
// are read within 5 s, and that each needs at most 3 KB.
func TestHomeMany(t *testing.T) {
	ha := homeassistant.Start(t, homeassistant.Options{Bare: true, YAML: manyYAML()})
	empty := startGateway(t, nil)
	wait.For(t, "the empty gateway runs", func() bool { return empty.Addr() != "" })
	objects, stacks := memoryInUse()
	empty.stop()

	began, used := time.Now(), processTime(t)
	g := startGateway(t, nil, withHomeAssistant(ha, func(h *config.Home) { h.All = true }))
	for _, id := range []string{"input-boolean", "input-number", "template"} {
		g.online(id)
	}
	took, work := time.Since(began), processTime(t)-used
	t.Logf("%d entities are listed, with %v of processor time (%s)", manyEntities, work.Round(time.Millisecond), machineLoad())
	figure.AtMost(t, "time until all entities are listed", took, manyTime)
	agent := dialAgent(t, g, modern, "/mcp")
	told, err := agent.use(t.Context(), "input-boolean__turn_on", `{"entity":"input_boolean.switch_17"}`)
	if state, _ := ha.State(t, "input_boolean.switch_17"); err != nil || state != "on" || !strings.Contains(told.text, `"confirmed":true`) {
		t.Errorf("the switch is %s: %s, %v", state, told.text, err)
	}
	more, moreStacks := releasedMemory(objects + manyEntities*manyMemory)
	t.Logf("an entity needs %d bytes of stacks", (moreStacks-stacks)/manyEntities)
	figure.AtMost(t, "bytes of objects of an entity", (more-objects)/manyEntities, manyMemory)
}
