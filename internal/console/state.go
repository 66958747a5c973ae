package console

import (
	"slices"
	"strings"
	"unicode"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/console/draw"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// badge is a state in a word: an icon with its own outline, and a color. What is normal is
// bare; exceptions are filled.
type badge struct {
	Word, Icon, Tone string
	Bare             bool
	// Title is shown on hover; it may be empty.
	Title string
}

// stateBadges are the states of a device, by the Status of an api.DeviceRow. A page that knows
// of a call that waits for a person uses "waiting".
var stateBadges = map[string]badge{
	"online":       {Word: "Online", Icon: "on", Tone: "ok", Bare: true},
	"asleep":       {Word: "Asleep", Icon: "moon", Bare: true},
	"reconnecting": {Word: "Reconnecting", Icon: "retry", Tone: "info", Bare: true},
	"offline":      {Word: "Offline", Icon: "off"},
	"new":          {Word: "New", Icon: "pending", Tone: "info"},
	"changed":      {Word: "Changed", Icon: "changed", Tone: "warn"},
	"waiting":      {Word: "Waiting for you", Icon: "clock", Tone: "ask", Bare: true},
	"stopped":      {Word: "Stopped", Icon: "stop", Tone: "bad"},
	"released":     {Word: "Released", Icon: "pause"},
}

// stateOf returns the badge of a state.
func stateOf(status string) badge {
	if b, ok := stateBadges[status]; ok {
		return b
	}
	return badge{Word: "Unknown", Icon: "info", Bare: true}
}

// deviceIcons are icons by words in what a device is called; the first that fits is used.
var deviceIcons = []struct {
	icon  string
	words []string
}{
	{"lock", []string{"lock"}},
	{"motion", []string{"motion", "presence", "occupancy", "pir"}},
	{"plug", []string{"plug", "socket", "outlet", "relay"}},
	{"lamp", []string{"lamp", "light", "bulb", "led"}},
	{"psu", []string{"psu", "power supply", "battery pack"}},
	{"flame", []string{"kiln", "oven", "heater", "furnace", "boiler"}},
	{"thermo", []string{"climate", "thermo", "temperature", "humidity", "heating", "weather"}},
	{"door", []string{"door", "contact", "window", "blind", "cover", "curtain", "garage", "shutter"}},
	{"leaf", []string{"greenhouse", "garden", "plant", "soil", "irrigation"}},
	{"arm", []string{"robot", "arm", "servo", "gripper", "6dof"}},
	{"toy", []string{"toy", "xiaozhi"}},
}

// deviceIcon returns the name of the icon of a device. The model says most; then the name.
func deviceIcon(protocol, model string, names ...string) string {
	if protocol == "xiaozhi" {
		return "toy"
	}
	for _, text := range append([]string{model}, names...) {
		text = strings.ToLower(text)
		for _, one := range deviceIcons {
			if slices.ContainsFunc(one.words, func(word string) bool { return hasWord(text, word) }) {
				return one.icon
			}
		}
	}
	return "devices"
}

// hasWord reports whether a text has a word. Short words must stand alone: arm is in alarm.
func hasWord(text, word string) bool {
	if len(word) > 3 {
		return strings.Contains(text, word)
	}
	return slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return r < 'a' || r > 'z' }), word)
}

// transportNames are the words for transports.
var transportNames = map[string]string{
	"serial": "USB", "usb": "USB", "tcp": "TCP", "http": "HTTP", "mqtt": "MQTT", "homeassistant": "Home Assistant", "ws": "WebSocket", "dial-in": "Wi-Fi",
}

// transportName returns the word for a transport.
func transportName(transport string) string {
	if name, ok := transportNames[transport]; ok {
		return name
	}
	return transport
}

// signalName returns the name of a signal as people write it: soil_moisture is Soil moisture.
func signalName(signal string) string {
	text := strings.TrimSpace(strings.NewReplacer("_", " ", "-", " ").Replace(ferrule.Clean(signal, ferrule.MaxSignal)))
	if text == "" {
		return signal
	}
	return capital(text)
}

// stateWord returns the word for a state that is on or off, or its number.
func stateWord(value float64) string {
	switch value {
	case 0:
		return "Off"
	case 1:
		return "On"
	}
	return draw.Number(value)
}

// valueWords returns the main values of a device in a few words: On, 184 W. A value whose unit
// does not say what it is has its name.
func valueWords(values []api.DeviceValue) string {
	const limit, long = 3, 28
	values = values[:min(len(values), limit)]
	units := make(map[string]int)
	for _, v := range values {
		units[v.Unit]++
	}
	var all []string
	for i, v := range values {
		var text string
		switch {
		case v.State && i == 0 && slices.Contains([]string{"light", "relay", "switch", "on"}, v.Signal):
			text = stateWord(v.Value)
		case v.State:
			text = signalName(v.Signal) + " " + strings.ToLower(stateWord(v.Value))
		case v.Unit == "" || units[v.Unit] > 1 || api.IsMinor(v.Signal):
			text = signalName(v.Signal) + " " + draw.Value(v.Value, v.Unit)
		default:
			text = draw.Value(v.Value, v.Unit)
		}
		if i > 0 {
			text = mapFirst(unicode.ToLower, text)
		}
		if i > 0 && len(strings.Join(all, ", "))+len(text) > long {
			break
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}
