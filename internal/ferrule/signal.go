package ferrule

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// Poll is how the gateway asks a device for a measurement: a tool, its arguments
// and an interval.
type Poll struct {
	// Name is unique among the polls of a device.
	Name string          `json:"name"`
	Tool string          `json:"tool,omitempty"`
	Args json.RawMessage `json:"args,omitempty"`
	// Every is the interval. Zero disables the poll; nil leaves the default.
	Every *Duration `json:"every,omitempty"`
	// Unit is the unit of the values, if it is known.
	Unit string `json:"unit,omitempty"`
	// Ring is set if the answer is a ring buffer that the device fills by itself.
	Ring *Sampling `json:"ring,omitempty"`
	// Parse extracts the measurements from an answer. If it is nil, each number in
	// the answer is a signal. Parse returns an [Error] with code Refused if the
	// device answers that it does not have the measurement.
	Parse func(answer json.RawMessage) ([]Measurement, error) `json:"-"`
	// Fallback replaces this poll if the device refuses it; it may be nil.
	Fallback *Poll `json:"-"`
}

// Merge overwrites the fields of p that are set in said.
func (p *Poll) Merge(said Poll) {
	if said.Tool != "" {
		p.Tool = said.Tool
	}
	if said.Args != nil {
		p.Args = said.Args
	}
	if said.Every != nil {
		p.Every = said.Every
	}
	if said.Unit != "" {
		p.Unit = said.Unit
	}
	if said.Ring != nil {
		p.Ring = said.Ring
	}
}

// Measurement is the part of one answer that is about one signal.
type Measurement struct {
	Signal string
	Unit   string
	// Values are the measured values, oldest first; NaN marks a missing one.
	Values []float64
	// Interval is the time between two values of a ring buffer and Size is its
	// capacity. Both are zero for a single value, taken on request.
	Interval time.Duration
	Size     int
	// State reports whether the value is a state; only its changes are stored.
	State bool
}

// Reading is the result of polling a device once.
type Reading struct {
	Device string `json:"device"`
	Node   string `json:"node"`
	Poll   string `json:"poll"`
	// Time is when the answer arrived.
	Time    time.Time     `json:"time"`
	Batches []SampleBatch `json:"batches"`
}

// SampleBatch holds the new samples of one signal in a Reading, in time order, and
// the gaps between them.
type SampleBatch struct {
	Signal string `json:"signal"`
	Unit   string `json:"unit,omitempty"`
	// State reports whether the values are states: only their changes are stored.
	State   bool     `json:"state,omitempty"`
	Samples []Sample `json:"-"`
	Gaps    []Gap    `json:"gaps,omitempty"`
}

// Sample is one measured value.
type Sample struct {
	Time  time.Time `json:"time"`
	Value float64   `json:"value"`
	// Within is the uncertainty of Time: the value was measured at Time ± Within.
	Within Duration `json:"within,omitempty"`
}

// Gap is a time range between two samples in which samples may be missing.
type Gap struct {
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Reason GapReason `json:"reason"`
	// MaxMissing is the maximum number of missing samples; 0 if it is unknown.
	MaxMissing int `json:"max_missing,omitempty"`
}

// GapReason is the cause of a Gap.
type GapReason string

// The causes of gaps.
const (
	// Lost means that the device overwrote samples before they were read.
	Lost GapReason = "lost"
	// Unclear means that it cannot be determined whether samples are missing,
	// because the values are too similar.
	Unclear GapReason = "unclear"
	// Restart means that the device restarted and lost its samples.
	Restart GapReason = "restart"
	// Silent means that the device did not answer, or not with a number.
	Silent GapReason = "silent"
	// Late means that the device was read much later than planned, for example because a
	// call kept it busy.
	Late GapReason = "late"
	// Dropped means that the gateway had to discard samples.
	Dropped GapReason = "dropped"
)

// The limits of measurements.
const (
	MaxSignal  = 64   // characters of the name of a signal or a poll
	MaxUnit    = 16   // characters
	MaxBatches = 64   // of one reading
	MaxSamples = 4096 // of one reading
	MaxGaps    = 64   // of one batch
)

