package catalog_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// kinds are the tools of household devices: name, class and text of each. The last line is
// the values that a device reports.
var kinds = map[string]string{
	"bulb": `light|light.set|Switches light on or off and sets how it shines.
light_effect|light.effect|Starts an effect of light.
brightness, color_temp, light`,
	"plug": `switch|switch.set|Switches switch on or off.
energy (kWh), power (W), switch, voltage (V)`,
	"blind": `cover_open|cover.open|Opens cover.
cover_close|cover.close|Closes cover.
cover_stop|cover.stop|Stops cover.
cover_position|cover.position|Moves cover to a position. 0 is closed, 100 is open.
cover, position (%)`,
	"lock": `front_lock|lock.lock|Locks front.
front_unlock|lock.unlock|Unlocks front.
battery (%), front`,
	"thermostat": `climate_temperature|climate.temperature|Sets the temperature that climate keeps.
climate_mode|climate.mode|Sets the mode of climate.
battery (%), local_temperature (°C), setpoint (°C)`,
	"temperature": `battery (%), humidity (%), temperature (°C)`,
	"motion":      `battery (%), illuminance (lx), occupancy`,
	"contact":     `battery (%), contact`,
	"leak":        `battery (%), water_leak`,
	"smoke":       `battery (%), smoke`,
	"air":         `co2 (ppm), pm25 (µg/m³), voc (ppb)`,
	"meter":       `current (A), energy (kWh), power (W)`,
	"fan": `fan|fan.set|Switches fan on or off.
fan_percentage|fan.percentage|Sets the speed of fan.
fan, percentage (%)`,
	"vacuum": `vacuum_start|vacuum.start|Starts vacuum.
vacuum_stop|vacuum.stop|Stops vacuum.
vacuum_return_to_base|vacuum.return_to_base|Sends vacuum to its base.
vacuum_locate|vacuum.locate|Makes vacuum say where it is.
battery (%), vacuum`,
	"garage": `door_open|cover.garage.open|Opens door.
door_close|cover.garage.close|Closes door.
door_stop|cover.garage.stop|Stops door.
door`,
	"siren": `siren|siren.set|Switches siren on or off.
siren`,
	"valve": `valve_open|valve.open|Opens valve.
valve_close|valve.close|Closes valve.
valve`,
	"humidifier": `humidifier|humidifier.set|Switches humidifier on or off.
humidifier_humidity|humidifier.humidity|Sets the humidity that humidifier keeps.
humidifier, humidity (%)`,
	"alarm": `alarm_arm_away|alarm_control_panel.arm_away|Arms alarm for an empty home.
alarm_arm_home|alarm_control_panel.arm_home|Arms alarm while people are at home.
alarm_disarm|alarm_control_panel.disarm|Disarms alarm.
alarm`,
	"boiler": `water_heater_temperature|water_heater.temperature|Sets the temperature that water heater keeps.
water_heater_mode|water_heater.mode|Sets the mode of water heater.
current_temperature (°C), setpoint (°C)`,
}

// homeDevices are kind, ID and area. Some names say nothing about the area or the kind.
const homeDevices = `bulb kitchen-ceiling-lamp kitchen
bulb kitchen-counter-strip kitchen
bulb living-room-floor-lamp living_room
bulb living-room-ceiling living_room
bulb hue-bulb-3 bedroom
bulb bedside-lamp-left bedroom
bulb bedside-lamp-right bedroom
bulb hall-light hall
bulb bathroom-mirror-light bathroom
bulb porch-light porch
bulb desk-lamp office
bulb 0x00158d0001a2b3c4 cellar
bulb nursery-night-light nursery
plug coffee-machine kitchen
plug kettle-plug kitchen
plug tv-plug living_room
plug washing-machine laundry
plug christmas-tree living_room
plug heater-outlet office
plug office-printer office
blind living-room-blinds living_room
blind bedroom-blind bedroom
blind office-shutter office
blind nursery-curtain nursery
lock front-door-lock hall
lock back-door-lock kitchen
thermostat living-room-thermostat living_room
thermostat bedroom-radiator bedroom
thermostat bathroom-trv bathroom
thermostat office-heating office
temperature bathroom-sensor bathroom
temperature bedroom-climate-sensor bedroom
temperature greenhouse-sensor garden
temperature fridge-thermometer kitchen
temperature wine-cellar-sensor cellar
temperature outdoor-sensor garden
motion hall-motion hall
motion garage-motion garage
motion bathroom-presence bathroom
motion stairs-pir stairs
contact back-door kitchen
contact front-door-contact hall
contact bedroom-window bedroom
contact kitchen-window kitchen
contact mailbox porch
leak washing-machine-leak laundry
leak sink-leak kitchen
smoke kitchen-smoke kitchen
smoke bedroom-smoke-detector bedroom
air living-room-air living_room
meter main-meter cellar
meter solar-inverter roof
fan bedroom-fan bedroom
fan bathroom-extractor bathroom
vacuum robbie living_room
garage garage-door garage
siren indoor-siren hall
valve garden-irrigation garden
humidifier nursery-humidifier nursery
alarm house-alarm hall
boiler hot-water cellar`

