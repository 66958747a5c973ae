package sim

import "strings"

// noArguments is the schema of every tool that is not built in: firmware cannot
// declare arguments.
var noArguments = map[string]any{"type": "object", "required": []any{}, "properties": map[string]any{}}

// builtIn tells whether the tool at an index of the list is of the firmware
// itself.
func builtIn(index int, tool map[string]any) bool { return index < 5 || aboutSamples(tool) }

// aboutSamples tells the tools that a board has for what its pins keep.
func aboutSamples(tool map[string]any) bool {
	name, _ := tool["name"].(string)
	return strings.HasPrefix(name, "get_pin_")
}

// firmware is what boards do that work as they were made: there are other boards
// than the ESP32, and other releases than the last.
var firmware = []Behavior{
	{
		Name: "no-schema", Text: "is an AVR board: no schemas, no abilities, short requests, small buffers, ids of 16 bits",
		board: avr,
		results: results{"list_tools": func(_ *conversation, list map[string]any) {
			for i, t := range tools(list) {
				if tool := t.(map[string]any); builtIn(i, tool) {
					delete(tool, "inputSchema")
				} else {
					tool["inputSchema"] = noArguments
				}
			}
			for _, p := range pins(list) {
				delete(p.(map[string]any), "capabilities")
				delete(p.(map[string]any), "sampling")
			}
		}},
	},
	{
		Name: "string-pin", Text: "is firmware 1.1.1: get_pin_* say that a pin is a string",
		results: results{"list_tools": func(_ *conversation, list map[string]any) {
			for _, t := range tools(list) {
				if tool := t.(map[string]any); aboutSamples(tool) {
					tool["inputSchema"] = map[string]any{"type": "object", "required": []string{"pin"},
						"properties": map[string]any{"pin": map[string]any{"type": "string"}}}
				}
			}
		}},
	},
	{
		Name: "v1.0", Text: "is firmware 1.0: no memory profile, no samples, long requests, and I2C tools",
		board: oldFirmware,
	},
	{
		Name: "conservative", Text: "is an ESP8266: short requests, and adc_read tells no voltage",
		board: esp8266,
	},
	{
		Name: "long-list", Text: "has as many pins and tools as firmware can have, each with a long text",
		board: fullBoard,
	},
	{
		Name: "bare-tools", Text: "declares its own tools without arguments, as all firmware does",
		results: results{"list_tools": func(_ *conversation, list map[string]any) {
			for i, t := range tools(list) {
				if tool := t.(map[string]any); !builtIn(i, tool) {
					tool["inputSchema"] = noArguments
				}
			}
		}},
	},
	{
		Name: "gone-tools", Text: "lists I2C tools that it no longer has",
		results: results{"list_tools": func(_ *conversation, list map[string]any) {
			for _, name := range []string{"i2c_scan", "i2c_read_reg", "i2c_write_reg"} {
				list["tools"] = append(tools(list), map[string]any{"name": name, "description": "Gone since 1.1"})
			}
		}},
	},
	{
		Name: "saturated", Text: "has counted 65535 samples and counts no further, so that averages grow",
		results: results{"get_pin_summary": func(_ *conversation, summary map[string]any) {
			most, _ := summary["max"].(float64)
			summary["samples"], summary["avg"] = 65535, 2*most+1
		}},
	},
	{
		Name: "polled-buffer", Text: "returns several samples at once from the tool that wants to be polled",
		results: results{"read_climate": func(_ *conversation, result map[string]any) {
			celsius := result["celsius"]
			clear(result)
			result["type"], result["resource"], result["sample_interval_ms"] = "buffer", "celsius", 1000
			result["values"] = []any{celsius, celsius, celsius}
		}},
	},
	{
		Name: "no-buffer", Text: "says that it has buffers, and when asked that it has not",
		results: results{"get_pin_buffer": func(_ *conversation, buffer map[string]any) {
			delete(buffer, "count")
			delete(buffer, "values")
			buffer["buffer_available"], buffer["reason"] = false, "Pool exhausted"
		}},
	},
}
