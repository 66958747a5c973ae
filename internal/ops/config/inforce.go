package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Value is a key of the configuration in force.
type Value struct {
	// Key is its path, such as calls.deadline or devices.tcp[0].address.
	Key string
	// Value is as the file would have it. A secret is not shown.
	Value  string
	Source Source
	Secret bool
}

// Source is where a value comes from.
type Source string

// The sources.
const (
	FromDefault Source = "default"
	FromFile    Source = "file"
	FromFlags   Source = "flag or variable"
)

// maxValue limits the characters of a value that is shown.
const maxValue = 200

// InForce returns the values of a config in the order of the sample file, without secrets.
// Path is the configuration file; empty if there is none.
func InForce(c Config, path string) []Value {
	def, dir := Default(), filepath.Dir(cmp.Or(path, DefaultPath()))
	def.Overlays, def.Policy.Dir = filepath.Join(dir, def.Overlays), filepath.Join(dir, def.Policy.Dir)
	file := def
	if path != "" {
		if read, err := Load(path); err == nil { // else it was changed since
			file = read
		}
	}
	w := valueWalk{}
	w.walk("", reflect.ValueOf(c), reflect.ValueOf(file), reflect.ValueOf(def))
	return w.all
}

type valueWalk struct{ all []Value }

// walk adds the values below a key. File and def are the same keys of the file and of the
// defaults; they are invalid if those do not have them.
func (w *valueWalk) walk(key string, v, file, def reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Field(i).Tag.Get("yaml")
			if name == "" || name == "-" {
				continue
			}
			if key != "" {
				name = key + "." + name
			}
			w.walk(name, v.Field(i), field(file, i), field(def, i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			w.walk(fmt.Sprintf("%s[%d]", key, i), v.Index(i), element(file, v.Index(i)), reflect.Value{})
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			in := reflect.Value{}
			if file.IsValid() {
				in = file.MapIndex(k)
			}
			w.walk(key+"."+k.String(), v.MapIndex(k), in, reflect.Value{})
		}
	default:
		w.add(key, v, file, def)
	}
}

// add adds one value. One of a list that is not set says nothing.
func (w *valueWalk) add(key string, v, file, def reflect.Value) {
	if v.IsZero() && !def.IsValid() {
		return
	}
	out := Value{Key: key, Source: FromFlags}
	switch {
	case def.IsValid() && v.Equal(def):
		out.Source = FromDefault
	case file.IsValid() && v.Equal(file):
		out.Source = FromFile
	}
	if _, out.Secret = v.Interface().(ferrule.Secret); out.Secret {
		if out.Value = "(secret, set)"; v.IsZero() {
			out.Value = `""`
		}
	} else {
		out.Value = ferrule.OneLine(ferrule.Clean(show(v), ferrule.MaxText), maxValue)
	}
	w.all = append(w.all, out)
}

// field returns a field of a struct, or nothing.
func field(v reflect.Value, i int) reflect.Value {
	if !v.IsValid() {
		return v
	}
	return v.Field(i)
}

// element returns the element of a list that is equal to one, or nothing.
func element(list, one reflect.Value) reflect.Value {
	if list.IsValid() {
		for i := range list.Len() {
			if reflect.DeepEqual(list.Index(i).Interface(), one.Interface()) {
				return list.Index(i)
			}
		}
	}
	return reflect.Value{}
}
