package mcpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// How often a pin is asked about.
const (
	soonest = time.Second
	seldom  = time.Minute
)

// Probes is what a board says that it samples, with how it is asked for that: the buffer
// of a pin, else its latest sample, and on which side of its thresholds that is.
func Polls(laid *ferrule.Manifest) (all []ferrule.Poll) {
	taken := make(map[string]int)
	for i := range laid.Pins {
		pin := &laid.Pins[i]
		name := signalOf(pin, taken)
		keeps := func(ability, tool string) bool {
			return slices.Contains(pin.Abilities, ability) && laid.Tool(tool) != nil
		}
		var summary *ferrule.Poll
		if keeps("summary", "get_pin_summary") {
			summary = summaryProbe(name, pin)
		}
		if keeps("buffer", "get_pin_buffer") && buffers(pin.Sampling) {
			all = append(all, bufferProbe(name, pin, summary))
		} else if summary != nil {
			all = append(all, *summary)
		}
		if keeps("events", "get_pin_events") {
			all = append(all, eventsProbe(name+threshold, pin))
		}
	}
	return all
}

// threshold is what the name of a signal ends with that tells on which side of its
// thresholds a pin is.
const threshold = "_threshold"

// signalOf is the name of what a pin measures. Boards may give two pins one name, or none.
// Taken is which names there are, and how often another was made of one.
func signalOf(pin *ferrule.Pin, taken map[string]int) string {
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
		all := base + number + "#" // which is no name
		if suffix = number; taken[all] > 0 {
			suffix += fmt.Sprintf("_%d", taken[all]+1)
		}
		taken[all]++
	}
}

// buffers tells whether a pin is sampled so that its buffer is worth reading.
func buffers(s *ferrule.Sampling) bool {
	return s != nil && s.Interval > 0 && s.Size > 1 && s.Size <= ferrule.MaxSamples
}

// bufferProbe asks for all samples that are kept, so often that each is seen twice, and
// a read that fails costs none. They are asked for by number: fewer are the oldest.
func bufferProbe(name string, pin *ferrule.Pin, instead *ferrule.Poll) ferrule.Poll {
	s := *pin.Sampling
	every := time.Duration(s.Interval) * time.Duration(s.Size) * 2 / 5
	return ferrule.Poll{
		Name: name, Tool: "get_pin_buffer", Args: fmt.Appendf(nil, `{"pin":%d,"limit":%d}`, pin.Number, s.Size),
		Every: within(every), Fallback: instead,
		Parse: func(answer json.RawMessage) ([]ferrule.Measurement, error) { return parseBuffer(name, s, answer) },
	}
}

// summaryProbe asks for the latest sample.
func summaryProbe(name string, pin *ferrule.Pin) *ferrule.Poll {
	interval := intervalOf(pin)
	return &ferrule.Poll{
		Name: name, Tool: "get_pin_summary", Args: fmt.Appendf(nil, `{"pin":%d}`, pin.Number), Every: within(interval),
		Parse: func(answer json.RawMessage) ([]ferrule.Measurement, error) {
			return parseSummary(name, interval, answer)
		},
	}
}

// eventsProbe asks on which side of its thresholds the latest sample is.
func eventsProbe(name string, pin *ferrule.Pin) ferrule.Poll {
	interval := intervalOf(pin)
	return ferrule.Poll{
		Name: name, Tool: "get_pin_events", Args: fmt.Appendf(nil, `{"pin":%d}`, pin.Number), Every: within(interval),
		Parse: func(answer json.RawMessage) ([]ferrule.Measurement, error) {
			return parseEvents(name, interval, answer)
		},
	}
}

func intervalOf(pin *ferrule.Pin) time.Duration {
	if pin.Sampling == nil {
		return 0
	}
	return time.Duration(pin.Sampling.Interval)
}

func within(every time.Duration) *ferrule.Duration {
	return new(ferrule.Duration(min(max(every, soonest), seldom)))
}

// number is a value in an answer: NaN for whatever is not a finite number.
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

// parseBuffer reads the samples that a pin's buffer holds.
func parseBuffer(name string, s ferrule.Sampling, answer json.RawMessage) ([]ferrule.Measurement, error) {
	var a struct {
		Values    []number `json:"values"`
		Available *bool    `json:"buffer_available"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return nil, errors.New(reason(err))
	}
	if a.Available != nil && !*a.Available {
		return nil, ferrule.Errorf(ferrule.Refused, "it has no buffer for this pin")
	}
	switch n := len(a.Values); {
	case a.Values == nil:
		return nil, errors.New("there are no values in it")
	case n > s.Size:
		return nil, fmt.Errorf("it has %d values, and the buffer holds %d", n, s.Size)
	}
	values := make([]float64, len(a.Values))
	for i, v := range a.Values {
		values[i] = float64(v)
	}
	return []ferrule.Measurement{{Signal: name, Values: values, Interval: time.Duration(s.Interval), Size: s.Size}}, nil
}

// parseSummary reads the latest sample, which was taken up to an interval ago.
func parseSummary(name string, interval time.Duration, answer json.RawMessage) ([]ferrule.Measurement, error) {
	var a struct {
		Latest  *number `json:"latest"`
		Samples *number `json:"samples"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return nil, errors.New(reason(err))
	}
	value := math.NaN()
	if a.Latest != nil && (a.Samples == nil || *a.Samples != 0) { // before the first it is 0
		value = float64(*a.Latest)
	}
	return []ferrule.Measurement{{Signal: name, Values: []float64{value}, Interval: interval, Size: 1}}, nil
}

// The states of a pin with thresholds.
const (
	below   = -1
	between = 0
	above   = 1
)

// parseEvents reads on which side of its thresholds the latest sample is. Firmware lists
// nothing for one that is between them.
func parseEvents(name string, interval time.Duration, answer json.RawMessage) ([]ferrule.Measurement, error) {
	var a struct {
		Events []struct {
			Type string `json:"type"`
		} `json:"events"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return nil, errors.New(reason(err))
	}
	if a.Events == nil {
		return nil, errors.New("there are no events in it, not even none")
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
