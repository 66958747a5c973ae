package plot

import (
	"math"
	"strconv"
	"time"
)

// axes is what time and values are in pixels.
type axes struct {
	from, to  time.Time
	low, high float64
	values    []valueTick
}

type valueTick struct {
	value float64
	label string
}

// newAxes is axes for curves, with a little room around their values, in a panel that
// is so many pixels high.
func newAxes(from, to time.Time, curves []coloredSeries, pixels int) axes {
	const perTick, margin = 30, 0.05
	a := axes{from: from, to: to}
	low, high := a.extent(curves)
	room := (high/2 - low/2) * 2 * margin // a half at a time: it may be as large as numbers get
	switch {
	case room == 0 && high == 0:
		room = 1
	case room == 0:
		room = math.Abs(high) * margin
	}
	a.low, a.high = clamp(low-room), clamp(high+room)
	a.values = valueTicks(a.low, a.high, max(2, pixels/perTick))
	return a
}

// extent is the least and the largest value that curves have on the axis.
func (a axes) extent(curves []coloredSeries) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, curve := range curves {
		for _, point := range curve.Points {
			if a.shows(curve.middle(point)) && finite(point) {
				low, high = min(low, point.Min), max(high, point.Max)
			}
		}
	}
	if low > high { // there are none
		return 0, 1
	}
	return low, high
}

// clamp keeps a number finite.
func clamp(v float64) float64 { return max(-math.MaxFloat64, min(math.MaxFloat64, v)) }

// shows tells whether a moment lies on the axis.
func (a axes) shows(t time.Time) bool { return !t.Before(a.from) && !t.After(a.to) }

// part is how far up a value stands, from 0 to 1.
func (a axes) part(v float64) float64 { return (v/2 - a.low/2) / (a.high/2 - a.low/2) }

// x is where a time stands.
func (p *panel) x(t time.Time) float64 {
	return float64(p.area.Min.X) + t.Sub(p.from).Seconds()/p.to.Sub(p.from).Seconds()*float64(p.area.Dx()-1)
}

// y is where a value stands.
func (p *panel) y(v float64) float64 {
	return float64(p.area.Max.Y-1) - p.part(v)*float64(p.area.Dy()-1)
}

// valueTicks are round numbers, so many at most.
func valueTicks(low, high float64, most int) (ticks []valueTick) {
	span := high/2 - low/2
	if span <= 0 || math.IsInf(span, 0) {
		return nil
	}
	step := roundStep(span / float64(most) * 2)
	if math.IsInf(step, 0) || step == 0 {
		return nil
	}
	for n := math.Ceil(low / step); len(ticks) <= most; n++ {
		v := n * step
		if v > high+step*1e-9 || math.IsInf(v, 0) {
			break
		}
		label := valueLabel(v, step)
		if len(ticks) > 0 && ticks[len(ticks)-1].label == label {
			break // numbers are as fine as they get
		}
		ticks = append(ticks, valueTick{v, label})
	}
	return ticks
}

// roundStep is 1, 2 or 5 with zeros, and not less than least.
func roundStep(least float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, n := range []float64{1, 2, 5} {
		if step := n * power; step >= least*(1-1e-9) {
			return step
		}
	}
	return 10 * power
}

// valueLabel tells a number as finely as a step wants it.
func valueLabel(v, step float64) string {
	if v == 0 {
		return "0"
	}
	digits := -int(math.Floor(math.Log10(step)))
	if math.Abs(v) >= 1e7 || step < 1e-5 {
		exponent := int(math.Floor(math.Log10(math.Abs(v))))
		return strconv.FormatFloat(v, 'e', max(0, min(exponent+digits, 15)), 64)
	}
	return strconv.FormatFloat(v, 'f', max(0, digits), 64)
}

// timeTick is a moment on the axis. Day is told below it where the day is another than
// before.
type timeTick struct {
	at         time.Time
	label, day string
}

// stride is how far ticks are from each other: so long, or so many months.
type stride struct {
	length time.Duration
	months int
	layout string
}

