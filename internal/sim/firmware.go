package sim

import "strings"

// noArguments is the schema of all tools that are not built in: firmware cannot declare
// arguments.
var noArguments = map[string]any{"type": "object", "required": []any{}, "properties": map[string]any{}}

// builtIn reports whether the tool at an index of the list is built in.
func builtIn(index int, tool map[string]any) bool { return index < 5 || isSampleTool(tool) }

// isSampleTool reports whether a tool is about the samples of pins.
func isSampleTool(tool map[string]any) bool {
	name, _ := tool["name"].(string)
	return strings.HasPrefix(name, "get_pin_")
}

// firmware are boards other than the ESP32, other firmware releases, and limits of the
// firmware.
var firmware = []Behavior{
	{
		Name: "no-schema", Text: "is an AVR board: no schemas, no capabilities, short requests, small buffers, 16-bit IDs",
		board: avr,
		results: results{"list_tools": func(_ *boardSession, list map[string]any) {
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
		Name: "string-pin", Text: "has firmware 1.1.1: get_pin_* declare the pin as a string",
		results: results{"list_tools": func(_ *boardSession, list map[string]any) {
			for _, t := range tools(list) {
				if tool := t.(map[string]any); isSampleTool(tool) {
					tool["inputSchema"] = map[string]any{"type": "object", "required": []string{"pin"},
						"properties": map[string]any{"pin": map[string]any{"type": "string"}}}
				}
			}
		}},
	},
	{
		Name: "v1.0", Text: "has firmware 1.0: no memory profile, no samples, long requests, I2C tools",
		board: oldFirmware,
	},
	{
		Name: "conservative", Text: "is an ESP8266: short requests, no voltage in adc_read",
		board: esp8266,
	},
	{
		Name: "long-list", Text: "has the maximum number of pins and tools, with long descriptions",
		board: fullBoard,
	},
	{
		Name: "bare-tools", Text: "declares its own tools without arguments, as all firmware does",
		results: results{"list_tools": func(_ *boardSession, list map[string]any) {
			for i, t := range tools(list) {
				if tool := t.(map[string]any); !builtIn(i, tool) {
					tool["inputSchema"] = noArguments
				}
			}
		}},
	},
	{
		Name: "gone-tools", Text: "lists I2C tools that do not exist anymore",
		results: results{"list_tools": func(_ *boardSession, list map[string]any) {
			for _, name := range []string{"i2c_scan", "i2c_read_reg", "i2c_write_reg"} {
				list["tools"] = append(tools(list), map[string]any{"name": name, "description": "Gone since 1.1"})
			}
		}},
	},
	{
		Name: "saturated", Text: "has stopped counting samples at 65535, so that averages grow",
		results: results{"get_pin_summary": func(_ *boardSession, summary map[string]any) {
			highest, _ := summary["max"].(float64)
			summary["samples"], summary["avg"] = 65535, 2*highest+1
		}},
	},
	{
		Name: "polled-buffer", Text: "returns several samples at once from its polled tool",
		results: results{"read_climate": func(_ *boardSession, result map[string]any) {
			celsius := result["celsius"]
			clear(result)
			result["type"], result["resource"], result["sample_interval_ms"] = "buffer", "celsius", 1000
			result["values"] = []any{celsius, celsius, celsius}
		}},
	},
	{
		Name: "no-buffer", Text: "declares buffers, but refuses to return them",
		results: results{"get_pin_buffer": func(_ *boardSession, buffer map[string]any) {
			delete(buffer, "count")
			delete(buffer, "values")
			buffer["buffer_available"], buffer["reason"] = false, "Pool exhausted"
		}},
	},
}
