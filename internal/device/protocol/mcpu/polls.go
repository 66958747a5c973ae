package mcpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The limits of how often a pin is polled.
const (
	minInterval = time.Second
	maxInterval = time.Minute
)

// Polls returns how to read what a board samples. For each pin that is its buffer, or
// else its latest sample, and its threshold state. The manifest is the effective one.
func Polls(effective *ferrule.Manifest) (all []ferrule.Poll) {
	taken := make(map[string]int)
	for i := range effective.Pins {
		pin := &effective.Pins[i]
		name := signalName(pin, taken)
		has := func(ability, tool string) bool {
			return slices.Contains(pin.Abilities, ability) && effective.Tool(tool) != nil
		}
		var summary *ferrule.Poll
		if has("summary", "get_pin_summary") {
			summary = summaryPoll(name, pin)
		}
		if has("buffer", "get_pin_buffer") && hasBuffer(pin.Sampling) {
			all = append(all, bufferPoll(name, pin, summary))
		} else if summary != nil {
			all = append(all, *summary)
		}
		if has("events", "get_pin_events") {
			all = append(all, eventsPoll(name+threshold, pin))
		}
	}
	return all
}

// threshold is the suffix of the signal for a pin's threshold state.
const threshold = "_threshold"

// signalName returns a unique name for the signal of a pin. Boards may give two pins
// the same name, or none. Taken counts the names in use.
func signalName(pin *ferrule.Pin, taken map[string]int) string {
	base, number := ferrule.SignalName(pin.Name), fmt.Sprintf("_%d", pin.Number)
	suffix := ""
	if base == "" {
		base, suffix = "pin", number
	}
	for {
		name := base[:min(len(base), ferrule.MaxSignal-len(suffix)-len(threshold))] + suffix
		if taken[name] == 0 && taken[name+threshold] == 0 {
			taken[name], taken[name+threshold] = 1, 1
			return name
		}
		all := base + number + "#" // a key that is not a valid name
		if suffix = number; taken[all] > 0 {
			suffix += fmt.Sprintf("_%d", taken[all]+1)
		}
		taken[all]++
	}
}

// hasBuffer reports whether a pin has a buffer that is worth reading.
func hasBuffer(s *ferrule.Sampling) bool {
	return s != nil && s.Interval > 0 && s.Size > 1 && s.Size <= ferrule.MaxSamples
}

// bufferPoll reads the whole buffer, so often that each sample is seen twice: a read
// that fails loses nothing. It asks for all samples, because with a lower limit the
// board returns the oldest.
func bufferPoll(name string, pin *ferrule.Pin, fallback *ferrule.Poll) ferrule.Poll {
	s := *pin.Sampling
	every := time.Duration(s.Interval) * time.Duration(s.Size) * 2 / 5
	return ferrule.Poll{
		Name: name, Tool: "get_pin_buffer", Args: fmt.Appendf(nil, `{"pin":%d,"limit":%d}`, pin.Number, s.Size),
		Every: clamp(every), Fallback: fallback,
		Parse: func(answer json.RawMessage) ([]ferrule.Measurement, error) { return parseBuffer(name, s, answer) },
	}
}

// summaryPoll reads the latest sample.
func summaryPoll(name string, pin *ferrule.Pin) *ferrule.Poll {
	interval := samplingInterval(pin)
	return &ferrule.Poll{
		Name: name, Tool: "get_pin_summary", Args: fmt.Appendf(nil, `{"pin":%d}`, pin.Number), Every: clamp(interval),
		Parse: func(answer json.RawMessage) ([]ferrule.Measurement, error) {
			return parseSummary(name, interval, answer)
		},
	}
}

// eventsPoll reads the threshold state of the latest sample.
func eventsPoll(name string, pin *ferrule.Pin) ferrule.Poll {
	interval := samplingInterval(pin)
	return ferrule.Poll{
		Name: name, Tool: "get_pin_events", Args: fmt.Appendf(nil, `{"pin":%d}`, pin.Number), Every: clamp(interval),
		Parse: func(answer json.RawMessage) ([]ferrule.Measurement, error) {
			return parseEvents(name, interval, answer)
		},
	}
}

func samplingInterval(pin *ferrule.Pin) time.Duration {
	if pin.Sampling == nil {
		return 0
	}
	return time.Duration(pin.Sampling.Interval)
}

func clamp(every time.Duration) *ferrule.Duration {
	return new(ferrule.Duration(min(max(every, minInterval), maxInterval)))
}

// number is a value in an answer. Anything but a finite number becomes NaN.
type number float64

// UnmarshalJSON implements json.Unmarshaler.
func (n *number) UnmarshalJSON(data []byte) error {
	v, err := strconv.ParseFloat(string(data), 64)
	if err != nil || math.IsInf(v, 0) {
		v = math.NaN()
	}
	*n = number(v)
	return nil
}

// parseBuffer returns the samples in the buffer of a pin.
func parseBuffer(name string, s ferrule.Sampling, answer json.RawMessage) ([]ferrule.Measurement, error) {
	var a struct {
		Values    []number `json:"values"`
		Available *bool    `json:"buffer_available"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return nil, errors.New(jsonrpc.Reason(err))
	}
	if a.Available != nil && !*a.Available {
		return nil, ferrule.Errorf(ferrule.Refused, "the board has no buffer for this pin")
	}
	switch n := len(a.Values); {
	case a.Values == nil:
		return nil, errors.New("values is missing")
	case n > s.Size:
		return nil, fmt.Errorf("got %d values, but the buffer holds %d", n, s.Size)
	}
	values := make([]float64, len(a.Values))
	for i, v := range a.Values {
		values[i] = float64(v)
	}
	return []ferrule.Measurement{{Signal: name, Values: values, Interval: time.Duration(s.Interval), Size: s.Size}}, nil
}

// parseSummary returns the latest sample, which is at most one interval old.
func parseSummary(name string, interval time.Duration, answer json.RawMessage) ([]ferrule.Measurement, error) {
	var a struct {
		Latest  *number `json:"latest"`
		Samples *number `json:"samples"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return nil, errors.New(jsonrpc.Reason(err))
	}
	value := math.NaN()
	if a.Latest != nil && (a.Samples == nil || *a.Samples != 0) { // before the first sample, latest is 0
		value = float64(*a.Latest)
	}
	return []ferrule.Measurement{{Signal: name, Values: []float64{value}, Interval: interval, Size: 1}}, nil
}

// The threshold states of a pin.
const (
	below   = -1
	between = 0
	above   = 1
)

// parseEvents returns the threshold state of the latest sample. Firmware lists no
// event for a sample between the thresholds.
func parseEvents(name string, interval time.Duration, answer json.RawMessage) ([]ferrule.Measurement, error) {
	var a struct {
		Events []struct {
			Type string `json:"type"`
		} `json:"events"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return nil, errors.New(jsonrpc.Reason(err))
	}
	if a.Events == nil {
		return nil, errors.New("events is missing")
	}
	state := float64(between)
	for _, e := range a.Events {
		switch e.Type {
		case "threshold_high":
			state = above
		case "threshold_low":
			state = below
		}
	}
	return []ferrule.Measurement{{Signal: name, Values: []float64{state}, Interval: interval, Size: 1, State: true}}, nil
}
