package policy

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
)

// unusable is the type of an entity that stands for an argument that Cedar has no value
// for, such as a number with more than four decimal places. The argument is present, and
// whatever a rule does with it is an error, so that the call is forbidden.
const unusable types.EntityType = "Unusable"

// record converts decoded arguments. If decimals is set, all numbers are decimals;
// otherwise whole numbers are Longs, however they are written.
func record(args map[string]any, decimals bool) types.Record {
	m := make(types.RecordMap, len(args))
	for name, arg := range args {
		if v := value(arg, decimals); v != nil {
			m[types.String(name)] = v
		}
	}
	return types.NewRecord(m)
}

// value converts one value. It returns nil for null, which counts as absent.
func value(v any, decimals bool) types.Value {
	switch v := v.(type) {
	case nil:
		return nil
	case bool:
		return types.Boolean(v)
	case string:
		return types.String(v)
	case json.Number:
		return number(string(v), decimals)
	case map[string]any:
		return record(v, decimals)
	case []any:
		return set(v, decimals)
	}
	return types.NewEntityUID(unusable, "value")
}

// maxSet is the length of the longest array that rules can look at. Cedar takes a time that
// grows with the square of the length, and with more if arrays are nested.
const maxSet = 100

// set converts an array. One element that is unusable makes all of it unusable: otherwise
// a rule that looks for a value in it would not find it.
func set(array []any, decimals bool) types.Value {
	if len(array) > maxSet {
		return types.NewEntityUID(unusable, "long")
	}
	elements := make([]types.Value, 0, len(array))
	for _, e := range array {
		if _, nested := e.([]any); nested {
			return types.NewEntityUID(unusable, "nested")
		}
		v := value(e, decimals)
		if v == nil {
			return types.NewEntityUID(unusable, "null")
		}
		if uid, ok := v.(types.EntityUID); ok {
			return uid
		}
		elements = append(elements, v)
	}
	return types.NewSet(elements...)
}

// number converts a JSON number exactly, or to an unusable value. 21, 21.0 and 2.1e1 are
// the same.
func number(text string, decimals bool) types.Value {
	digits, exponent, ok := split(text)
	if ok && !decimals {
		if n, ok := scale(digits, exponent); ok {
			return types.Long(n)
		}
	}
	if ok {
		if n, ok := scale(digits, exponent+4); ok {
			if d, err := types.NewDecimal(n, -4); err == nil {
				return d
			}
		}
	}
	return types.NewEntityUID(unusable, types.String(text[:min(len(text), 32)]))
}

// split returns a number as digits with a sign, without zeros at either end, and an
// exponent of ten. Zero has the digits "".
func split(text string) (digits string, exponent int, ok bool) {
	const limit = 1 << 30
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		n, err := strconv.Atoi(text[at+1:])
		if err != nil || n > limit || n < -limit {
			return "", 0, false
		}
		text, exponent = text[:at], n
	}
	text, negative := strings.CutPrefix(text, "-")
	whole, fraction, _ := strings.Cut(text, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	exponent -= len(fraction)
	trimmed := strings.TrimRight(digits, "0")
	exponent += len(digits) - len(trimmed)
	if strings.Trim(trimmed, "0123456789") != "" || whole+fraction == "" {
		return "", 0, false
	}
	if negative && trimmed != "" {
		trimmed = "-" + trimmed
	}
	return trimmed, exponent, true
}

// scale returns digits * 10^exponent, if that is a whole number of 64 bits.
func scale(digits string, exponent int) (int64, bool) {
	if digits == "" {
		return 0, true
	}
	if exponent < 0 || exponent > 19 {
		return 0, false
	}
	n, err := strconv.ParseInt(digits+strings.Repeat("0", exponent), 10, 64)
	return n, err == nil
}
