package hass_test

import (
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/entity"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/zigbee"
)

// TestOverlayEffects checks the effects of the built-in overlay.
func TestOverlayEffects(t *testing.T) {
	file, err := overlay.Parse(hass.Overlay)
	if err != nil {
		t.Fatal(err)
	}
	set := overlay.NewSet(file)
	for want, classes := range map[string]string{
		"endangers": `lock.unlock lock.open cover.garage.open cover.gate.close cover.door.position cover.window.tilt valve.open valve.gas.open valve.position
			alarm_control_panel.disarm alarm_control_panel.trigger siren.on lawn_mower.start water_heater.temperature water_heater.mode water_heater.power
			button.restart.press button.update.press`,
		"endangers user_only": "update.install update.firmware.install",
		"changes idempotent": `switch.set switch.outlet.set light.set cover.open cover.blind.close cover.position cover.stop cover.garage.stop valve.stop valve.gas.stop
			lock.lock valve.close valve.gas.close alarm_control_panel.arm siren.off climate.temperature climate.mode fan.set fan.percentage humidifier.set humidifier.dehumidifier.target_humidity
			number.set number.temperature.set select.set text.set date.set time.set datetime.set scene.activate vacuum.stop lawn_mower.pause`,
		"changes": "button.press button.identify.press notify.send infrared.send vacuum.start vacuum.locate light.effect light.x.effect",
	} {
		for _, class := range strings.Fields(classes) {
			m := &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "x", Class: class}}}
			tool := set.Apply(hass.Name, "0123456789abcdef", "d", m).Tools[0]
			got := string(tool.Effect)
			if tool.Idempotent {
				got += " idempotent"
			}
			if tool.UserOnly {
				got += " user_only"
			}
			if got != want {
				t.Errorf("%s: got %s, want %s", class, got, want)
			}
			moves := strings.HasPrefix(class, "cover.") || strings.HasPrefix(class, "valve.")
			if moves && !strings.HasSuffix(class, ".stop") && time.Duration(tool.Deadline) != 65*time.Second {
				t.Errorf("%s: deadline %v", class, tool.Deadline)
			}
		}
	}
	state := set.Apply(hass.Name, "0123456789abcdef", "d", &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "state"}}}).Tools[0]
	if state.Effect != ferrule.Reads {
		t.Errorf("state: got %s", state.Effect)
	}
}

// TestOverlayCovers checks that no tool of a device depends on the default effect: each class
// of the corpus, and each of an entity that has every topic there is, is in the overlay.
func TestOverlayCovers(t *testing.T) {
	file, err := overlay.Parse(hass.Overlay)
	if err != nil {
		t.Fatal(err)
	}
	set := overlay.NewSet(file)
	seen := map[string]bool{}
	check := func(e *discovery.Entity) {
		for _, tool := range entity.Describe(e).Tools {
			if seen[tool.Class] {
				continue
			}
			seen[tool.Class] = true
			// The overlay has no class that reads, so that this effect stays if none matches.
			m := &ferrule.Manifest{Tools: []ferrule.Tool{{Name: tool.Name, Class: tool.Class, Effect: ferrule.Reads}}}
			if set.Apply(hass.Name, "0123456789abcdef", "d", m).Tools[0].Effect == ferrule.Reads {
				t.Errorf("no effect for %s", tool.Class)
			}
		}
	}
	for _, e := range everything(t) {
		check(&e)
	}
	if len(seen) < 100 {
		t.Errorf("only %d classes", len(seen))
	}
	t.Run("corpus", func(t *testing.T) {
		for _, m := range zigbee.Corpus(t) {
			topic, ok := discovery.ParseTopic("homeassistant", m.Topic)
			if !ok {
				continue
			}
			message, err := discovery.Parse(topic, []byte(m.Payload))
			if err != nil {
				t.Fatal(err)
			}
			check(&message.Entities[0])
		}
	})
}

// everything returns an entity of each component, with and without a device class, that has
// all topics, lists and payloads that have an abbreviation.
func everything(t *testing.T) (entities []discovery.Entity) {
	t.Helper()
	text, err := os.ReadFile("discovery/abbreviations.txt")
	if err != nil {
		t.Fatal(err)
	}
	options := discovery.Options{"automation_type": "trigger"}
	for _, name := range strings.Fields(string(text)) {
		switch {
		case strings.HasSuffix(name, "_topic"):
			options[name] = "home/" + name
		case strings.HasSuffix(name, "_modes"), strings.HasSuffix(name, "_list"), name == "modes", name == "options", name == "event_types":
			options[name] = []any{"a", "b"}
		case strings.HasPrefix(name, "payload_"):
			options[name] = name
		}
	}
	options["supported_color_modes"] = []any{"xy"}
	options["supported_features"] = []any{"start", "pause", "stop", "return_home", "clean_spot", "locate", "fan_speed", "arm_home", "arm_away", "trigger"}
	for _, component := range strings.Fields(`alarm_control_panel binary_sensor button camera climate cover date datetime device_automation device_tracker event fan
		humidifier image infrared lawn_mower light lock notify number scene select sensor siren switch tag text time update vacuum valve water_heater`) {
		for _, class := range []string{"", "x", "garage"} {
			own := maps.Clone(options)
			own["device_class"], own["reports_position"] = class, class == "x"
			entities = append(entities, discovery.Entity{Component: component, ObjectID: "it", Options: own})
		}
	}
	return entities
}
