package ferrule

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// Probe is how the gateway asks a device for what it measures: a tool, with arguments,
// each so often.
type Poll struct {
	// Name tells the probes of a device apart.
	Name string `json:"name"`
	// Tool and Args are what it is asked with.
	Tool string          `json:"tool,omitempty"`
	Args json.RawMessage `json:"args,omitempty"`
	// Every is how often: zero is not at all, and nil is that nothing was said.
	Every *Duration `json:"every,omitempty"`
	// Unit is what its numbers are in, where somebody said so.
	Unit string `json:"unit,omitempty"`
	// Ring tells how the device samples by itself what it answers, where its owner says so.
	Ring *Sampling `json:"ring,omitempty"`
	// Parse takes an answer apart; nil for one whose numbers are its signals. It refuses
	// with an [Error] of code Refused an answer by which the device says that it does
	// not have what it was asked for.
	Parse func(answer json.RawMessage) ([]Measurement, error) `json:"-"`
	// Else is what is asked in its place if the device refuses it; nil for nothing.
	Fallback *Poll `json:"-"`
}

// Change changes a probe word by word: what is not said stays as it was.
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

// Measure is what one answer says about one signal.
type Measurement struct {
	Signal string
	Unit   string
	// Values are what was measured, the oldest first; NaN where there is no number.
	Values []float64
	// Interval is between two values that the device took by itself, and Size is how many
	// of them it keeps. Zero tells of one value, taken when it was asked.
	Interval time.Duration
	Size     int
	// State tells that the value is a state, of which only changes are of interest.
	State bool
}

// Reading is what asking a device once has brought.
type Reading struct {
	Device string `json:"device"`
	Node   string `json:"node"`
	Poll   string `json:"poll"`
	// Time is when the answer came.
	Time    time.Time     `json:"time"`
	Batches []SampleBatch `json:"batches"`
}

// Series is what a reading says about one signal that it did not say before: samples,
// in the order of their times, and where some are missing.
type SampleBatch struct {
	Signal  string   `json:"signal"`
	Unit    string   `json:"unit,omitempty"`
	Samples []Sample `json:"-"`
	Gaps    []Gap    `json:"gaps,omitempty"`
}

// Sample is a number that was measured once.
type Sample struct {
	Time  time.Time `json:"time"`
	Value float64   `json:"value"`
	// Within is how far from Time it may have been measured, before or after.
	Within Duration `json:"within,omitempty"`
}

// Hole is a stretch in which samples may be missing, between two that are recorded.
type Gap struct {
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Reason GapReason `json:"reason"`
	// Most is how many samples may be missing; 0 if that is not known.
	MaxMissing int `json:"max_missing,omitempty"`
}

// HoleReason tells why samples may be missing.
type GapReason string

// Why samples may be missing.
const (
	// Lost tells that the device had overwritten them before it was asked.
	Lost GapReason = "lost"
	// Unclear tells that it cannot be said whether there were more: what the device
	// measured is too much alike.
	Unclear GapReason = "unclear"
	// Restart tells that the device began anew, and what it had was gone.
	Restart GapReason = "restart"
	// Silent tells that the device did not answer, or gave no number.
	Silent GapReason = "silent"
	// Dropped tells that there was no room here for what the device said.
	Dropped GapReason = "dropped"
)

// The bounds of what is measured.
const (
	MaxSignal  = 64   // characters of a signal's or a probe's name
	MaxUnit    = 16   // characters
	MaxBatches = 64   // of one reading
	MaxSamples = 4096 // of one reading
	MaxGaps    = 64   // of one series
)

// SignalName makes a name of what a device calls something: letters, digits, - and _,
// which stand in subjects and URIs as they are. It is empty if nothing is left.
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

// CheckSignal tells what is wrong with the name of a signal or a probe.
func CheckSignal(name string) error {
	if name == "" || SignalName(name) != name {
		return fmt.Errorf("want up to %d letters, digits, - and _, got %q", MaxSignal, Clean(name, MaxWord))
	}
	return nil
}

// Check tells what is wrong with a reading, whoever made it.
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
		return fmt.Errorf("%d series; at most %d are possible", n, MaxBatches)
	}
	samples := 0
	for i := range r.Batches {
		if err := r.Batches[i].check(); err != nil {
			return err
		}
		samples += len(r.Batches[i].Samples)
	}
	if samples > MaxSamples {
		return fmt.Errorf("%d samples; at most %d are possible", samples, MaxSamples)
	}
	return nil
}

func (s *SampleBatch) check() error {
	if err := CheckSignal(s.Signal); err != nil {
		return fmt.Errorf("signal: %w", err)
	}
	if s.Unit != Clean(s.Unit, MaxUnit) {
		return fmt.Errorf("%s: the unit cannot be shown", s.Signal)
	}
	if n := len(s.Gaps); n > MaxGaps {
		return fmt.Errorf("%s: %d holes; at most %d are possible", s.Signal, n, MaxGaps)
	}
	for i, sample := range s.Samples {
		switch {
		case math.IsNaN(sample.Value) || math.IsInf(sample.Value, 0):
			return fmt.Errorf("%s: %v is not a number", s.Signal, sample.Value)
		case sample.Within < 0:
			return fmt.Errorf("%s: a sample within less than nothing", s.Signal)
		case i > 0 && !sample.Time.After(s.Samples[i-1].Time):
			return fmt.Errorf("%s: samples are out of order", s.Signal)
		}
	}
	return nil
}

// columns is a Series as it is written: times in microseconds, each after the one
// before it, and so is how sure they are.
type columns struct {
	Signal string    `json:"signal"`
	Unit   string    `json:"unit,omitempty"`
	Times  []int64   `json:"times,omitempty"`
	Values []float64 `json:"values,omitempty"`
	Within []int64   `json:"within,omitempty"`
	Gaps   []Gap     `json:"gaps,omitempty"`
}

// MarshalJSON writes samples in columns, which takes a third of the room.
func (s SampleBatch) MarshalJSON() ([]byte, error) {
	c := columns{Signal: s.Signal, Unit: s.Unit, Gaps: s.Gaps}
	var time, within int64
	for _, sample := range s.Samples {
		t, w := sample.Time.UnixMicro(), int64(sample.Within)/1000
		c.Times, c.Within = append(c.Times, t-time), append(c.Within, w-within)
		c.Values = append(c.Values, sample.Value)
		time, within = t, w
	}
	return json.Marshal(c)
}

// UnmarshalJSON reads what MarshalJSON has written.
func (s *SampleBatch) UnmarshalJSON(data []byte) error {
	var c columns
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	if len(c.Times) != len(c.Values) || len(c.Times) != len(c.Within) {
		return errors.New("as many times as values are wanted")
	}
	*s = SampleBatch{Signal: c.Signal, Unit: c.Unit, Gaps: c.Gaps}
	if len(c.Times) > 0 {
		s.Samples = make([]Sample, len(c.Times))
	}
	var at, within int64
	for i := range c.Times {
		at, within = at+c.Times[i], within+c.Within[i]
		if within < 0 || within > math.MaxInt64/1000 {
			return errors.New("a sample within more than can be said")
		}
		s.Samples[i] = Sample{time.UnixMicro(at), c.Values[i], Duration(within * 1000)}
	}
	return nil
}