// home returns a catalog with the devices of a home, and their manifests by ID.
func home() (*catalog.Catalog, map[string]*ferrule.Manifest) {
	c := some(40)
	manifests, of := make(map[string]*ferrule.Manifest), make(map[string]*ferrule.Manifest)
	for kind, text := range kinds {
		lines := strings.Split(text, "\n")
		m := manifest("AB-"+kind[:1]+"1", "state")
		m.Tools[0] = ferrule.Tool{
			Name: "state", Effect: ferrule.Reads,
			Text: "Returns what the device last reported, with the age of each value. Nothing is sent to the device. Values: " + lines[len(lines)-1] + ".",
		}
		for _, line := range lines[:len(lines)-1] {
			parts := strings.Split(line, "|")
			m.Tools = append(m.Tools, ferrule.Tool{Name: parts[0], Class: parts[1], Text: parts[2], Effect: ferrule.Changes})
		}
		manifests[kind] = m
	}
	for line := range strings.Lines(homeDevices) {
		parts := strings.Fields(line)
		m := manifests[parts[0]]
		dev := online(parts[1], m)
		dev.Labels = map[string]string{"area": parts[2]}
		c.Put(dev, m)
		of[dev.ID] = m
	}
	return c, of
}

// questions are what people say, the device and the tool that they need.
const questions = `turn on the lamp in the kitchen|kitchen-ceiling-lamp|light
is the back door open|back-door|state
how warm is it in the bathroom|bathroom-sensor|state
close the blinds in the bedroom|bedroom-blind|cover_close
lock the front door|front-door-lock|front_lock
what is the battery of the motion sensor in the hall|hall-motion|state
switch off the desk lamp|desk-lamp|light
dim the lights in the living room|living-room-floor-lamp|light
set the heating in the office to 21 degrees|office-heating|climate_temperature
unlock the back door|back-door-lock|front_unlock
is there smoke in the kitchen|kitchen-smoke|state
how much power does the washing machine use|washing-machine|state
turn off the TV|tv-plug|switch
open the garage door|garage-door|door_open
start the robot vacuum|robbie|vacuum_start
send the vacuum back to its base|robbie|vacuum_return_to_base
what is the humidity in the bedroom|bedroom-climate-sensor|state
is anybody in the bathroom|bathroom-presence|state
has the mailbox been opened|mailbox|state
turn on the coffee machine|coffee-machine|switch
make the light in the hall brighter|hall-light|light
is the bedroom window closed|bedroom-window|state
raise the shutter in the office|office-shutter|cover_open
draw the curtains in the nursery|nursery-curtain|cover_close
how cold is it outside in the garden|outdoor-sensor|state
set the thermostat in the living room to 20|living-room-thermostat|climate_temperature
is there a water leak under the sink|sink-leak|state
turn the fan in the bedroom to half speed|bedroom-fan|fan_percentage
arm the alarm, everybody is leaving|house-alarm|alarm_arm_away
disarm the alarm|house-alarm|alarm_disarm
water the garden|garden-irrigation|valve_open
stop the irrigation in the garden|garden-irrigation|valve_close
how is the air quality in the living room|living-room-air|state
what does the solar inverter produce|solar-inverter|state
turn off the Christmas tree|christmas-tree|switch
switch on the porch light|porch-light|light
sound the siren|indoor-siren|siren
set the blinds in the living room to 50 percent|living-room-blinds|cover_position
where is the vacuum cleaner|robbie|vacuum_locate
what is the CO2 level in the living room|living-room-air|state
turn down the radiator in the bedroom|bedroom-radiator|climate_temperature
make the bulb in the cellar blue|0x00158d0001a2b3c4|light
how warm is the fridge|fridge-thermometer|state
current electricity consumption of the house meter|main-meter|state
turn off the outlet of the heater in the office|heater-outlet|switch
make the hot water warmer|hot-water|water_heater_temperature
turn on the bathroom extractor fan|bathroom-extractor|fan
keep the nursery at 50 percent humidity|nursery-humidifier|humidifier_humidity
blink the lamp on the left side of the bed|bedside-lamp-left|light_effect
is the front door locked|front-door-lock|state`

