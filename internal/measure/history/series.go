package history

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The limits of an answer.
const (
	MaxPoints     = 10_000 // per signal
	defaultPoints = 500
	maxGaps       = 1000
	tailAge       = time.Hour
)

// Latest returns the last sample of each signal of a device, sorted by name.
func (s *Store) Latest(ctx context.Context, device string) ([]ferrule.Latest, error) {
	all, err := s.LatestOf(ctx, []string{device})
	return all[device], err
}

// LatestOf is Latest for several devices, by device. It takes as long as for one.
func (s *Store) LatestOf(_ context.Context, devices []string) (map[string][]ferrule.Latest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string][]ferrule.Latest, len(devices))
	for _, device := range devices {
		if n := s.perDevice[device]; n > 0 {
			all[device] = make([]ferrule.Latest, 0, n)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	for of, t := range s.tracks {
		if known, ok := all[of.device]; ok {
			all[of.device] = append(known, ferrule.Latest{Signal: of.name, Unit: t.unit, State: t.state, Sample: t.latest})
		}
	}
	for _, known := range all {
		slices.SortFunc(known, func(a, b ferrule.Latest) int { return cmp.Compare(a.Signal, b.Signal) })
	}
	return all, nil
}

// Recorded is Latest after the stream has been read to its end once. If that takes longer
// than ctx lasts, it returns what is known.
func (s *Store) Recorded(ctx context.Context, device string) ([]ferrule.Latest, error) {
	select {
	case <-s.ready:
	case <-ctx.Done():
	}
	return s.Latest(ctx, device)
}

// Tail returns the last samples of a signal without a gap between them, the oldest first.
// It waits until the stream has been read to its end once.
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

// find returns a copy of the state of a signal.
func (s *Store) find(device, name string) (track, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tracks[signal{device, name}]
	if t == nil || t.id == 0 {
		return track{}, false
	}
	return *t, true
}

// Series returns one series per signal, in the order of the query, or sorted by name if the
// query names none.
func (s *Store) Series(ctx context.Context, q ferrule.HistoryQuery) ([]ferrule.Series, error) {
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
	var all []ferrule.Series
	for _, name := range names {
		t, ok := s.find(q.Device, name)
		if !ok {
			all = append(all, ferrule.Series{Signal: name, Resolution: ferrule.Raw})
			continue
		}
		one, err := s.series(ctx, q, t)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, one)
	}
	return all, nil
}

// series returns a signal at the finest resolution that has few enough points and covers
// the time range. All of it comes from one snapshot of the file.
func (s *Store) series(ctx context.Context, q ferrule.HistoryQuery, t track) (c ferrule.Series, err error) {
	c = ferrule.Series{Signal: t.signal.name, Unit: t.unit, State: t.state}
	tx, err := s.reader().BeginTx(ctx, nil)
	if err != nil {
		return c, err
	}
	defer tx.Rollback()
	r := snapshot{tx, t}
	if err := tx.QueryRowContext(ctx, "SELECT open FROM signal WHERE id = ?", t.id).Scan(&r.open); err != nil {
		return c, err
	}
	for _, resolution := range []ferrule.Resolution{ferrule.Raw, ferrule.Minutes, ferrule.Hours} {
		if q.Resolution != "" && q.Resolution != resolution {
			continue
		}
		points, err := r.points(ctx, resolution, q.From, q.To, q.Points+1)
		if err != nil {
			return c, err
		}
		c.Resolution, c.Points, c.Truncated = resolution, points, len(points) > q.Points
		if q.Resolution != "" || resolution == ferrule.Hours {
			break
		}
		if older, err := r.older(ctx, resolution, q.From, points); err != nil {
			return c, err
		} else if !c.Truncated && !older {
			break
		}
	}
	if c.Truncated {
		c.Points = c.Points[len(c.Points)-q.Points:]
	}
	if c.Last, err = r.last(ctx, c, q.To); err != nil {
		return c, err
	}
	c.Gaps, err = r.gaps(ctx, q.From, q.To, min(max(q.Points, 2), maxGaps))
	return c, err
}

// snapshot reads one signal in one transaction.
type snapshot struct {
	tx *sql.Tx
	track
}

// last returns the newest sample of a series: that of its last point.
func (s *snapshot) last(ctx context.Context, c ferrule.Series, to time.Time) (*ferrule.Sample, error) {
	if len(c.Points) == 0 {
		return nil, nil
	}
	newest := c.Points[len(c.Points)-1:]
	if c.Resolution != ferrule.Raw {
		var err error
		if newest, err = s.points(ctx, ferrule.Raw, newest[0].Time, to, 1); err != nil || len(newest) == 0 {
			return nil, err
		}
	}
	return &ferrule.Sample{Time: newest[0].Time, Value: newest[0].Mean, Within: newest[0].Within}, nil
}

