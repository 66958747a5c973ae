package plot

import (
	"math"
	"strconv"
	"time"
)

// axes are the ranges of time and value of a panel.
type axes struct {
	from, to  time.Time
	low, high float64
	values    []valueTick
}

type valueTick struct {
	value float64
	label string
}

// newAxes returns the axes for series in a panel of a given height, with some padding.
func newAxes(from, to time.Time, series []coloredSeries, pixels int) axes {
	const perTick, margin = 30, 0.05
	a := axes{from: from, to: to}
	low, high := a.extent(series)
	padding := (high/2 - low/2) * 2 * margin // halves avoid overflow
	switch {
	case padding == 0 && high == 0:
		padding = 1
	case padding == 0:
		padding = math.Abs(high) * margin
	}
	a.low, a.high = clamp(low-padding), clamp(high+padding)
	a.values = valueTicks(a.low, a.high, max(2, pixels/perTick))
	return a
}

// extent returns the minimum and maximum value of series in the time range.
func (a axes) extent(series []coloredSeries) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, s := range series {
		for _, point := range s.Points {
			if a.shows(s.middle(point)) && finite(point) {
				low, high = min(low, point.Min), max(high, point.Max)
			}
		}
	}
	if low > high { // no points
		return 0, 1
	}
	return low, high
}

// clamp returns the nearest finite number.
func clamp(v float64) float64 { return max(-math.MaxFloat64, min(math.MaxFloat64, v)) }

// shows reports whether a time is in the range.
func (a axes) shows(t time.Time) bool { return !t.Before(a.from) && !t.After(a.to) }

// part returns the height of a value, from 0 to 1.
func (a axes) part(v float64) float64 { return (v/2 - a.low/2) / (a.high/2 - a.low/2) }

// x returns the column of a time.
func (p *panel) x(t time.Time) float64 {
	return float64(p.area.Min.X) + t.Sub(p.from).Seconds()/p.to.Sub(p.from).Seconds()*float64(p.area.Dx()-1)
}

// y returns the row of a value.
func (p *panel) y(v float64) float64 {
	return float64(p.area.Max.Y-1) - p.part(v)*float64(p.area.Dy()-1)
}

// valueTicks returns round numbers between low and high, up to a limit.
func valueTicks(low, high float64, limit int) (ticks []valueTick) {
	span := high/2 - low/2
	if span <= 0 || math.IsInf(span, 0) {
		return nil
	}
	step := roundStep(span / float64(limit) * 2)
	if math.IsInf(step, 0) || step == 0 {
		return nil
	}
	for n := math.Ceil(low / step); len(ticks) <= limit; n++ {
		v := n * step
		if v > high+step*1e-9 || math.IsInf(v, 0) {
			break
		}
		label := valueLabel(v, step)
		if len(ticks) > 0 && ticks[len(ticks)-1].label == label {
			break // the precision of numbers is exhausted
		}
		ticks = append(ticks, valueTick{v, label})
	}
	return ticks
}

// roundStep returns the smallest of 1, 2, 5 times a power of ten that is at least minimum.
func roundStep(minimum float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(minimum)))
	for _, n := range []float64{1, 2, 5} {
		if step := n * power; step >= minimum*(1-1e-9) {
			return step
		}
	}
	return 10 * power
}

// valueLabel formats a value with the precision of a step.
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

// timeTick is a labeled time on the axis. Day is set where the date changes.
type timeTick struct {
	at         time.Time
	label, day string
}

// stride is the distance of ticks: a duration or a number of months.
type stride struct {
	length time.Duration
	months int
	layout string
}

// strides are the usual round distances.
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

// about returns the approximate length of a stride.
func (s stride) about() time.Duration { return s.length + time.Duration(s.months)*30*day }

// timeTicks returns round times between from and to, up to a limit.
func timeTicks(from, to time.Time, zone *time.Location, limit int) (ticks []timeTick) {
	limit = max(limit, 2)
	chosen := strides[len(strides)-1]
	for _, s := range strides {
		if to.Sub(from)/s.about() < time.Duration(limit) {
			chosen = s
			break
		}
	}
	lastDay := ""
	for at := chosen.first(from.In(zone)); !at.After(to) && len(ticks) <= limit; at = chosen.next(at) {
		if at.Before(from) {
			continue
		}
		tick := timeTick{at: at, label: at.Format(chosen.layout)}
		if date := at.Format(chosen.above()); date != lastDay {
			tick.day, lastDay = date, date
		}
		ticks = append(ticks, tick)
	}
	return ticks
}

// above returns the layout of the date that the labels leave out.
func (s stride) above() string {
	switch {
	case s.length >= day || s.months > 0 && s.months < 12:
		return "2006"
	case s.months > 0:
		return "" // the labels are years
	case s.length < time.Second:
		return "Jan 2 15:04"
	}
	return "Mon Jan 2"
}

// first returns a round local time that is not after t.
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

// next returns the next round local time. A day may be shorter or longer than 24 hours.
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
