package ring

import (
	"math"
	"slices"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// shift is by how many samples a ring has moved between two reads: from min to max.
type shift struct {
	min, max int
	// reason is why samples may be missing, or "".
	reason ferrule.GapReason
	// ambiguous is set if the values fit several shifts, and only the time decides.
	ambiguous bool
	// flat is set if the values are the same for all of these shifts, and none is lost.
	flat bool
	// periods is set if the device does not sample at its declared interval.
	periods periods
}

func (s shift) exact() bool { return s.reason == "" && !s.flat }

// findShift returns by how many samples the ring has moved.
func (r *Ring) findShift(values []float64, now span) shift {
	if len(values) < len(r.values) && !r.partial || len(r.values) == 0 {
		return r.restarted(values, now)
	}
	if s, ok := r.grown(values, now); ok {
		return s
	}
	s, ok := r.fits(values, now, r.newest, r.learned)
	loosely, okLoosely := r.fits(values, now, r.direct, r.nominal)
	if !ok {
		s, ok = loosely, okLoosely
	}
	if !ok || s.min >= len(values) { // by the time alone, nothing overlaps: do the values?
		if uneven, found := r.uneven(values, now); found {
			if ok { // the device stood still, or its values repeat
				return shift{min: uneven.min, max: s.max, reason: ferrule.Unclear}
			}
			return uneven
		}
	}
	if !ok {
		return r.restarted(values, now)
	}
	s.ambiguous = okLoosely && loosely.max > loosely.min
	switch count := len(values); {
	case s.min >= count && s.max > count:
		s.reason = ferrule.Lost
	case s.min >= count && count < r.size: // not full, and the old values are gone
		s.reason = ferrule.Restart
		s.max++
	case s.max > s.min && s.max <= count && r.flat(values[count-s.max:count-s.min]):
		s.flat = true
	case s.max > s.min:
		s.reason = ferrule.Unclear
	}
	return s
}

// flat reports whether values only repeat the newest value. Then it does not matter how many
// of them are new: the signal had this value all the time.
func (r *Ring) flat(values []float64) bool {
	newest := r.values[len(r.values)-1]
	return !slices.ContainsFunc(values, func(v float64) bool { return v != newest })
}

// grown finds the shift of a ring that was not full, by its length, if it still begins
// with the same values. A ring may also be smaller than declared; then it does not.
func (r *Ring) grown(values []float64, now span) (s shift, ok bool) {
	more := len(values) - len(r.values)
	if r.partial || more <= 0 || len(values) >= r.size || !r.matches(values, more) {
		return s, false
	}
	s = shift{min: more, max: more}
	minimum, maximum := r.passed(now, r.direct, r.nominal)
	if more < minimum || maximum < more {
		if s, ok := r.uneven(values, now); ok {
			return s, true
		}
		s.max, s.reason = max(more, maximum), ferrule.Unclear // or it restarted, with the same values
	}
	return s, true
}

// passed returns how many samples were taken since a sample, by the time that has passed.
func (r *Ring) passed(now, since span, p periods) (minimum, maximum int) {
	minimum = int(math.Floor(float64(now.lo-since.hi-maxDelay(r.interval)-jitter) / p.max)) // the next was not taken yet
	maximum = int(math.Floor(float64(now.hi-since.lo+jitter) / p.min))
	return max(minimum, 0), max(maximum, 0)
}

// fits returns the shifts that agree with both the time that has passed and the values.
func (r *Ring) fits(values []float64, now, since span, p periods) (s shift, ok bool) {
	minimum, maximum := r.passed(now, since, p)
	if !r.partial {
		minimum = max(minimum, len(values)-len(r.values))
	}
	for n := minimum; n <= maximum; n++ {
		if n >= len(values) { // no overlap, for this and any larger n
			if !ok {
				s.min = n
			}
			s.max, ok = maximum, true
			break
		}
		if r.matches(values, n) {
			if !ok {
				s.min = n
			}
			s.max, ok = n, true
		}
	}
	return s, ok
}

// overlap returns the old values that are still in values if the ring has moved by so many
// samples, and their counterparts in values.
func (r *Ring) overlap(values []float64, moved int) (before, still []float64) {
	ahead := len(values) - len(r.values) - moved // offset of an old value in values
	from := max(0, -ahead)
	n := min(len(r.values)-from, len(values)-from-ahead)
	if n <= 0 {
		return nil, nil
	}
	return r.values[from : from+n], values[from+ahead : from+ahead+n]
}

// matches reports whether values are the old ones, moved by so many samples.
func (r *Ring) matches(values []float64, moved int) bool {
	before, still := r.overlap(values, moved)
	for i, v := range before {
		if v != still[i] && !(math.IsNaN(v) && math.IsNaN(still[i])) {
			return false
		}
	}
	return true
}

// Conditions for a shift that contradicts the time.
const (
	minOverlap  = 8  // values
	minDistinct = 3  // different numbers
	maxSlowdown = 16 // times the declared interval
)

// uneven finds the shift of a device that does not sample at its declared interval, if the
// values leave no doubt.
func (r *Ring) uneven(values []float64, now span) (s shift, ok bool) {
	found := 0
	for n := 1; n <= len(values)-minOverlap; n++ {
		if !r.matches(values, n) {
			continue
		}
		if found > 0 {
			return s, false
		}
		found = n
	}
	if same, _ := r.overlap(values, found); found == 0 || len(same) < minOverlap || !distinct(same, minDistinct) {
		return s, false
	}
	every := float64(now.middle()-r.direct.middle()) / float64(found)
	if declared := float64(r.interval); every < declared/2 || every > declared*maxSlowdown {
		return s, false
	}
	return shift{min: found, max: found, periods: periods{min(r.nominal.min, every*0.8), max(r.nominal.max, every*1.25)}}, true
}

// distinct reports whether values has at least want different numbers.
func distinct(values []float64, want int) bool {
	seen := make(map[float64]bool, want)
	for _, v := range values {
		if math.IsNaN(v) { // equals nothing
			continue
		}
		if seen[v] = true; len(seen) >= want {
			return true
		}
	}
	return false
}

// restarted counts as new what was certainly taken since the last read. A device that
// restarts may take a sample sooner than it was due.
func (r *Ring) restarted(values []float64, now span) shift {
	minimum, maximum := r.passed(now, r.direct, r.nominal)
	return shift{min: min(minimum, len(values)), max: maximum + 1, reason: ferrule.Restart}
}
