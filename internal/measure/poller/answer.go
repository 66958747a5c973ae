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

// The limits of an answer.
const (
	maxAnswer   = 256 << 10 // bytes
	maxInterval = 24 * time.Hour
)

// defaultInterval is the sample interval of a buffer that does not declare one.
const defaultInterval = time.Second

// measurements returns the measurements in an answer of a poll without a parser. Numbers
// and booleans (0 or 1) are signals. A single number is named after the poll, members of
// objects after the poll and their path. A buffer, as MCP/U's polled tools return it, is a
// ring; so is an array if the overlay declares a ring.
func measurements(p *ferrule.Poll, result *ferrule.Result) ([]ferrule.Measurement, error) {
	value := jsonValue(result)
	switch n := len(value); {
	case n == 0:
		return nil, errors.New("the answer has no JSON value")
	case n > maxAnswer:
		return nil, fmt.Errorf("the answer has %d bytes, limit is %d", n, maxAnswer)
	}
	v, err := decode(value)
	if err != nil {
		return nil, fmt.Errorf("invalid JSON in the answer: %w", err)
	}
	t := extractor{ring: p.Ring, names: make(map[string]bool)}
	if args, err := decode(p.Args); err == nil {
		t.args, _ = args.(map[string]any)
	}
	t.extract(p.Name, v, 0)
	switch {
	case t.err != nil:
		return nil, t.err
	case len(t.all) == 0:
		return nil, errors.New("the answer has no number")
	}
	return t.all, nil
}

// jsonValue returns the value of an answer, or its only text content that is JSON.
func jsonValue(result *ferrule.Result) (value json.RawMessage) {
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
		return nil, errors.New("data after the JSON value")
	}
	return v, nil
}

// extractor collects the measurements of an answer.
type extractor struct {
	ring  *ferrule.Sampling
	args  map[string]any // of the call
	names map[string]bool
	all   []ferrule.Measurement
	count int // values in all
	err   error
}

// maxDepth is how deep objects may be nested.
const maxDepth = 2

// extract adds the measurements in a value, sorted by name.
func (t *extractor) extract(name string, v any, depth int) {
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
		if depth == maxDepth {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if arg, repeated := t.args[key]; repeated && reflect.DeepEqual(arg, v[key]) {
				continue // it repeats an argument
			}
			if member := join(name, key); member != name {
				t.extract(member, v[key], depth+1)
			}
		}
	}
}

// join returns the name of a member, or name itself if the member's name has no usable
// character.
func join(name, part string) string {
	if part = ferrule.SignalName(part); part == "" {
		return name
	}
	return ferrule.SignalName(name + "_" + part)
}

// buffer reports whether an object is a buffer, and returns its values and sampling.
func (t *extractor) buffer(v map[string]any) (values []any, s ferrule.Sampling, ok bool) {
	if values, ok = v["values"].([]any); !ok {
		return nil, s, false
	}
	if t.ring != nil {
		return values, *t.ring, true
	}
	if v["type"] != "buffer" {
		return nil, s, false
	}
	s = ferrule.Sampling{Interval: ferrule.Duration(defaultInterval), Size: ferrule.MaxSamples} // it does not declare its size
	if ms, said := v["sample_interval_ms"]; said {
		every := number(ms) * float64(time.Millisecond)
		if !(every >= float64(time.Millisecond) && every <= float64(maxInterval)) {
			t.err = fmt.Errorf("sample_interval_ms must be between 1 and %d, got %v", maxInterval.Milliseconds(), ms)
			return nil, s, true
		}
		s.Interval = ferrule.Duration(every)
	}
	return values, s, true
}

func (t *extractor) addRing(name string, values []any, s ferrule.Sampling) {
	if len(values) > s.Size {
		t.err = fmt.Errorf("the answer has %d values, limit is %d", len(values), s.Size)
		return
	}
	m := ferrule.Measurement{Signal: name, Values: make([]float64, len(values)), Interval: time.Duration(s.Interval), Size: s.Size}
	for i, v := range values {
		m.Values[i] = number(v)
	}
	t.add(m)
}

// add keeps a measurement within the limits. The first of each name counts.
func (t *extractor) add(m ferrule.Measurement) {
	if len(t.all) == ferrule.MaxBatches || t.names[m.Signal] || t.count+len(m.Values) > ferrule.MaxSamples {
		return
	}
	t.names[m.Signal] = true
	t.count += len(m.Values)
	t.all = append(t.all, m)
}

// number returns a value as a number, or NaN.
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
