package ferrule

import (
	"math"
	"time"
)

// Latest is the latest known value of a signal.
type Latest struct {
	Signal string `json:"signal"`
	Unit   string `json:"unit,omitempty"`
	// State reports whether the value is a state: valid until the next.
	State bool `json:"state,omitempty"`
	Sample
}

// HistoryQuery selects signals of a device and a time range.
type HistoryQuery struct {
	Device string
	// Signals is empty for all signals of the device.
	Signals  []string
	From, To time.Time
	// Points is the maximum number of points per signal. The resolution is
	// reduced until they fit.
	Points int
	// Resolution is empty for the finest one that fits into Points.
	Resolution Resolution
}

// Resolution is the time span of a Point.
type Resolution string

// The resolutions.
const (
	Raw     Resolution = "raw"    // one sample
	Minutes Resolution = "minute" // the samples of a minute
	Hours   Resolution = "hour"   // the samples of an hour
)

// Series holds the points of one signal in a time range, in time order, and the
// gaps between them.
type Series struct {
	Signal     string
	Unit       string
	Resolution Resolution
	// State reports whether the values are states: each is valid until the next.
	State  bool
	Points []Point
	Gaps   []Gap
	// Last is the newest sample in the time range, whatever the resolution. It is nil if
	// the samples of the range are no longer stored.
	Last *Sample
	// Truncated reports whether the oldest points were left out.
	Truncated bool
}

// Point is one sample, or the summary of several.
type Point struct {
	// Time is when the sample was measured, or the start of the minute or hour.
	Time           time.Time
	Min, Max, Mean float64
	Count          int
	// Within is the uncertainty of Time for one sample.
	Within Duration
}

// Point returns the point for one sample.
func (s Sample) Point() Point {
	return Point{Time: s.Time, Min: s.Value, Max: s.Value, Mean: s.Value, Count: 1, Within: s.Within}
}

// Past is what somebody else has recorded of a signal, before the gateway did.
type Past struct {
	Unit    string
	State   bool
	Samples []Sample
	// Gaps are times in which values may be missing.
	Gaps []Gap
	// Hours are older than all samples, which may be kept for a shorter time.
	Hours []Point
}

// Mean computes a mean whose sum may exceed the range of float64: it scales the
// values down by a power of two, which is exact.
type Mean struct{ sum, count float64 }

const meanScale = 0x1p-64

// Add adds a value with a weight of count.
func (m *Mean) Add(value, count float64) {
	m.sum, m.count = m.sum+value*meanScale*count, m.count+count
}

// Count returns the total weight.
func (m *Mean) Count() float64 { return m.count }

// Value returns the mean.
func (m *Mean) Value() float64 {
	return max(-math.MaxFloat64, min(math.MaxFloat64, m.sum/m.count/meanScale))
}

// StoredReading is a Reading in a stream, for consumers that read it in order.
type StoredReading struct {
	// Reading is nil if the end of the stream was reached.
	Reading *Reading
	// Position identifies the reading in its stream, to continue after it. Only
	// the store can interpret it.
	Position string
	// Lost reports whether readings before this one may have been discarded.
	Lost bool
	// MayRepeat reports whether this reading may have been delivered before,
	// because the requested position no longer exists.
	MayRepeat bool
	// Remaining is the number of further readings in the stream.
	Remaining uint64
}
