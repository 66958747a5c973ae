package describe

import (
	"encoding/json"
	"math"
	"slices"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The limits of a selector.
const (
	maxOptions = 256
	maxDepth   = 3 // of objects with fields
)

// Schema returns the JSON Schema of the values that a selector allows. ok is false if the field
// is not offered to agents.
func Schema(selector json.RawMessage) (schema map[string]any, ok bool) {
	return selectorSchema(selector, maxDepth)
}

// options are those of a selector. Their forms are checked where they are used: a selector that
// is not understood allows any value, and Home Assistant refuses what it does not accept.
type options map[string]json.RawMessage

func selectorSchema(selector json.RawMessage, depth int) (map[string]any, bool) {
	kind, o := readSelector(selector)
	if notOffered[kind] || depth == 0 {
		return nil, false
	}
	switch kind {
	case "boolean":
		return map[string]any{"type": "boolean"}, true
	case "constant":
		return constant(o), true
	case "number":
		return o.numberSchema([]string{"min"}, []string{"max"}), true
	case "color_temp":
		return o.numberSchema([]string{"min", "min_mireds"}, []string{"max", "max_mireds"}), true
	case "select":
		return choice(o), true
	case "color_rgb":
		return list(map[string]any{"type": "integer", "minimum": 0, "maximum": 255}, 3), true
	case "duration":
		return parts(map[string]string{"days": "number", "hours": "number", "minutes": "number", "seconds": "number", "milliseconds": "number"}), true
	case "location":
		return parts(map[string]string{"latitude": "number", "longitude": "number", "radius": "number"}, "latitude", "longitude"), true
	case "media":
		return parts(map[string]string{"media_content_id": "string", "media_content_type": "string"}, "media_content_id", "media_content_type"), true
	case "object":
		return object(o, depth), true
	}
	if texts[kind] {
		return o.repeated(map[string]any{"type": "string"}), true
	}
	return map[string]any{}, true // of a later release
}

// list returns the schema of a list of some length.
func list(items map[string]any, n int) map[string]any {
	return map[string]any{"type": "array", "items": items, "minItems": n, "maxItems": n}
}

// readSelector returns the type of a selector and its options.
func readSelector(selector json.RawMessage) (kind string, o options) {
	var all map[string]json.RawMessage
	if json.Unmarshal(selector, &all) != nil || len(all) != 1 {
		return "", nil
	}
	for kind, raw := range all {
		json.Unmarshal(raw, &o) // nil if there are none
		return kind, o
	}
	return "", nil
}

// texts are selectors whose values are texts, or lists of texts.
var texts = set(
	"text", "entity", "device", "area", "floor", "label", "config_entry",
	"state", "addon", "app", "assist_pipeline", "attribute", "backup_location", "conversation_agent",
	"country", "icon", "language", "serial_port", "statistic", "theme", "time", "date", "datetime",
)

// references are selectors whose values name other things than the entity that a tool acts on.
var references = set("entity", "device", "area", "floor", "label", "config_entry", "target")

// notOffered are selectors whose values are programs, files or other things that agents must
// not give.
var notOffered = set(
	"template", "action", "condition", "trigger", "choose", "numeric_threshold", "automation_behavior",
	"target", "file", "qr_code",
)

func set(all ...string) map[string]bool {
	s := make(map[string]bool, len(all))
	for _, one := range all {
		s[one] = true
	}
	return s
}

// repeated returns a schema, or that of a list of it if the selector allows several values.
func (o options) repeated(schema map[string]any) map[string]any {
	if o.bool("multiple") {
		return map[string]any{"type": "array", "items": schema}
	}
	return schema
}

func (o options) bool(name string) bool {
	var on bool
	return json.Unmarshal(o[name], &on) == nil && on
}

func (o options) text(name string) string {
	var text string
	json.Unmarshal(o[name], &text)
	return text
}

// number returns the first of some options that is a number.
func (o options) number(names ...string) (n float64, ok bool) {
	for _, name := range names {
		if n, ok := number(o[name]); ok {
			return n, true
		}
	}
	return 0, false
}

// number reads a number. Those that JSON cannot say exactly mean that there is no limit.
func number(raw json.RawMessage) (n float64, ok bool) {
	if string(raw) == "null" || json.Unmarshal(raw, &n) != nil {
		return 0, false
	}
	return n, math.Abs(n) < 1<<53
}

// numberSchema returns the schema of a number between two options.
func (o options) numberSchema(low, high []string) map[string]any {
	schema := map[string]any{"type": "number"}
	if n, ok := o.number(low...); ok {
		schema["minimum"] = n
	}
	if n, ok := o.number(high...); ok {
		schema["maximum"] = n
	}
	return schema
}

// constant is the selector of one value.
func constant(o options) map[string]any {
	var value any
	if json.Unmarshal(o["value"], &value) != nil {
		return map[string]any{}
	}
	schema := map[string]any{"const": value}
	switch value := value.(type) {
	case bool:
		schema["type"] = "boolean"
	case float64:
		schema["type"] = "number"
	case string:
		if !ferrule.Visible(value) {
			return map[string]any{"type": "string"}
		}
		schema["type"] = "string"
	default:
		return map[string]any{}
	}
	return schema
}

// choice is the selector of one text of some.
func choice(o options) map[string]any {
	schema := map[string]any{"type": "string"}
	if values := o.choices(); len(values) > 0 && !o.bool("custom_value") {
		schema["enum"] = values
	}
	return o.repeated(schema)
}

// choices returns the values of a select that a reader sees. It is nil if there are too many.
func (o options) choices() (values []string) {
	var all []json.RawMessage
	if json.Unmarshal(o["options"], &all) != nil || len(all) > maxOptions {
		return nil
	}
	for _, raw := range all {
		var text string
		var labeled struct{ Value string }
		if json.Unmarshal(raw, &text) != nil {
			if json.Unmarshal(raw, &labeled) != nil {
				continue
			}
			text = labeled.Value
		}
		if ferrule.Visible(text) && !slices.Contains(values, text) {
			values = append(values, text)
		}
	}
	return values
}

// parts returns the schema of an object with parts of some types.
func parts(types map[string]string, required ...string) map[string]any {
	properties := make(map[string]any, len(types))
	for name, kind := range types {
		properties[name] = map[string]any{"type": kind}
	}
	schema := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		schema["required"] = required
	}
	return schema
}

// object is the selector of an object, which may list its fields.
func object(o options, depth int) map[string]any {
	var fields map[string]struct {
		Selector json.RawMessage
		Required bool
	}
	json.Unmarshal(o["fields"], &fields)
	if len(fields) == 0 || len(fields) > maxOptions {
		return o.repeated(map[string]any{"type": "object"})
	}
	properties, required := make(map[string]any, len(fields)), []string{}
	for name, field := range fields {
		schema, ok := selectorSchema(field.Selector, depth-1)
		if !ok || ferrule.Clean(name, ferrule.MaxWord) != name {
			continue
		}
		properties[name] = schema
		if field.Required {
			required = append(required, name)
		}
	}
	schema := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		slices.Sort(required)
		schema["required"] = required
	}
	return o.repeated(schema)
}
