package confirm

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
)

// comparison reports whether an attribute or a state shows an argument. Devices round, and
// convert between units, so few are exact.
type comparison func(argument any, got json.RawMessage, now home.State) bool

// same compares texts, truth values and numbers.
func same(argument any, got json.RawMessage, _ home.State) bool {
	if a, ok := numberOfAny(argument); ok {
		b, ok := numberOf(got)
		return ok && math.Abs(a-b) <= 1e-6*max(1, math.Abs(a))
	}
	var b any
	if json.Unmarshal(got, &b) != nil {
		return false
	}
	switch a := argument.(type) {
	case string:
		return a == b
	case bool:
		return a == truth(b)
	}
	return false
}

// truth returns the truth value of an attribute; some are on or off.
func truth(value any) bool {
	return value == true || value == "on"
}

// near compares numbers that may differ.
func near(by float64) comparison {
	return func(argument any, got json.RawMessage, _ home.State) bool {
		a, ok := numberOfAny(argument)
		b, is := numberOf(got)
		return ok && is && math.Abs(a-b) <= by
	}
}

// nearAll compares lists of numbers that may differ.
func nearAll(by float64) comparison {
	return func(argument any, got json.RawMessage, _ home.State) bool {
		a, b := numbersOfAny(argument), numbersOf(got)
		if len(a) == 0 || len(a) != len(b) {
			return false
		}
		for i := range a {
			if math.Abs(a[i]-b[i]) > by {
				return false
			}
		}
		return true
	}
}

// percent compares a percentage with a number up to 255.
func percent(by float64) comparison {
	return func(argument any, got json.RawMessage, now home.State) bool {
		a, ok := numberOfAny(argument)
		return ok && near(by)(a*255/100, got, now)
	}
}

// includes reports whether a list has all texts of a list.
func includes(argument any, got json.RawMessage, _ home.State) bool {
	var list []string
	if json.Unmarshal(got, &list) != nil {
		return false
	}
	has := make(map[any]bool)
	for _, item := range list {
		has[item] = true
	}
	wanted, ok := argument.([]any)
	if !ok {
		wanted = []any{argument}
	}
	for _, item := range wanted {
		if !has[item] {
			return false
		}
	}
	return true
}

// clock compares times of day, with or without seconds.
func clock(argument any, got json.RawMessage, _ home.State) bool {
	var b string
	a, ok := argument.(string)
	if !ok || json.Unmarshal(got, &b) != nil {
		return false
	}
	return a != "" && strings.TrimSuffix(a, ":00") == strings.TrimSuffix(b[strings.LastIndexByte(b, ' ')+1:], ":00")
}

// day compares dates; the state may have a time, too.
func day(argument any, got json.RawMessage, _ home.State) bool {
	var b string
	a, ok := argument.(string)
	return ok && len(a) == len(time.DateOnly) && json.Unmarshal(got, &b) == nil && strings.HasPrefix(b, a)
}

// instant compares points in time. The argument is in the time zone of the home if it has
// none, and the state may be in another: such zones differ by quarters of an hour.
func instant(argument any, got json.RawMessage, _ home.State) bool {
	var b string
	a, ok := argument.(string)
	if !ok || json.Unmarshal(got, &b) != nil {
		return false
	}
	at, zone, ok := moment(a)
	is, isZone, isOK := moment(b)
	if !ok || !isOK {
		return false
	}
	if zone && isZone || !zone && !isZone {
		return at.Equal(is)
	}
	apart := at.Sub(is).Abs()
	return apart <= 14*time.Hour && apart%(15*time.Minute) == 0
}

// moment parses a point in time. Zone reports whether its zone is known.
func moment(text string) (at time.Time, zone, ok bool) {
	text = strings.Replace(text, " ", "T", 1)
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, layout == time.RFC3339, true
		}
	}
	return time.Time{}, false, false
}

// numberOf returns a number that is written as a number or as text.
func numberOf(value json.RawMessage) (float64, bool) {
	var any any
	if len(value) == 0 || json.Unmarshal(value, &any) != nil {
		return 0, false
	}
	if text, ok := any.(string); ok {
		x, err := strconv.ParseFloat(text, 64)
		return x, err == nil && !math.IsNaN(x) && !math.IsInf(x, 0)
	}
	return numberOfAny(any)
}

func numberOfAny(value any) (float64, bool) {
	switch v := value.(type) {
	case json.Number:
		x, err := v.Float64()
		return x, err == nil
	case float64:
		return v, true
	case int:
		return float64(v), true
	}
	return 0, false
}

func numbersOf(value json.RawMessage) []float64 {
	var list []float64
	if json.Unmarshal(value, &list) != nil {
		return nil
	}
	return list
}

func numbersOfAny(value any) (list []float64) {
	items, _ := value.([]any)
	for _, item := range items {
		x, ok := numberOfAny(item)
		if !ok {
			return nil
		}
		list = append(list, x)
	}
	return list
}
