package confirm

import (
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
)

// lights has services of lights, and of what is only on or off but has details.
var lights = table{
	"light.turn_on":  {lightOn, fades},
	"light.turn_off": {becomes("off"), fades},
	"light.toggle":   {lightToggle, fades},
	"siren.turn_on":  {becomes("on"), only("tone", "duration", "volume_level")},
	"remote.turn_on": {becomes("on"), shows("activity", "current_activity", same)},
	// A camera that is on is idle, streams or records.
	"camera.turn_on":                  {leaves("off")},
	"camera.enable_motion_detection":  {has("motion_detection", true, same)},
	"camera.disable_motion_detection": {has("motion_detection", nil, absent)},
}

// fades adds the time that the caller gave the light.
func fades(s *subject) {
	seconds, ok := s.arg("transition")
	if x, isNumber := numberOfAny(seconds); ok && isNumber && x > 0 {
		s.expect.Window = min(Longest, s.expect.Window+time.Duration(min(x, Longest.Seconds())*float64(time.Second)))
	}
}

// The values of a color that devices and conversions change.
const (
	byBrightness = 3 // of 255; some devices count to 100 or 254
	byHue        = 4 // degrees
	bySaturation = 4 // percent
)

func lightOn(s *subject) {
	for _, name := range []string{"brightness", "brightness_pct"} {
		if x, ok := numberOfAny(s.args[name]); ok && x == 0 { // Home Assistant turns it off
			s.seen[name] = true
			becomes("off")(s)
			return
		}
	}
	becomes("on")(s)
	for _, c := range lightFields {
		c(s)
	}
}

func lightToggle(s *subject) {
	if s.before.Value == "on" {
		only("brightness", "brightness_pct")(s)
		becomes("off")(s)
		return
	}
	lightOn(s)
}

var lightFields = []clause{
	shows("brightness", "brightness", near(byBrightness)),
	shows("brightness_pct", "brightness", percent(byBrightness)),
	shows("white", "brightness", near(byBrightness)),
	shows("color_temp_kelvin", "color_temp_kelvin", kelvin),
	shows("color_temp", "color_temp", near(1)),
	shows("hs_color", "hs_color", hueAndSaturation),
	shows("rgb_color", "rgb_color", rgb),
	shows("rgbw_color", "rgbw_color", nearAll(byBrightness)),
	shows("rgbww_color", "rgbww_color", nearAll(byBrightness)),
	shows("xy_color", "xy_color", nearAll(0.02)),
	shows("effect", "effect", same),
	namedColor,
}

// absent compares an attribute that is false or missing.
func absent(_ any, got json.RawMessage, _ home.State) bool {
	return null(got) || string(got) == "false"
}

// kelvin compares color temperatures. Most lights count in mired, which are whole numbers.
func kelvin(argument any, got json.RawMessage, now home.State) bool {
	k, ok := numberOfAny(argument)
	return ok && near(1+k*k/1e6)(argument, got, now)
}

// hueAndSaturation compares colors. A color without saturation has any hue.
func hueAndSaturation(argument any, got json.RawMessage, _ home.State) bool {
	a, b := numbersOfAny(argument), numbersOf(got)
	return len(a) == 2 && len(b) == 2 && sameColor(a[0], a[1], b[0], b[1])
}

func sameColor(hue, saturation, otherHue, otherSaturation float64) bool {
	turn := math.Mod(math.Abs(hue-otherHue), 360)
	return math.Abs(saturation-otherSaturation) <= bySaturation && (min(turn, 360-turn) <= byHue || saturation <= bySaturation)
}

// rgb compares colors without their brightness, which Home Assistant keeps apart.
func rgb(argument any, got json.RawMessage, _ home.State) bool {
	a, b := numbersOfAny(argument), numbersOf(got)
	if len(a) != 3 || len(b) != 3 {
		return false
	}
	hue, saturation := hueOf(a)
	otherHue, otherSaturation := hueOf(b)
	return sameColor(hue, saturation, otherHue, otherSaturation)
}

// hueOf returns the hue in degrees and the saturation in percent of red, green and blue.
func hueOf(c []float64) (hue, saturation float64) {
	high, low := max(c[0], c[1], c[2]), min(c[0], c[1], c[2])
	if high <= 0 || high == low {
		return 0, 0
	}
	switch high {
	case c[0]:
		hue = 60 * (c[1] - c[2]) / (high - low)
	case c[1]:
		hue = 60*(c[2]-c[0])/(high-low) + 120
	default:
		hue = 60*(c[0]-c[1])/(high-low) + 240
	}
	return math.Mod(hue+360, 360), 100 * (high - low) / high
}

// namedColors are the colors that agents name most. Others are set, but not confirmed.
var namedColors = map[string][]any{
	"red": {255.0, 0.0, 0.0}, "green": {0.0, 128.0, 0.0}, "blue": {0.0, 0.0, 255.0},
	"white": {255.0, 255.0, 255.0}, "yellow": {255.0, 255.0, 0.0}, "orange": {255.0, 165.0, 0.0},
	"purple": {128.0, 0.0, 128.0}, "pink": {255.0, 192.0, 203.0}, "cyan": {0.0, 255.0, 255.0},
	"magenta": {255.0, 0.0, 255.0}, "lime": {0.0, 255.0, 0.0}, "turquoise": {64.0, 224.0, 208.0},
	"violet": {238.0, 130.0, 238.0}, "gold": {255.0, 215.0, 0.0}, "indigo": {75.0, 0.0, 130.0},
}

func namedColor(s *subject) {
	name, _ := s.args["color_name"].(string)
	if color, ok := namedColors[strings.ToLower(name)]; ok {
		s.seen["color_name"] = true
		s.want(func(now home.State) bool { return rgb(color, now.Attributes["rgb_color"], now) }, "color %s", name)
	}
}
