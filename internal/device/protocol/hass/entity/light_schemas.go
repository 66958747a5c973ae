package entity

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/template"
)

// jsonMessage is what a light with the json schema is sent.
type jsonMessage struct {
	State      string             `json:"state"`
	Brightness *float64           `json:"brightness,omitempty"`
	ColorTemp  *float64           `json:"color_temp,omitempty"`
	Color      map[string]float64 `json:"color,omitempty"`
	White      *float64           `json:"white,omitempty"`
	Effect     string             `json:"effect,omitempty"`
}

// jsonLight describes a light that speaks JSON.
func (b *builder) jsonLight(l *light) {
	modes := b.Options.List("supported_color_modes")
	if len(modes) == 0 { // as it was written before
		for _, mode := range []string{"brightness", "color_temp", "hs", "rgb", "xy"} {
			if b.Options.Bool(mode, false) {
				modes = append(modes, mode)
			}
		}
	}
	l.brightness = b.Options.Bool("brightness", slices.ContainsFunc(modes, func(m string) bool { return m != "onoff" }))
	if slices.Contains(modes, "white") {
		l.white = b.scale("white_scale")
	}
	if slices.Contains(modes, "color_temp") {
		l.temp = b.colorTemp()
	}
	for _, mode := range colorModes {
		if slices.Contains(modes, mode.name) {
			l.colors = append(l.colors, mode)
		}
	}
	topic := b.Options.Text("state_topic", "")
	b.lightStates(l, func(what string, mode *colorMode) (string, string) {
		switch {
		case mode != nil:
			return topic, "{{ value_json.color." + strings.Join(mode.keys, " }},{{ value_json.color.") + " }}"
		case what == "effect" && !b.Options.Has("effect_list"):
			return "", ""
		}
		return topic, "{{ value_json." + what + " }}"
	}, "ON", "OFF")
	l.effectState = "" // many lights never say it, so it confirms nothing
	to := b.sender("command_topic", "")
	if to == nil {
		return
	}
	effects := ""
	if b.Options.Has("effect_list") && b.Options.Bool("effect", false) {
		effects = "effect_list"
	}
	b.lightTools(l, effects, []*sender{to}, func(c change) ([]Publication, error) {
		m := jsonMessage{State: "OFF", Brightness: c.brightness, ColorTemp: c.temp, White: c.white, Effect: c.effect}
		if c.on {
			m.State = "ON"
		}
		if c.mode != nil {
			m.Color = map[string]float64{}
			for i, key := range c.mode.keys {
				m.Color[key] = c.color[i]
			}
		}
		message, err := json.Marshal(m)
		return []Publication{{Topic: to.topic, Payload: message}}, err
	})
}

// basicLight describes a light with a topic for each of its properties.
func (b *builder) basicLight(l *light) {
	on, off := b.Options.Text("payload_on", "ON"), b.Options.Text("payload_off", "OFF")
	to := map[string]*sender{"": b.sender("command_topic", "")}
	for _, what := range []string{"brightness", "color_temp", "effect", "white", "hs", "rgb", "rgbw", "rgbww", "xy"} {
		to[what] = b.sender(what+"_command_topic", what+"_command_template")
	}
	l.brightness = to["brightness"] != nil
	if to["white"] != nil {
		l.white = b.scale("white_scale")
	}
	if to["color_temp"] != nil {
		l.temp = b.colorTemp()
	}
	for _, mode := range colorModes {
		if to[mode.name] != nil {
			l.colors = append(l.colors, mode)
		}
	}
	b.lightStates(l, func(what string, mode *colorMode) (string, string) {
		if mode != nil {
			what = mode.name
		}
		if what == "state" {
			return b.Options.Text("state_topic", ""), b.Options.Text("state_value_template", "")
		}
		return b.Options.Text(what+"_state_topic", ""), b.Options.Text(what+"_value_template", "")
	}, on, off)
	if to[""] == nil {
		return
	}
	effects := ""
	if to["effect"] != nil {
		effects = "effect_list"
	}
	order := b.Options.Text("on_command_type", "last")
	senders := []*sender{to[""]}
	for _, what := range slices.Sorted(maps.Keys(to)) {
		if what != "" && to[what] != nil {
			senders = append(senders, to[what])
		}
	}
	b.lightTools(l, effects, senders, func(c change) ([]Publication, error) {
		return c.basic(to, on, off, order, l.scale)
	})
}

