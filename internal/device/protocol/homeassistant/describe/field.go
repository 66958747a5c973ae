package describe

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// addField adds an argument of a service.
func (b *builder) addField(f *home.Field, plan *Tool) {
	kind, o := readSelector(f.Selector)
	schema, ok := Schema(f.Selector)
	entities := b.having(f)
	if !ok || references[kind] || len(entities) == 0 || b.dropped(f.Name) {
		return
	}
	name := b.service.Domain + "." + f.Name
	if n := length(f.Example); kind == "object" && n > 0 {
		schema = list(map[string]any{"type": "number"}, n)
	}
	if values, _ := schema["enum"].([]string); len(values) > maxEnum {
		delete(schema, "enum")
	}
	text := cmp.Or(fieldTexts[name], fieldTexts[f.Name])
	if text == "" && serviceTexts[b.service.Domain+"."+b.service.Name] == "" {
		text = f.Text
	}
	unit := o.text("unit_of_measurement")
	if numbers[name] {
		schema = map[string]any{"type": "number"}
	}
	if attribute := choices[name]; attribute != "" {
		schema = map[string]any{"type": "string"}
		if plan.Choices == nil {
			plan.Choices = make(map[string]string)
		}
		plan.Choices[f.Name] = attribute
		text += " " + ReadState + " lists the values as " + attribute + "."
	}
	if !b.offer.Device.Group {
		text += b.limit(name, schema, entities)
	}
	if strings.HasPrefix(unit, "°") || strings.Contains(f.Name, "temp") && kind == "number" {
		unit = b.offer.Temperature
	}
	if unit != "" {
		text += " Unit: " + unit + "."
	}
	if text = strings.TrimSpace(text); text != "" {
		schema["description"] = ferrule.Clean(text, maxFieldText)
	}
	if f.Name == "code" || kind == "text" && o.text("type") == "password" || b.secret(name, entities) {
		plan.Secrets = append(plan.Secrets, f.Name)
	}
	b.properties[f.Name] = schema
	if f.Required || needed[b.service.Domain+"."+b.service.Name] == f.Name {
		b.required = append(b.required, f.Name)
	}
}

const maxFieldText = 512

// dropped reports whether an argument is not offered: it would name another target, or make
// an idempotent service one that is not.
func (b *builder) dropped(field string) bool {
	switch field {
	case EntityArg, "entity_id", "device_id", "area_id", "floor_id", "label_id":
		return true
	}
	if b.service.Domain != "light" {
		return false
	}
	switch field {
	case "brightness_step", "brightness_step_pct", "flash", "color_temp", "profile", "xy_color":
		return true
	}
	return b.service.Name == "toggle"
}

// having returns the entities that have a field.
func (b *builder) having(f *home.Field) (entities []*home.Entity) {
	if b.offer.Device.Group { // the next one may have it
		return b.entities
	}
	for _, e := range b.entities {
		if home.HasFeatures(f.Features, e.Features) && hasAttributes(b.service.Domain, f, e) {
			entities = append(entities, e)
		}
	}
	return entities
}

// hasAttributes reports whether an entity has the abilities that a field needs. A light takes
// the colors of four or five channels only if it has them.
func hasAttributes(domain string, f *home.Field, e *home.Entity) bool {
	for name, values := range f.Attributes {
		if mode, ok := strings.CutSuffix(f.Name, "_color"); ok && domain == "light" && strings.HasPrefix(mode, "rgbw") {
			values = []json.RawMessage{json.RawMessage(strconv.Quote(mode))}
		}
		var list []json.RawMessage
		if json.Unmarshal(e.Abilities[name], &list) != nil {
			list = []json.RawMessage{e.Abilities[name]}
		}
		if !slices.ContainsFunc(list, func(v json.RawMessage) bool {
			return slices.ContainsFunc(values, func(w json.RawMessage) bool { return string(v) == string(w) })
		}) {
			return false
		}
	}
	return true
}

// length returns the length of an example that is a list, or 0.
func length(example json.RawMessage) int {
	var text string
	if json.Unmarshal(example, &text) == nil {
		example = json.RawMessage(text)
	}
	var list []float64
	if json.Unmarshal(example, &list) != nil || len(list) > 8 {
		return 0
	}
	return len(list)
}

