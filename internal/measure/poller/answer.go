package poller

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The bounds of an answer.
const (
	maxAnswer   = 256 << 10 // bytes
	maxInterval = 24 * time.Hour
)

// usualInterval is between two values of a buffer that does not say.
const usualInterval = time.Second

// measuresOf is what an answer says, if nobody knows better: its numbers are signals. One
// number is named as the probe; the members of an object are named after both, those of
// an object in it as well. Truths are 0 and 1. A buffer, as MCP/U's polled tools give
// them, is a ring; so is a list of values, where the owner says that it is one.
func measuresOf(p *ferrule.Poll, result *ferrule.Result) ([]ferrule.Measurement, error) {
	value := valueOf(result)
	switch n := len(value); {
	case n == 0:
		return nil, errors.New("there is no JSON in its answer")
	case n > maxAnswer:
		return nil, fmt.Errorf("its answer has %d bytes; at most %d are read", n, maxAnswer)
	}
	v, err := decode(value)
	if err != nil {
		return nil, fmt.Errorf("its answer makes no sense: %w", err)
	}
	t := taker{ring: p.Ring, names: make(map[string]bool)}
	if args, err := decode(p.Args); err == nil {
		t.asked, _ = args.(map[string]any)
	}
	t.take(p.Name, v, 0)
	switch {
	case t.err != nil:
		return nil, t.err
	case len(t.all) == 0:
		return nil, errors.New("there is no number in its answer")
	}
	return t.all, nil
}

// valueOf is the JSON in an answer: its value, or the only one of its texts that is JSON.
func valueOf(result *ferrule.Result) (value json.RawMessage) {
	if len(result.Value) > 0 {
		return result.Value
	}
	for _, c := range result.Content {
		if c.Type != ferrule.TextContent || len(c.Text) > maxAnswer || !json.Valid([]byte(c.Text)) {
			continue
		}
		if value != nil {
			return nil
		}
		value = json.RawMessage(c.Text)
	}
	return value
}

func decode(data json.RawMessage) (v any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errors.New("something follows it")
	}
	return v, nil
}

// taker takes an answer apart.
type taker struct {
	ring  *ferrule.Sampling
	asked map[string]any // the arguments
	names map[string]bool
	all   []ferrule.Measurement
	held  int // values so far
	err   error
}

// deepest is how many objects may stand in each other.
const deepest = 2

// take takes what it can of a value, in the order of names.
func (t *taker) take(name string, v any, depth int) {
	switch v := v.(type) {
	case json.Number, bool, nil:
		t.add(ferrule.Measurement{Signal: name, Values: []float64{number(v)}})
	case []any:
		if t.ring != nil && depth == 0 {
			t.addRing(name, v, *t.ring)
		}
	case map[string]any:
		if values, sampling, ok := t.buffer(v); ok {
			if resource, ok := v["resource"].(string); ok && t.ring == nil {
				name = join(name, resource)
			}
			t.addRing(name, values, sampling)
			return
		}
		if depth == deepest {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if said, repeats := t.asked[key]; repeats && reflect.DeepEqual(said, v[key]) {
				continue // it says what it was asked for, and measures nothing
			}
			if member := join(name, key); member != name {
				t.take(member, v[key], depth+1)
			}
		}
	}
}

// join is the name of a part of something; the same name if the part has none.
func join(name, part string) string {
	if part = ferrule.SignalName(part); part == "" {
		return name
	}
	return ferrule.SignalName(name + "_" + part)
}

// buffer tells whether an object is a buffer, and how it is sampled.
func (t *taker) buffer(v map[string]any) (values []any, s ferrule.Sampling, ok bool) {
	if values, ok = v["values"].([]any); !ok {
		return nil, s, false
	}
	if t.ring != nil {
		return values, *t.ring, true
	}
	if v["type"] != "buffer" {
		return nil, s, false
	}
	s = ferrule.Sampling{Interval: ferrule.Duration(usualInterval), Size: ferrule.MaxSamples} // how many it keeps, it does not say
	if ms, said := v["sample_interval_ms"]; said {
		every := number(ms) * float64(time.Millisecond)
		if !(every >= float64(time.Millisecond) && every <= float64(maxInterval)) {
			t.err = fmt.Errorf("it samples each %v ms, it says", ms)
			return nil, s, true
		}
		s.Interval = ferrule.Duration(every)
	}
	return values, s, true
}

func (t *taker) addRing(name string, values []any, s ferrule.Sampling) {
	if len(values) > s.Size {
		t.err = fmt.Errorf("its answer has %d values; at most %d are possible", len(values), s.Size)
		return
	}
	m := ferrule.Measurement{Signal: name, Values: make([]float64, len(values)), Interval: time.Duration(s.Interval), Size: s.Size}
	for i, v := range values {
		m.Values[i] = number(v)
	}
	t.add(m)
}

// add keeps a measure, if there is room: the first of a name counts.
func (t *taker) add(m ferrule.Measurement) {
	if len(t.all) == ferrule.MaxBatches || t.names[m.Signal] || t.held+len(m.Values) > ferrule.MaxSamples {
		return
	}
	t.names[m.Signal] = true
	t.held += len(m.Values)
	t.all = append(t.all, m)
}

// number is a value as a number: NaN if it is none.
func number(v any) float64 {
	switch v := v.(type) {
	case json.Number:
		if f, err := v.Float64(); err == nil && !math.IsInf(f, 0) {
			return f
		}
	case bool:
		if v {
			return 1
		}
		return 0
	}
	return math.NaN()
}
