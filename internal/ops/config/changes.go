package config

import (
	"fmt"
	"reflect"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Change is a key with different values in two configs.
type Change struct {
	// Key is its path, such as calls.deadline.
	Key string
	// From and To are the values, without secrets; empty for a list or a map.
	From, To string
}

func (c Change) String() string {
	if c.From == c.To {
		return c.Key
	}
	return fmt.Sprintf("%s: %s -> %s", c.Key, c.From, c.To)
}

// Changes returns the keys with different values in two configs, in the order of the
// sample file.
func Changes(from, to Config) []Change {
	return changes("", reflect.ValueOf(from), reflect.ValueOf(to))
}

func changes(prefix string, from, to reflect.Value) (all []Change) {
	for i := range from.NumField() {
		key, a, b := prefix+from.Type().Field(i).Tag.Get("yaml"), from.Field(i), to.Field(i)
		switch {
		case a.Kind() == reflect.Struct:
			all = append(all, changes(key+".", a, b)...)
		case (a.Kind() == reflect.Slice || a.Kind() == reflect.Map) && (a.Len()+b.Len() == 0 || reflect.DeepEqual(a.Interface(), b.Interface())):
		case a.Kind() == reflect.Slice, a.Kind() == reflect.Map:
			all = append(all, Change{Key: key})
		case !a.Equal(b):
			all = append(all, Change{key, show(a), show(b)})
		}
	}
	return all
}

// show returns a value as the file would have it.
func show(v reflect.Value) string {
	text := ferrule.MaskURL(fmt.Sprint(v))
	if text == "" {
		return `""`
	}
	return text
}
