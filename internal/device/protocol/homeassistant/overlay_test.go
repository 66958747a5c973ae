package homeassistant_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/confirm"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/describe"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// effect returns what the built-in overlay says about a tool, in one line.
func effect(t *testing.T, tool ferrule.Tool) string {
	t.Helper()
	file, err := overlay.Parse(homeassistant.Overlay)
	if err != nil {
		t.Fatal(err)
	}
	m := &ferrule.Manifest{Tools: []ferrule.Tool{tool}}
	got := overlay.NewSet(file).Apply(homeassistant.Name, "0123456789abcdef", "d", m).Tools[0]
	text := string(got.Effect)
	if got.Idempotent {
		text += " idempotent"
	}
	if got.UserOnly {
		text += " user_only"
	}
	if moves := strings.HasPrefix(tool.Class, "cover.") || strings.HasPrefix(tool.Class, "valve."); moves && !strings.Contains(tool.Class, ".stop_") && time.Duration(got.Deadline) != 65*time.Second {
		t.Errorf("%s: deadline %v", tool.Class, got.Deadline)
	}
	return text
}

// TestOverlayOfHome checks that the home itself has time to wait for a cover.
func TestOverlayOfHome(t *testing.T) {
	file, err := overlay.Parse(homeassistant.HomeOverlay)
	if err != nil {
		t.Fatal(err)
	}
	m := &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "call_service", Effect: ferrule.Endangers}}}
	tool := overlay.NewSet(file).Apply(homeassistant.HomeName, "0123456789abcdef", "home", m).Tools[0]
	if time.Duration(tool.Deadline) <= confirm.Longest || tool.Effect != ferrule.Endangers {
		t.Errorf("got %+v", tool)
	}
}

// TestOverlayEffects checks the effects of the built-in overlay.
func TestOverlayEffects(t *testing.T) {
	for want, classes := range map[string]string{
		"endangers": `lock.unlock lock.open alarm_control_panel.alarm_disarm alarm_control_panel.alarm_trigger
			cover.garage.open_cover cover.garage.toggle cover.gate.close_cover cover.door.set_cover_position cover.window.open_cover_tilt cover.any.open_cover
			valve.open_valve valve.gas.open_valve valve.set_valve_position valve.water.toggle siren.turn_on siren.toggle lawn_mower.start_mowing
			water_heater.set_temperature water_heater.turn_on water_heater.turn_off water_heater.set_operation_mode
			button.restart.press button.update.press button.any.press script.turn_on script.toggle automation.trigger vacuum.send_command
			integration.zha.set_lock_user_code integration.sonos.snapshot`,
		"endangers user_only": "update.install update.firmware.install",
		"changes idempotent": `switch.turn_on switch.outlet.turn_off light.turn_on light.turn_off climate.set_temperature climate.turn_off fan.set_percentage
			humidifier.humidifier.set_humidity number.set_value number.temperature.set_value select.select_option text.set_value date.set_value
			cover.open_cover cover.blind.close_cover cover.set_cover_position cover.stop_cover cover.garage.stop_cover cover.any.stop_cover cover.gate.stop_cover_tilt
			valve.close_valve valve.gas.close_valve valve.stop_valve lock.lock alarm_control_panel.alarm_arm_away siren.turn_off scene.turn_on
			vacuum.stop vacuum.pause vacuum.return_to_base lawn_mower.dock lawn_mower.pause automation.turn_on automation.turn_off script.turn_off
			media_player.volume_set media_player.tv.turn_on media_player.media_pause update.skip input_boolean.turn_on`,
		"changes": `light.toggle switch.toggle switch.outlet.toggle climate.toggle cover.toggle cover.blind.toggle fan.increase_speed button.press button.identify.press
			notify.send_message vacuum.start vacuum.clean_spot vacuum.locate remote.send_command media_player.play_media media_player.media_next_track
			media_player.tv.volume_up media_player.toggle counter.increment input_number.increment select.select_next calendar.create_event todo.add_item`,
		"reads": "weather.get_forecasts calendar.get_events media_player.browse_media media_player.tv.browse_media todo.get_items",
	} {
		for _, class := range strings.Fields(classes) {
			if got := effect(t, ferrule.Tool{Name: "x", Class: class}); got != want {
				t.Errorf("%s: got %s, want %s", class, got, want)
			}
		}
	}
	for _, name := range []string{describe.ReadState, describe.GetPicture} {
		if got := effect(t, ferrule.Tool{Name: name}); got != "reads" {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

// TestOverlayCovers checks that no tool of a real Home Assistant depends on the default effect.
func TestOverlayCovers(t *testing.T) {
	file, err := overlay.Parse(homeassistant.Overlay)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("describe/testdata/demo.json")
	if err != nil {
		t.Fatal(err)
	}
	var demo struct {
		Devices  []home.Device
		Services []home.Service
	}
	if err := json.Unmarshal(data, &demo); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, d := range demo.Devices {
		m, _ := describe.Device(&home.Offer{Device: d, Services: demo.Services})
		for _, tool := range m.Tools {
			if tool.Class == "" && (tool.Name == describe.ReadState || tool.Name == describe.GetPicture) {
				continue
			}
			checked++
			domain, rest, _ := strings.Cut(tool.Class, ".")
			if strings.Contains(rest, ".") {
				rest = "*.*"
			} else {
				rest = "*"
			}
			if _, ok := file.Classes[domain+"."+rest]; !ok {
				t.Errorf("%s of %s is not in the overlay", tool.Class, d.Name)
			}
		}
	}
	if checked < 150 {
		t.Errorf("%d tools checked", checked)
	}
}