// older reports whether the next coarser resolution has points before the first one.
func (s *snapshot) older(ctx context.Context, resolution ferrule.Resolution, from time.Time, points []ferrule.Point) (bool, error) {
	table, unit := "minute", time.Minute
	if resolution == ferrule.Minutes {
		table, unit = "hour", time.Hour
	}
	before := int64(1) << 62
	if len(points) > 0 {
		before = points[0].Time.Add(-unit).Unix() / int64(unit/time.Second)
	}
	var known bool
	err := s.tx.QueryRowContext(ctx, "SELECT EXISTS(SELECT 1 FROM "+table+" WHERE id = ? AND at >= ? AND at < ?)",
		s.id, from.Unix()/int64(unit/time.Second), before).Scan(&known)
	return known, err
}

// The queries by resolution, with the signal, from, to, and the limit. They return the
// newest points first.
const (
	rawQuery = `SELECT r.at, r.value, r.value, r.value, 1, r.within FROM batch b JOIN raw r ON r.batch = b.batch AND r.id = ?1 AND r.at >= ?2 AND r.at < ?3
		WHERE b.last >= ?2 AND b.first < ?3 ORDER BY r.at DESC LIMIT ?4`
	// ?5 is the open minute, which is computed here.
	openMinute = `SELECT r.id, r.at/60000000 AS at, min(r.value) AS min, max(r.value) AS max, ` + sumOfValues + ` AS total, count(*) AS count
		FROM batch b JOIN raw r ON r.batch = b.batch AND r.id = ?1 AND r.at >= ?5*60000000 WHERE b.last >= ?5*60000000 GROUP BY 2`
	minuteColumns = "id, at, min, max, total, count"
	minutesQuery  = `SELECT at*60000000, min, max, ` + meanOfAll + `, count, 0 FROM (SELECT ` + minuteColumns + ` FROM minute WHERE id = ?1 UNION ALL ` + openMinute + `)
		WHERE at >= ?2/60000000 AND at*60000000 < ?3 ORDER BY at DESC LIMIT ?4`
	hoursQuery = `SELECT at*3600000000, min, max, ` + meanOfAll + `, count, 0 FROM (
			SELECT ` + minuteColumns + ` FROM hour WHERE id = ?1 UNION ALL
			SELECT id, at/60 AS at, min(min) AS min, max(max) AS max, ` + sumOfTotals + ` AS total, sum(count) AS count FROM (
				SELECT ` + minuteColumns + ` FROM minute WHERE id = ?1 AND at >= ?5/60*60 UNION ALL ` + openMinute + `) GROUP BY 2)
		WHERE at >= ?2/3600000000 AND at*3600000000 < ?3 ORDER BY at DESC LIMIT ?4`
)

// points returns the newest points of a resolution in a time range, the oldest first.
func (s *snapshot) points(ctx context.Context, resolution ferrule.Resolution, from, to time.Time, limit int) ([]ferrule.Point, error) {
	query := map[ferrule.Resolution]string{ferrule.Raw: rawQuery, ferrule.Minutes: minutesQuery, ferrule.Hours: hoursQuery}[resolution]
	args := []any{s.id, from.UnixMicro(), to.UnixMicro(), limit}
	if resolution != ferrule.Raw {
		args = append(args, s.open)
	}
	rows, err := s.tx.QueryContext(ctx, query, args...)
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

// gaps returns the gaps in a time range, in order. Above the limit, gaps that are close to
// each other are joined; none is left out.
func (s *snapshot) gaps(ctx context.Context, from, to time.Time, limit int) ([]ferrule.Gap, error) {
	rows, err := s.tx.QueryContext(ctx, "SELECT since, until, reason, max_missing FROM gap WHERE id = ? AND until >= ? AND since < ? ORDER BY since",
		s.id, from.UnixMicro(), to.UnixMicro())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var gaps []ferrule.Gap
	apart := never
	for rows.Next() {
		var since, until int64
		var g ferrule.Gap
		if err := rows.Scan(&since, &until, &g.Reason, &g.MaxMissing); err != nil {
			return nil, err
		}
		if len(gaps) == limit && apart == never {
			apart = to.Sub(from) / time.Duration(limit-1)
			all := gaps
			gaps = nil
			for _, g := range all {
				gaps = join(gaps, g, apart)
			}
		}
		g.From, g.To = time.UnixMicro(since), time.UnixMicro(until)
		gaps = join(gaps, g, apart)
	}
	return gaps, rows.Err()
}

// never is a distance at which no gaps are joined.
const never = time.Duration(math.MinInt64)

// join appends a gap, or extends the last one if it is at most apart away.
func join(gaps []ferrule.Gap, g ferrule.Gap, apart time.Duration) []ferrule.Gap {
	if len(gaps) == 0 || apart == never || g.From.Sub(gaps[len(gaps)-1].To) > apart {
		return append(gaps, g)
	}
	last := &gaps[len(gaps)-1]
	if g.To.After(last.To) {
		last.To = g.To
	}
	if g.Reason != last.Reason {
		last.Reason = ferrule.Unclear
	}
	if g.MaxMissing == 0 || last.MaxMissing == 0 { // unknown
		last.MaxMissing = 0
	} else {
		last.MaxMissing += g.MaxMissing
	}
	return gaps
}