// strides are those that people are used to.
var strides = func() (all []stride) {
	for _, unit := range []struct {
		length time.Duration
		counts []int
		layout string
	}{
		{time.Microsecond, []int{1, 2, 5, 10, 20, 50, 100, 200, 500}, "05.000000"},
		{time.Millisecond, []int{1, 2, 5, 10, 20, 50, 100, 200, 500}, "05.000"},
		{time.Second, []int{1, 2, 5, 10, 15, 30}, time.TimeOnly},
		{time.Minute, []int{1, 2, 5, 10, 15, 30}, "15:04"},
		{time.Hour, []int{1, 2, 3, 6, 12}, "15:04"},
		{day, []int{1, 2, 7, 14}, "Jan 2"},
	} {
		for _, n := range unit.counts {
			all = append(all, stride{length: time.Duration(n) * unit.length, layout: unit.layout})
		}
	}
	for _, months := range []int{1, 3, 6} {
		all = append(all, stride{months: months, layout: "Jan"})
	}
	for _, years := range []int{1, 2, 5, 10, 20, 50, 100} {
		all = append(all, stride{months: 12 * years, layout: "2006"})
	}
	return all
}()

const day = 24 * time.Hour

// about is how long a stride is.
func (s stride) about() time.Duration { return s.length + time.Duration(s.months)*30*day }

// timeTicks are round moments of a time, so many at most.
func timeTicks(from, to time.Time, zone *time.Location, most int) (ticks []timeTick) {
	most = max(most, 2)
	chosen := strides[len(strides)-1]
	for _, s := range strides {
		if to.Sub(from)/s.about() < time.Duration(most) {
			chosen = s
			break
		}
	}
	told := ""
	for at := chosen.first(from.In(zone)); !at.After(to) && len(ticks) <= most; at = chosen.next(at) {
		if at.Before(from) {
			continue
		}
		tick := timeTick{at: at, label: at.Format(chosen.layout)}
		if date := at.Format(chosen.above()); date != told {
			tick.day, told = date, date
		}
		ticks = append(ticks, tick)
	}
	return ticks
}

// above is how the date is told that labels leave out.
func (s stride) above() string {
	switch {
	case s.length >= day || s.months > 0 && s.months < 12:
		return "2006"
	case s.months > 0:
		return "" // they are years
	case s.length < time.Second:
		return "Jan 2 15:04"
	}
	return "Mon Jan 2"
}

// first is a round moment that is not after t, by the clock on the wall.
func (s stride) first(t time.Time) time.Time {
	year, month, date := t.Date()
	switch {
	case s.months >= 12:
		years := s.months / 12
		return time.Date(year-year%years, 1, 1, 0, 0, 0, 0, t.Location())
	case s.months > 0:
		return time.Date(year, month-(month-1)%time.Month(s.months), 1, 0, 0, 0, 0, t.Location())
	case s.length >= day:
		days := int(s.length / day)
		return time.Date(year, month, date-t.YearDay()%days, 0, 0, 0, 0, t.Location())
	case s.length >= time.Hour:
		return time.Date(year, month, date, 0, 0, 0, 0, t.Location())
	}
	hour := time.Date(year, month, date, t.Hour(), 0, 0, 0, t.Location())
	return hour.Add(t.Sub(hour).Truncate(s.length))
}

// next is the round moment after one. A day may have more hours than others, or fewer.
func (s stride) next(t time.Time) time.Time {
	year, month, date := t.Date()
	switch {
	case s.months > 0:
		return time.Date(year, month+time.Month(s.months), 1, 0, 0, 0, 0, t.Location())
	case s.length >= day:
		return time.Date(year, month, date+int(s.length/day), 0, 0, 0, 0, t.Location())
	case s.length < time.Hour:
		return t.Add(s.length)
	}
	hours := int(s.length / time.Hour)
	for hour := t.Hour() - t.Hour()%hours + hours; ; hour += hours {
		if next := time.Date(year, month, date, hour, 0, 0, 0, t.Location()); next.After(t) {
			return next
		}
	}
}
