package entity

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// unknown is the value of a state that says None.
var unknown = Value{JSON: json.RawMessage("null"), Number: math.NaN()}

// boolValue returns a value that is recorded as 0 or 1.
func boolValue(on bool) Value {
	if on {
		return Value{JSON: json.RawMessage("true"), Number: 1}
	}
	return Value{JSON: json.RawMessage("false"), Number: 0}
}

// textValue returns a value that is not recorded.
func textValue(text string) Value {
	encoded, _ := json.Marshal(ferrule.Clean(text, ferrule.MaxText)) // a string can be encoded
	return Value{JSON: encoded, Number: math.NaN()}
}

// numberValue returns a number; one that is not finite is unknown.
func numberValue(n float64) Value {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return unknown
	}
	return Value{JSON: json.RawMessage(formatNumber(n)), Number: n}
}

// equal reports whether two values are the same. Numbers may differ by what conversion
// between units of a device costs.
func (v Value) equal(other Value) bool {
	if math.IsNaN(v.Number) || math.IsNaN(other.Number) {
		return string(v.JSON) == string(other.JSON)
	}
	return math.Abs(v.Number-other.Number) <= 1e-6*max(1, math.Abs(v.Number))
}

// known returns a converter for which an empty text means nothing, and None unknown.
func known(convert func(text string) (Value, bool)) func(string) (Value, bool) {
	return func(text string) (Value, bool) {
		switch text {
		case "":
			return Value{}, false
		case "None":
			return unknown, true
		}
		return convert(text)
	}
}

// onOff returns the converter of a state with two payloads. Others are ignored.
func onOff(on, off string) func(string) (Value, bool) {
	return func(text string) (Value, bool) {
		switch text {
		case on:
			return boolValue(true), true
		case off:
			return boolValue(false), true
		case "None":
			return unknown, true
		}
		return Value{}, false
	}
}

// toNumber is the converter of a state that is a number. Other texts are ignored.
var toNumber = known(func(text string) (Value, bool) {
	n, ok := parseNumber(text)
	if !ok {
		return Value{}, false
	}
	return numberValue(n), true
})

// toText is the converter of a state that is a text.
var toText = known(func(text string) (Value, bool) { return textValue(text), true })

// toAny is the converter of a state that is a number or a text.
var toAny = known(func(text string) (Value, bool) {
	if n, ok := parseNumber(text); ok && formatNumber(n) == strings.TrimSuffix(text, ".0") {
		return numberValue(n), true
	}
	return textValue(text), true
})

// toOption returns the converter of a state that is one of some texts. It is recorded as
// its place in them; others are texts without a number.
func toOption(options []string) func(string) (Value, bool) {
	return known(func(text string) (Value, bool) {
		v := textValue(text)
		if i := slices.Index(options, text); i >= 0 {
			v.Number = float64(i)
		}
		return v, true
	})
}

// optionValue returns the value that toOption returns for one of the options.
func optionValue(options []string, text string) Value {
	v, _ := toOption(options)(text)
	return v
}

// parseNumber reads a finite decimal number as Python prints it.
func parseNumber(text string) (float64, bool) {
	if strings.ContainsAny(text, "xXpP_") { // Go reads these as well
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil && !math.IsNaN(n) && !math.IsInf(n, 0)
}

// formatNumber prints 5, not 5.0.
func formatNumber(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// print returns a value as the payload of a command.
func print(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case free:
		return string(v)
	case float64:
		return formatNumber(v)
	}
	return fmt.Sprint(value)
}

// argNumber returns an argument that is a number.
func argNumber(args map[string]any, name string) (n float64, given bool) {
	switch v := args[name].(type) {
	case json.Number:
		n, err := v.Float64()
		return n, err == nil
	case float64:
		return v, true
	}
	return 0, false
}

// argText returns an argument that is a text.
func argText(args map[string]any, name string) (text string, given bool) {
	text, given = args[name].(string)
	return text, given
}

// argBool returns an argument that is a boolean.
func argBool(args map[string]any, name string) (on, given bool) {
	on, given = args[name].(bool)
	return on, given
}

// plain returns a number as templates see it: without a point if it has no fraction.
func plain(n float64) any {
	if n == math.Trunc(n) && math.Abs(n) < 1<<53 {
		return int(n)
	}
	return n
}
