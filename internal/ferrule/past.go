package ferrule

import (
	"math"
	"time"
)

// Latest is what is last known of a signal.
type Latest struct {
	Signal string `json:"signal"`
	Unit   string `json:"unit,omitempty"`
	Sample
}

// Period is what is asked of the past of a device: of which signals, from when to when.
type HistoryQuery struct {
	Device string
	// Signals are those that are meant; all of the device if there are none.
	Signals  []string
	From, To time.Time
	// Points is how many of each signal are wanted at most. They are grains that are
	// coarse enough for that.
	Points int
	// Grain is which grain is wanted; empty for the finest of which there are not too
	// many.
	Resolution Resolution
}

// Grain is what a Point stands for.
type Resolution string

// The grains.
const (
	Raw     Resolution = "raw"    // one sample
	Minutes Resolution = "minute" // the samples of a minute
	Hours   Resolution = "hour"   // the samples of an hour
)

// Curve is what is known of one signal in a Period: points in the order of their times,
// and where some are missing.
type Series struct {
	Signal     string
	Unit       string
	Resolution Resolution
	Points     []Point
	Gaps       []Gap
	// Cut tells that there is more than was wanted; what is missing is the oldest.
	Truncated bool
}

// Point is one sample, or several that are told together.
type Point struct {
	// Time is when it was measured; of several samples, the beginning of their minute
	// or hour.
	Time           time.Time
	Min, Max, Mean float64
	Count          int
	// Within is how far from Time one sample may have been measured.
	Within Duration
}

// Alone is the point of one sample.
func (s Sample) Point() Point {
	return Point{Time: s.Time, Min: s.Value, Max: s.Value, Mean: s.Value, Count: 1, Within: s.Within}
}

// Mean is that of values whose sum may be more than a number can be: they are added up as a
// small part of themselves, which is exact.
type Mean struct{ sum, count float64 }

const meanPart = 0x1p-64

// Add adds a value that stands for so many.
func (m *Mean) Add(value, count float64) {
	m.sum, m.count = m.sum+value*meanPart*count, m.count+count
}

// Count is how many there are.
func (m *Mean) Count() float64 { return m.count }

// Value is the mean of all.
func (m *Mean) Value() float64 {
	return max(-math.MaxFloat64, min(math.MaxFloat64, m.sum/m.count/meanPart))
}