// SignalName turns a device's name for something into the name of a signal:
// letters, digits, - and _, which are safe in NATS subjects and URIs. It returns
// "" if nothing is left.
func SignalName(s string) string {
	name := make([]byte, 0, min(len(s), MaxSignal))
	for _, c := range s {
		if len(name) == MaxSignal {
			break
		}
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_':
			name = append(name, byte(c))
		case len(name) > 0 && name[len(name)-1] != '_':
			name = append(name, '_')
		}
	}
	return string(name)
}

// CheckSignal returns an error if name cannot be the name of a signal or a poll.
func CheckSignal(name string) error {
	if name == "" || SignalName(name) != name {
		return fmt.Errorf("must be 1 to %d letters, digits, - or _, got %q", MaxSignal, Clean(name, MaxWord))
	}
	return nil
}

// Check returns an error if a reading from another node is invalid.
func (r *Reading) Check() error {
	if err := CheckID(r.Device); err != nil {
		return fmt.Errorf("device: %w", err)
	}
	if err := CheckID(r.Node); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	if err := CheckSignal(r.Poll); err != nil {
		return fmt.Errorf("poll: %w", err)
	}
	if n := len(r.Batches); n > MaxBatches {
		return fmt.Errorf("%d batches; limit is %d", n, MaxBatches)
	}
	samples := 0
	for i := range r.Batches {
		if err := r.Batches[i].check(); err != nil {
			return err
		}
		samples += len(r.Batches[i].Samples)
	}
	if samples > MaxSamples {
		return fmt.Errorf("%d samples; limit is %d", samples, MaxSamples)
	}
	return nil
}

func (s *SampleBatch) check() error {
	if err := CheckSignal(s.Signal); err != nil {
		return fmt.Errorf("signal: %w", err)
	}
	if s.Unit != Clean(s.Unit, MaxUnit) {
		return fmt.Errorf("%s: unit is too long or unprintable", s.Signal)
	}
	if n := len(s.Gaps); n > MaxGaps {
		return fmt.Errorf("%s: %d gaps; limit is %d", s.Signal, n, MaxGaps)
	}
	for i, sample := range s.Samples {
		switch {
		case math.IsNaN(sample.Value) || math.IsInf(sample.Value, 0):
			return fmt.Errorf("%s: %v is not a number", s.Signal, sample.Value)
		case sample.Within < 0:
			return fmt.Errorf("%s: within must not be negative", s.Signal)
		case i > 0 && !sample.Time.After(s.Samples[i-1].Time):
			return fmt.Errorf("%s: samples are out of order", s.Signal)
		}
	}
	return nil
}

// columns is the JSON form of a SampleBatch. Times and Within are in microseconds,
// each as the difference to the one before.
type columns struct {
	Signal string    `json:"signal"`
	Unit   string    `json:"unit,omitempty"`
	State  bool      `json:"state,omitempty"`
	Times  []int64   `json:"times,omitempty"`
	Values []float64 `json:"values,omitempty"`
	Within []int64   `json:"within,omitempty"`
	Gaps   []Gap     `json:"gaps,omitempty"`
}

// MarshalJSON writes samples as columns, which takes a third of the space.
func (s SampleBatch) MarshalJSON() ([]byte, error) {
	c := columns{Signal: s.Signal, Unit: s.Unit, State: s.State, Gaps: s.Gaps}
	var time, within int64
	for _, sample := range s.Samples {
		t, w := sample.Time.UnixMicro(), int64(sample.Within)/1000
		c.Times, c.Within = append(c.Times, t-time), append(c.Within, w-within)
		c.Values = append(c.Values, sample.Value)
		time, within = t, w
	}
	return json.Marshal(c)
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *SampleBatch) UnmarshalJSON(data []byte) error {
	var c columns
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	if len(c.Times) != len(c.Values) || len(c.Times) != len(c.Within) {
		return errors.New("times, values and within must have the same length")
	}
	*s = SampleBatch{Signal: c.Signal, Unit: c.Unit, State: c.State, Gaps: c.Gaps}
	if len(c.Times) > 0 {
		s.Samples = make([]Sample, len(c.Times))
	}
	var at, within int64
	for i := range c.Times {
		at, within = at+c.Times[i], within+c.Within[i]
		if within < 0 || within > math.MaxInt64/1000 {
			return errors.New("within is out of range")
		}
		s.Samples[i] = Sample{time.UnixMicro(at), c.Values[i], Duration(within * 1000)}
	}
	return nil
}