// asked returns how many questions are answered: the device is among the first three that
// are found, and the tool among the first three.
func asked(t *testing.T, questions string) (right, all int) {
	c, manifests := home()
	for line := range strings.Lines(questions) {
		parts := strings.Split(strings.TrimSpace(line), "|")
		m := manifests[parts[1]]
		if m == nil || !slices.ContainsFunc(m.Tools, func(tool ferrule.Tool) bool { return tool.Name == parts[2] }) {
			t.Fatalf("%s has no tool %s", parts[1], parts[2])
		}
		devices, _ := c.All().FindDevices(parts[0], 3)
		tools, _ := c.All().FindTools(parts[0], "", 3)
		device := slices.ContainsFunc(devices, func(d *ferrule.Device) bool { return d.ID == parts[1] })
		tool := slices.ContainsFunc(tools, func(o ferrule.Offer) bool {
			return slices.ContainsFunc(m.Tools, func(t ferrule.Tool) bool { return t.Name == parts[2] && t.Name == o.Tool.Name && t.Text == o.Tool.Text })
		})
		all++
		if device && tool {
			right++
			continue
		}
		var ids, names []string
		for _, d := range devices {
			ids = append(ids, d.ID)
		}
		for _, o := range tools {
			names = append(names, o.Name)
		}
		t.Logf("%s: want %s %s, found %q (%t), %q (%t)", parts[0], parts[1], parts[2], ids, device, names, tool)
	}
	return right, all
}

// TestQuestions checks that agents find the lamp in the kitchen with the words that people
// use.
func TestQuestions(t *testing.T) {
	if right, all := asked(t, questions); right < 48 || all != 50 {
		t.Errorf("%d of %d questions are answered", right, all)
	} else {
		t.Logf("%d of %d", right, all)
	}
}

// heldOut are questions that were written after the search was, and did not change it.
const heldOut = `switch the kettle off|kettle-plug|switch
are the lights in the nursery on|nursery-night-light|state
lower the living room blinds|living-room-blinds|cover_close
what temperature does the wine cellar have|wine-cellar-sensor|state
did somebody walk up the stairs|stairs-pir|state
shut the garage|garage-door|door_close
unlock the front door for the guests|front-door-lock|front_unlock
give me a warmer office|office-heating|climate_temperature
put the bathroom heating on auto mode|bathroom-trv|climate_mode
is the washing machine leaking|washing-machine-leak|state
how many watts is the printer drawing|office-printer|state
lights off in the bathroom|bathroom-mirror-light|light
let the hoover go home|robbie|vacuum_return_to_base
stop the shutters in the office|office-shutter|cover_stop
is the kitchen window open|kitchen-window|state
how humid is the greenhouse|greenhouse-sensor|state
battery level of the smoke detector in the bedroom|bedroom-smoke-detector|state
turn on the strip above the kitchen counter|kitchen-counter-strip|light
we are staying in tonight, arm the alarm for home|house-alarm|alarm_arm_home
is there movement in the garage|garage-motion|state
open the garden valve|garden-irrigation|valve_open
silence the siren|indoor-siren|siren
how much energy did the house use today according to the main meter|main-meter|state
flash the floor lamp|living-room-floor-lamp|light_effect
turn the right bedside lamp to 20 percent|bedside-lamp-right|light`

// TestHeldOut checks questions that the search was not made for.
func TestHeldOut(t *testing.T) {
	right, all := asked(t, heldOut)
	t.Logf("%d of %d", right, all)
	if right < 23 || all != 25 {
		t.Errorf("%d of %d questions are answered", right, all)
	}
}
