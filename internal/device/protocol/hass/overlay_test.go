package hass_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass"
	"github.com/ferrulehq/ferrule/internal/ferrule"
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
