package ring

import (
	"math"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// shift is how far a ring has moved between two reads, in samples: anything from least
// to most.
type shift struct {
	least, most int
	// why is why samples are missing, if they are.
	why ferrule.GapReason
	// alike tells that what was read would fit otherwise, and time alone decides.
	alike bool
	// loose is how fast the device samples, if it does not do so as it says.
	loose rates
}

func (s shift) exact() bool { return s.why == "" }

// shift finds how far the ring has moved.
func (r *Ring) shift(values []float64, now span) shift {
	if len(values) < len(r.values) && !r.partly || len(r.values) == 0 {
		return r.restarted(values, now)
	}
	if s, ok := r.grown(values, now); ok {
		return s
	}
	s, ok := r.fits(values, now, r.newest, r.learned)
	loosely, okLoosely := r.fits(values, now, r.direct, r.usual)
	if !ok {
		s, ok = loosely, okLoosely
	}
	if !ok || s.least >= len(values) { // by time, nothing of it was read before: was it?
		if uneven, found := r.uneven(values, now); found {
			if ok { // it may have stood still, or repeats itself
				return shift{least: uneven.least, most: s.most, why: ferrule.Unclear}
			}
			return uneven
		}
	}
	if !ok {
		return r.restarted(values, now)
	}
	s.alike = okLoosely && loosely.most > loosely.least
	switch held := len(values); {
	case s.least >= held && s.most > held:
		s.why = ferrule.Lost
	case s.least >= held && held < r.size: // it is not full, and what it held is gone
		s.why = ferrule.Restart
		s.most++
	case s.most > s.least:
		s.why = ferrule.Unclear
	}
	return s
}

// grown finds how far a ring has moved that was not full: it tells by its length, if it
// begins as it did. One that holds less than it says may be full all the same; then it
// does not.
func (r *Ring) grown(values []float64, now span) (s shift, ok bool) {
	more := len(values) - len(r.values)
	if r.partly || more <= 0 || len(values) >= r.size || !r.matches(values, more) {
		return s, false
	}
	s = shift{least: more, most: more}
	least, most := r.passed(now, r.direct, r.usual)
	if more < least || most < more {
		if s, ok := r.uneven(values, now); ok {
			return s, true
		}
		s.most, s.why = max(more, most), ferrule.Unclear // it may have begun anew, with the same
	}
	return s, true
}

// passed is how many samples the device has taken, by the time that has passed since a
// sample was taken.
func (r *Ring) passed(now, since span, fast rates) (least, most int) {
	least = int(math.Floor(float64(now.lo-since.hi-late(r.interval)-stray) / fast.max)) // the next was not there yet
	most = int(math.Floor(float64(now.hi-since.lo+stray) / fast.min))
	return max(least, 0), max(most, 0)
}

// fits finds the shifts that fit both the time that has passed and what was read.
func (r *Ring) fits(values []float64, now, since span, fast rates) (s shift, ok bool) {
	least, most := r.passed(now, since, fast)
	if !r.partly {
		least = max(least, len(values)-len(r.values))
	}
	for n := least; n <= most; n++ {
		if n >= len(values) { // nothing of it was read before, whatever n is
			if !ok {
				s.least = n
			}
			s.most, ok = most, true
			break
		}
		if r.matches(values, n) {
			if !ok {
				s.least = n
			}
			s.most, ok = n, true
		}
	}
	return s, ok
}

// overlap is what was read before and stands in values still, if the ring has moved by
// so many samples, and where it stands there.
func (r *Ring) overlap(values []float64, moved int) (before, still []float64) {
	ahead := len(values) - len(r.values) - moved // of a value, to its place before
	from := max(0, -ahead)
	n := min(len(r.values)-from, len(values)-from-ahead)
	if n <= 0 {
		return nil, nil
	}
	return r.values[from : from+n], values[from+ahead : from+ahead+n]
}

// matches tells whether what was read is what was read before, moved by so many
// samples.
func (r *Ring) matches(values []float64, moved int) bool {
	before, still := r.overlap(values, moved)
	for i, v := range before {
		if v != still[i] && !(math.IsNaN(v) && math.IsNaN(still[i])) {
			return false
		}
	}
	return true
}

// What must be alike for a shift that time does not allow.
const (
	plenty  = 8 // values
	several = 3 // different numbers
	maxSlow = 16
)

// uneven finds how far the ring of a device has moved that does not sample as it says,
// if what was read leaves no doubt.
func (r *Ring) uneven(values []float64, now span) (s shift, ok bool) {
	found := 0
	for n := 1; n <= len(values)-plenty; n++ {
		if !r.matches(values, n) {
			continue
		}
		if found > 0 {
			return s, false
		}
		found = n
	}
	if same, _ := r.overlap(values, found); found == 0 || len(same) < plenty || !differ(same, several) {
		return s, false
	}
	every := float64(now.middle()-r.direct.middle()) / float64(found)
	if said := float64(r.interval); every < said/2 || every > said*maxSlow {
		return s, false
	}
	return shift{least: found, most: found, loose: rates{min(r.usual.min, every*0.8), max(r.usual.max, every*1.25)}}, true
}

// differ tells whether there are so many different numbers.
func differ(values []float64, want int) bool {
	seen := make(map[float64]bool, want)
	for _, v := range values {
		if math.IsNaN(v) { // which is like none, itself included
			continue
		}
		if seen[v] = true; len(seen) >= want {
			return true
		}
	}
	return false
}

// restarted takes for new what was taken since the last read for certain, by the time
// that has passed. A device that begins anew may take a sample sooner than it was due.
func (r *Ring) restarted(values []float64, now span) shift {
	least, most := r.passed(now, r.direct, r.usual)
	return shift{least: min(least, len(values)), most: most + 1, why: ferrule.Restart}
}