// basic returns the messages of a change in the order of Home Assistant: colors, brightness,
// color temperature, effect, white. The message that switches it on is the first one, the
// last one, or is left out for a brightness.
func (c change) basic(to map[string]*sender, on, off, order string, scale float64) (messages []Publication, err error) {
	add := func(what string, value any, more template.Vars) {
		s := to[what]
		if s == nil || err != nil {
			return
		}
		var p Publication
		if p, err = s.payload(value, more); err == nil {
			messages = append(messages, p)
		}
	}
	if !c.on {
		add("", off, nil)
		return messages, err
	}
	switch {
	case order == "first":
		add("", on, nil)
	case order == "brightness" && c.brightness == nil && c.white == nil:
		c.brightness = &scale
	}
	if c.mode != nil {
		texts, vars := make([]string, len(c.color)), template.Vars{}
		for i, n := range c.color {
			texts[i], vars[c.mode.vars[i]] = formatNumber(n), plain(n)
		}
		add(c.mode.name, strings.Join(texts, ","), vars)
	}
	if c.brightness != nil {
		add("brightness", plain(*c.brightness), nil)
	}
	if c.temp != nil {
		add("color_temp", plain(*c.temp), nil)
	}
	if c.effect != "" {
		add("effect", c.effect, nil)
	}
	if c.white != nil {
		add("white", plain(*c.white), nil)
	}
	if order != "first" && order != "brightness" || len(messages) == 0 {
		add("", on, nil)
	}
	return messages, err
}

// templateLight describes a light whose messages are made and read by templates.
func (b *builder) templateLight(l *light) {
	rgb := colorModes[slices.IndexFunc(colorModes, func(m *colorMode) bool { return m.name == "rgb" })]
	l.brightness, l.scale = b.Options.Has("brightness_template"), 255
	if b.Options.Has("color_temp_template") {
		l.temp = b.colorTemp()
	}
	if b.Options.Has("red_template") && b.Options.Has("green_template") && b.Options.Has("blue_template") {
		l.colors = append(l.colors, rgb)
	}
	b.assumed = b.assumed || !b.Options.Has("state_template")
	b.lightStates(l, func(what string, mode *colorMode) (string, string) {
		text := b.Options.Text(what+"_template", "")
		if mode != nil {
			text = b.Options.Text("red_template", "") + "," + b.Options.Text("green_template", "") + "," + b.Options.Text("blue_template", "")
		}
		if text == "" {
			return "", ""
		}
		return b.Options.Text("state_topic", ""), text
	}, "on", "off")
	on, off := b.sender("command_topic", "command_on_template"), b.sender("command_topic", "command_off_template")
	if on == nil {
		return
	}
	if on.template == nil && on.err == nil || off.template == nil && off.err == nil {
		b.note("it has no template to switch it on or off")
		return
	}
	effects := ""
	if b.Options.Has("effect_list") {
		effects = "effect_list"
	}
	b.lightTools(l, effects, []*sender{on, off}, func(c change) ([]Publication, error) {
		to, vars := on, template.Vars{"state": true}
		if !c.on {
			to, vars = off, template.Vars{"state": false}
		}
		if c.brightness != nil {
			vars["brightness"] = plain(*c.brightness)
		}
		if c.temp != nil {
			vars["color_temp"] = plain(*c.temp)
		}
		if c.mode != nil {
			for i, name := range c.mode.vars {
				vars[name] = plain(c.color[i])
			}
		}
		if c.effect != "" {
			vars["effect"] = c.effect
		}
		p, err := to.payload(nil, vars)
		return []Publication{p}, err
	})
}