// limit puts what the entities say about a field into its schema. It returns a text for what
// the schema cannot say: the limits of each of several entities.
func (b *builder) limit(name string, schema map[string]any, entities []*home.Entity) (text string) {
	switch {
	case name == "climate.hvac_mode":
		if modes := union(entities, "hvac_modes"); len(modes) > 0 {
			schema["enum"] = modes
		}
	case name == "text.value" || name == "input_text.value":
		limitText(schema, entities)
	}
	attributes, ok := ranges[name]
	if !ok {
		return ""
	}
	said := make(map[string][]string)
	low, high, all := 0.0, 0.0, true
	for i, e := range entities {
		least, ok1 := number(e.Abilities[attributes[0]])
		most, ok2 := number(e.Abilities[attributes[1]])
		if all = all && ok1 && ok2 && least <= most; !all {
			return ""
		}
		if i == 0 {
			low, high = least, most
		}
		low, high = min(low, least), max(high, most)
		bounds := format(least) + " to " + format(most)
		if e.Domain == "number" && e.Unit != "" {
			bounds += " " + ferrule.Clean(e.Unit, ferrule.MaxUnit)
		}
		said[bounds] = append(said[bounds], b.key(e))
	}
	schema["minimum"], schema["maximum"] = low, high
	if len(entities) == 1 || len(said) == 1 {
		if unit := entities[0].Unit; unit != "" && entities[0].Domain == "number" {
			return " Unit: " + ferrule.Clean(unit, ferrule.MaxUnit) + "."
		}
		return ""
	}
	for i, bounds := range slices.Sorted(maps.Keys(said)) {
		if i == 8 {
			return text + " Others differ."
		}
		text += fmt.Sprintf(" %s: %s.", strings.Join(said[bounds], ", "), bounds)
	}
	return text
}

// limitText puts the limits of a text into a schema: Home Assistant reports a text that breaks
// them as a failure of the device.
func limitText(schema map[string]any, entities []*home.Entity) {
	most := 0.0
	for _, e := range entities {
		n, ok := number(e.Abilities["max"])
		if !ok || n < 0 || n > ferrule.MaxText {
			return
		}
		most = max(most, n)
	}
	schema["maxLength"] = int(most)
	if len(entities) > 1 {
		return
	}
	if n, ok := number(entities[0].Abilities["min"]); ok && n > 0 {
		schema["minLength"] = int(n)
	}
	var pattern string
	json.Unmarshal(entities[0].Abilities["pattern"], &pattern)
	if pattern = "^(?:" + pattern + ")"; len(pattern) > 5 && len(pattern) < 256 { // as Python compares it
		if _, err := regexp.Compile(pattern); err == nil {
			schema["pattern"] = pattern
		}
	}
}

// union returns the texts that an ability of any of the entities has.
func union(entities []*home.Entity, ability string) (all []string) {
	for _, e := range entities {
		var values []string
		json.Unmarshal(e.Abilities[ability], &values)
		all = append(all, values...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(len(all), maxEnum)]
}

func format(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// secret reports whether the value of a text may open something. A group may get such a text at
// any time.
func (b *builder) secret(name string, entities []*home.Entity) bool {
	if name != "text.value" && name != "input_text.value" {
		return false
	}
	return b.offer.Device.Group || slices.ContainsFunc(entities, secretKey)
}

// secrets matches names of values that open something.
var secrets = regexp.MustCompile(`(?i)pin[_ ]?code|pass[_ ]?(word|code|phrase)|(^|[_ ])(user|admin|master|access|door|lock|unlock|entry|pairing|key)[_ ]?codes?([_ ]|$)|(^|[_ ])(pin|credential|secret)s?([_ ]?\d+)?$`)

// secretKey reports whether the value of an entity is a secret, as its mode or key says.
func secretKey(e *home.Entity) bool {
	var mode string
	json.Unmarshal(e.Abilities["mode"], &mode)
	return mode == "password" || secrets.MatchString(e.Key)
}

// secretState reports whether the state of an entity is a secret.
func secretState(e *home.Entity) bool {
	switch e.Domain {
	case "text", "input_text", "sensor":
		return secretKey(e) || secrets.MatchString(e.Name)
	}
	return false
}

// ranges are abilities that limit a field.
var ranges = map[string][2]string{
	"climate.humidity":         {"min_humidity", "max_humidity"},
	"climate.target_temp_high": {"min_temp", "max_temp"},
	"climate.target_temp_low":  {"min_temp", "max_temp"},
	"climate.temperature":      {"min_temp", "max_temp"},
	"humidifier.humidity":      {"min_humidity", "max_humidity"},
	"input_number.value":       {"min", "max"},
	"light.color_temp_kelvin":  {"min_color_temp_kelvin", "max_color_temp_kelvin"},
	"number.value":             {"min", "max"},
	"water_heater.temperature": {"min_temp", "max_temp"},
}

// choices are attributes that list the values of a field. Owners and apps change them.
var choices = map[string]string{
	"climate.fan_mode":              "fan_modes",
	"climate.preset_mode":           "preset_modes",
	"climate.swing_horizontal_mode": "swing_horizontal_modes",
	"climate.swing_mode":            "swing_modes",
	"fan.preset_mode":               "preset_modes",
	"humidifier.mode":               "available_modes",
	"input_select.option":           "options",
	"light.effect":                  "effect_list",
	"media_player.sound_mode":       "sound_mode_list",
	"media_player.source":           "source_list",
	"remote.activity":               "activity_list",
	"select.option":                 "options",
	"siren.tone":                    "available_tones",
	"vacuum.fan_speed":              "fan_speed_list",
	"water_heater.operation_mode":   "operation_list",
}

// numbers are fields that are numbers although their selectors are texts.
var numbers = map[string]bool{"number.value": true, "siren.duration": true}

// needed are fields that services require without saying so.
var needed = map[string]string{
	"climate.set_hvac_mode":          "hvac_mode",
	"media_player.select_sound_mode": "sound_mode",
}
