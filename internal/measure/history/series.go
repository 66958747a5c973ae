package history

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The bounds of an answer.
const (
	MaxPoints     = 10_000 // of one signal
	defaultPoints = 500
	maxGaps       = 1000
	tailAge       = time.Hour
)

// Latest is the last sample of each signal of a device, by name; nothing if there is
// none.
func (s *Store) Latest(_ context.Context, device string) ([]ferrule.Latest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []ferrule.Latest
	if s.perDevice[device] == 0 {
		return nil, nil
	}
	for of, t := range s.tracks {
		if of.device == device {
			all = append(all, ferrule.Latest{Signal: of.name, Unit: t.unit, Sample: t.latest})
		}
	}
	slices.SortFunc(all, func(a, b ferrule.Latest) int { return cmp.Compare(a.Signal, b.Signal) })
	return all, nil
}

// Tail is the last samples of a signal that nothing is missing between, the oldest
// first. It waits until all that there was at first has been read.
func (s *Store) Tail(ctx context.Context, device, name string, n int) ([]ferrule.Sample, error) {
	select {
	case <-s.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	done := make(chan struct{})
	select {
	case s.flush <- flushRequest{signal{device, name}, done}:
		select {
		case <-done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	t, ok := s.find(device, name)
	if !ok {
		return nil, nil
	}
	rows, err := s.reader().QueryContext(ctx, `SELECT r.at, r.value, r.within FROM batch b JOIN raw r ON r.batch = b.batch AND r.id = ?
		WHERE b.last >= ? AND r.at >= (SELECT coalesce(max(until), 0) FROM gap WHERE id = ?) ORDER BY r.at DESC LIMIT ?`,
		t.id, t.latest.Time.Add(-tailAge).UnixMicro(), t.id, n)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var tail []ferrule.Sample
	for rows.Next() {
		var at, within int64
		var value float64
		if err := rows.Scan(&at, &value, &within); err != nil {
			return nil, err
		}
		tail = append(tail, ferrule.Sample{Time: time.UnixMicro(at), Value: value, Within: ferrule.Duration(within * 1000)})
	}
	slices.Reverse(tail)
	return tail, rows.Err()
}

// find is what is known of a signal by now.
func (s *Store) find(device, name string) (track, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tracks[signal{device, name}]
	if t == nil || t.id == 0 {
		return track{}, false
	}
	return *t, true
}

// Past is what is known of signals of a device in a span of time: one curve for each, in
// the order in which they were asked for, or by name.
func (s *Store) Past(ctx context.Context, q ferrule.HistoryQuery) ([]ferrule.Series, error) {
	names := q.Signals
	if len(names) == 0 {
		all, err := s.Latest(ctx, q.Device)
		if err != nil {
			return nil, err
		}
		for _, l := range all {
			names = append(names, l.Signal)
		}
	}
	q.Points = min(cmp.Or(q.Points, defaultPoints), MaxPoints)
	var curves []ferrule.Series
	for _, name := range names {
		t, ok := s.find(q.Device, name)
		if !ok {
			curves = append(curves, ferrule.Series{Signal: name, Resolution: ferrule.Raw})
			continue
		}
		c, err := s.series(ctx, q, t)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		curves = append(curves, c)
	}
	return curves, nil
}

// curve is the finest grain that has few enough points and reaches back far enough.
func (s *Store) series(ctx context.Context, q ferrule.HistoryQuery, t track) (c ferrule.Series, err error) {
	c = ferrule.Series{Signal: t.signal.name, Unit: t.unit}
	for _, grain := range []ferrule.Resolution{ferrule.Raw, ferrule.Minutes, ferrule.Hours} {
		if q.Resolution != "" && q.Resolution != grain {
			continue
		}
		points, err := s.points(ctx, grain, t, q.From, q.To, q.Points+1)
		if err != nil {
			return c, err
		}
		c.Resolution, c.Points, c.Truncated = grain, points, len(points) > q.Points
		if q.Resolution != "" || grain == ferrule.Hours {
			break
		}
		if older, err := s.older(ctx, grain, t, q.From, points); err != nil {
			return c, err
		} else if !c.Truncated && !older {
			break
		}
	}
	if c.Truncated {
		c.Points = c.Points[len(c.Points)-q.Points:]
	}
	c.Gaps, err = s.gaps(ctx, t, q.From, q.To, min(max(q.Points, 2), maxGaps))
	return c, err
}

// older tells whether a coarser grain knows of a time before the first point.
func (s *Store) older(ctx context.Context, grain ferrule.Resolution, t track, from time.Time, points []ferrule.Point) (bool, error) {
	table, unit := "minute", time.Minute
	if grain == ferrule.Minutes {
		table, unit = "hour", time.Hour
	}
	before := int64(1) << 62
	if len(points) > 0 {
		before = points[0].Time.Add(-unit).Unix() / int64(unit/time.Second)
	}
	var known bool
	err := s.reader().QueryRowContext(ctx, "SELECT EXISTS(SELECT 1 FROM "+table+" WHERE id = ? AND at >= ? AND at < ?)",
		t.id, from.Unix()/int64(unit/time.Second), before).Scan(&known)
	return known, err
}

// The questions, by grain: with the signal, from, to, and how many points at most. They
// have the newest first.
const (
	rawQuery = `SELECT r.at, r.value, r.value, r.value, 1, r.within FROM batch b JOIN raw r ON r.batch = b.batch AND r.id = ?1 AND r.at >= ?2 AND r.at < ?3
		WHERE b.last >= ?2 AND b.first < ?3 ORDER BY r.at DESC LIMIT ?4`
	// What is not counted yet is counted now: ?5 is the minute that is not over.
	openMinute = `SELECT r.id, r.at/60000000 AS at, min(r.value) AS least, max(r.value) AS most, ` + sumOfValues + ` AS total, count(*) AS count
		FROM batch b JOIN raw r ON r.batch = b.batch AND r.id = ?1 AND r.at >= ?5*60000000 WHERE b.last >= ?5*60000000 GROUP BY 2`
	minuteColumns = "id, at, least, most, total, count"
	minutesQuery  = `SELECT at*60000000, least, most, ` + meanOfAll + `, count, 0 FROM (SELECT ` + minuteColumns + ` FROM minute WHERE id = ?1 UNION ALL ` + openMinute + `)
		WHERE at >= ?2/60000000 AND at*60000000 < ?3 ORDER BY at DESC LIMIT ?4`
	hoursQuery = `SELECT at*3600000000, least, most, ` + meanOfAll + `, count, 0 FROM (
			SELECT ` + minuteColumns + ` FROM hour WHERE id = ?1 UNION ALL
			SELECT id, at/60 AS at, min(least) AS least, max(most) AS most, ` + sumOfTotals + ` AS total, sum(count) AS count FROM (
				SELECT ` + minuteColumns + ` FROM minute WHERE id = ?1 AND at >= ?5/60*60 UNION ALL ` + openMinute + `) GROUP BY 2)
		WHERE at >= ?2/3600000000 AND at*3600000000 < ?3 ORDER BY at DESC LIMIT ?4`
)

// points are those of one grain in a span of time, the newest of them, in order.
func (s *Store) points(ctx context.Context, grain ferrule.Resolution, t track, from, to time.Time, most int) ([]ferrule.Point, error) {
	ask := map[ferrule.Resolution]string{ferrule.Raw: rawQuery, ferrule.Minutes: minutesQuery, ferrule.Hours: hoursQuery}[grain]
	args := []any{t.id, from.UnixMicro(), to.UnixMicro(), most}
	if grain != ferrule.Raw {
		args = append(args, t.open)
	}
	rows, err := s.reader().QueryContext(ctx, ask, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var points []ferrule.Point
	for rows.Next() {
		var at, within int64
		var p ferrule.Point
		if err := rows.Scan(&at, &p.Min, &p.Max, &p.Mean, &p.Count, &within); err != nil {
			return nil, err
		}
		p.Time, p.Within = time.UnixMicro(at), ferrule.Duration(within*1000)
		points = append(points, p)
	}
	slices.Reverse(points)
	return points, rows.Err()
}

// gaps are the holes in a span of time, in order. Of more than are wanted, those that
// are close to each other are told as one: none is left out.
func (s *Store) gaps(ctx context.Context, t track, from, to time.Time, most int) ([]ferrule.Gap, error) {
	rows, err := s.reader().QueryContext(ctx, "SELECT since, until, why, most FROM gap WHERE id = ? AND until >= ? AND since < ? ORDER BY since",
		t.id, from.UnixMicro(), to.UnixMicro())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var holes []ferrule.Gap
	apart := never
	for rows.Next() {
		var since, until int64
		var h ferrule.Gap
		if err := rows.Scan(&since, &until, &h.Reason, &h.MaxMissing); err != nil {
			return nil, err
		}
		if len(holes) == most && apart == never {
			apart = to.Sub(from) / time.Duration(most-1)
			all := holes
			holes = nil
			for _, h := range all {
				holes = join(holes, h, apart)
			}
		}
		h.From, h.To = time.UnixMicro(since), time.UnixMicro(until)
		holes = join(holes, h, apart)
	}
	return holes, rows.Err()
}

// never is a distance within which holes are not told as one.
const never = time.Duration(math.MinInt64)

// join adds a hole to those before it: to the last of them, if it is no further apart
// than so long.
func join(holes []ferrule.Gap, h ferrule.Gap, apart time.Duration) []ferrule.Gap {
	if len(holes) == 0 || apart == never || h.From.Sub(holes[len(holes)-1].To) > apart {
		return append(holes, h)
	}
	last := &holes[len(holes)-1]
	if h.To.After(last.To) {
		last.To = h.To
	}
	if h.Reason != last.Reason {
		last.Reason = ferrule.Unclear
	}
	if h.MaxMissing == 0 || last.MaxMissing == 0 { // how many is not known
		last.MaxMissing = 0
	} else {
		last.MaxMissing += h.MaxMissing
	}
	return holes
}
