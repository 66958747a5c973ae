package history

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// WithPast is a store together with what others have recorded before, such as the recorder of
// a Home Assistant:
//
//	somebody else's recorder | the store
//	hours ....... samples ...|... samples
type WithPast struct {
	*Store
	// Source returns who has the past of a device, and the address of the device there; nil
	// if nobody does.
	Source func(device string) (source PastSource, address string)
}

// PastSource has values from before the store has any.
type PastSource interface {
	Latest(address string) []ferrule.Latest
	// Past returns what was measured in a time range; nil if the device does not have the
	// signal.
	Past(ctx context.Context, address, signal string, from, to time.Time) (*ferrule.Past, error)
}

// Latest adds signals that have not changed since the store has any.
func (w WithPast) Latest(ctx context.Context, device string) ([]ferrule.Latest, error) {
	known, err := w.Store.Latest(ctx, device)
	source, address := w.Source(device)
	if err != nil || source == nil {
		return known, err
	}
	for _, l := range source.Latest(address) {
		if !slices.ContainsFunc(known, func(k ferrule.Latest) bool { return k.Signal == l.Signal }) {
			known = append(known, l)
		}
	}
	slices.SortFunc(known, func(a, b ferrule.Latest) int { return cmp.Compare(a.Signal, b.Signal) })
	return known, nil
}

// Series adds what was recorded before the first sample of the store.
func (w WithPast) Series(ctx context.Context, q ferrule.HistoryQuery) ([]ferrule.Series, error) {
	all, err := w.Store.Series(ctx, q)
	source, address := w.Source(q.Device)
	if err != nil || source == nil {
		return all, err
	}
	q.Points = min(cmp.Or(q.Points, MaxPoints), MaxPoints)
	for i := range all {
		until := q.To
		if len(all[i].Points) > 0 {
			until = all[i].Points[0].Time
		}
		if all[i].Truncated || !q.From.Before(until) {
			continue
		}
		past, err := source.Past(ctx, address, all[i].Signal, q.From, until)
		if err != nil {
			gap := ferrule.Gap{From: q.From, To: until, Reason: ferrule.Unclear}
			all[i].Gaps = slices.Insert(all[i].Gaps, 0, gap)
			continue
		}
		if past == nil || len(past.Samples)+len(past.Hours)+len(past.Gaps) == 0 {
			continue
		}
		if all[i], err = w.join(ctx, q, all[i], past); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// join puts the past before a series, at the finest resolution that has few enough points.
func (w WithPast) join(ctx context.Context, q ferrule.HistoryQuery, own ferrule.Series, past *ferrule.Past) (ferrule.Series, error) {
	out := ferrule.Series{
		Signal: own.Signal, Unit: cmp.Or(own.Unit, past.Unit), State: own.State || past.State, Last: own.Last, Gaps: slices.Concat(past.Gaps, own.Gaps),
	}
	if out.Last == nil && len(own.Points) == 0 && len(past.Samples) > 0 {
		out.Last = &past.Samples[len(past.Samples)-1]
	}
	q.Signals = []string{own.Signal}
	for _, resolution := range []ferrule.Resolution{ferrule.Raw, ferrule.Minutes, ferrule.Hours} {
		if q.Resolution != "" && q.Resolution != resolution {
			continue
		}
		recent := own.Points
		if len(recent) > 0 && own.Resolution != resolution {
			at := q
			at.Resolution = resolution
			again, err := w.Store.Series(ctx, at)
			if err != nil {
				return own, err
			}
			if recent = again[0].Points; again[0].Truncated {
				recent = slices.Insert(recent, 0, ferrule.Point{}) // one too many, so that it does not fit
			}
		}
		out.Resolution, out.Points = resolution, joined(past, recent, resolution)
		out.Truncated = len(out.Points) > q.Points
		if q.Resolution != "" || !out.Truncated && (resolution == ferrule.Hours || len(past.Hours) == 0) {
			break
		}
	}
	if out.Truncated {
		out.Points = out.Points[len(out.Points)-q.Points:]
	}
	return out, nil
}

// joined returns the points of the past and those after it.
func joined(past *ferrule.Past, recent []ferrule.Point, resolution ferrule.Resolution) []ferrule.Point {
	var points []ferrule.Point
	if resolution == ferrule.Hours {
		points = slices.Clone(past.Hours)
	}
	for _, s := range past.Samples {
		points = addPoint(points, s.Point(), resolution)
	}
	for _, p := range recent {
		points = addPoint(points, p, resolution)
	}
	return points
}

// addPoint appends a point, or adds it to the last one if that is of the same minute or hour.
func addPoint(points []ferrule.Point, p ferrule.Point, resolution ferrule.Resolution) []ferrule.Point {
	unit := map[ferrule.Resolution]time.Duration{ferrule.Minutes: time.Minute, ferrule.Hours: time.Hour}[resolution]
	if unit == 0 {
		return append(points, p)
	}
	p.Time, p.Within = p.Time.Truncate(unit), 0
	if n := len(points); n > 0 && points[n-1].Time.Equal(p.Time) {
		last := &points[n-1]
		var mean ferrule.Mean
		mean.Add(last.Mean, float64(last.Count))
		mean.Add(p.Mean, float64(p.Count))
		last.Min, last.Max, last.Mean, last.Count = min(last.Min, p.Min), max(last.Max, p.Max), mean.Value(), last.Count+p.Count
		return points
	}
	return append(points, p)
}
