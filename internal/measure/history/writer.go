package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

const (
	microsPerMinute = 60_000_000
	minutesPerHour  = 60
)

func minuteOf(at int64) int64 { return at / microsPerMinute }

// position returns how far the stream was read.
func (s *Store) position(ctx context.Context) (at string, err error) {
	err = s.write.QueryRowContext(ctx, "SELECT at FROM position").Scan(&at)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return at, err
}

// loadTracks reads the state of all signals from the file.
func (s *Store) loadTracks(ctx context.Context) error {
	tracks, perDevice, byID := make(map[signal]*track), make(map[string]int), make(map[int64]*track)
	err := s.scan(ctx, func(rows *sql.Rows) error {
		var t track
		var last, within int64
		if err := rows.Scan(&t.id, &t.signal.device, &t.signal.name, &t.unit, &last, &t.latest.Value, &within, &t.open, &t.state); err != nil {
			return err
		}
		t.latest.Time, t.latest.Within = time.UnixMicro(last), ferrule.Duration(within*1000)
		t.done = minuteOf(last) < t.open
		tracks[t.signal], byID[t.id] = &t, &t
		perDevice[t.signal.device]++
		return nil
	}, "SELECT id, device, signal, unit, last, value, within, open, state FROM signal")
	if err != nil {
		return err
	}
	// The table signal has no newer samples of the open minute.
	err = s.scan(ctx, func(rows *sql.Rows) error {
		var id, at, within int64
		var value float64
		if err := rows.Scan(&id, &at, &value, &within); err != nil {
			return err
		}
		if t := byID[id]; at > t.latest.Time.UnixMicro() {
			t.latest = ferrule.Sample{Time: time.UnixMicro(at), Value: value, Within: ferrule.Duration(within * 1000)}
		}
		return nil
	}, newestOf)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tracks, s.perDevice = tracks, perDevice
	return nil
}

// scan calls fn with each row of a query.
func (s *Store) scan(ctx context.Context, fn func(*sql.Rows) error, query string, args ...any) error {
	rows, err := s.write.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// commit writes a batch and the position in one transaction.
func (s *Store) commit(ctx context.Context, b *batch) error {
	if err := s.makeRoom(ctx, len(b.rows)+len(b.gaps)); err != nil {
		return err
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	w := &writer{ctx: ctx, tx: tx, mu: &s.mu}
	w.write(b)
	if w.err != nil {
		return w.err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Samples += uint64(len(b.rows))
	return nil
}

// writer writes in one transaction. After an error it does nothing.
type writer struct {
	ctx context.Context
	tx  *sql.Tx
	mu  *sync.Mutex // guards the tracks
	err error
}

func (w *writer) do(query string, args ...any) {
	if w.err == nil {
		_, w.err = w.tx.ExecContext(w.ctx, query, args...)
	}
}

func (w *writer) write(b *batch) {
	w.addSignals(b)
	b.sort()
	w.samples(b)
	for _, g := range b.gaps {
		w.do("INSERT INTO gap VALUES(?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET until = max(until, excluded.until), max_missing = max(max_missing, excluded.max_missing)",
			g.track.id, g.since, g.until, g.reason, g.maxMissing)
	}
	for i := 0; i < len(b.rows); {
		n := i
		for n < len(b.rows) && b.rows[n].track == b.rows[i].track {
			n++
		}
		w.count(b.rows[i:n])
		i = n
	}
	w.do("INSERT INTO position VALUES(1, ?) ON CONFLICT DO UPDATE SET at = excluded.at", b.position)
}

// addSignals inserts the signals that are new, and sets their IDs.
func (w *writer) addSignals(b *batch) {
	for _, r := range b.rows {
		t := r.track
		if w.err != nil || t.id != 0 {
			continue
		}
		var id int64
		open := minuteOf(r.at) // rows are in order: the first is the oldest
		w.err = w.tx.QueryRowContext(w.ctx, "INSERT INTO signal(device, signal, unit, first, last, value, within, open, state) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
			t.signal.device, t.signal.name, t.unit, r.at, r.at, r.value, r.within, open, t.state).Scan(&id)
		w.mu.Lock()
		t.id, t.open, t.unitChanged = id, open, false
		w.mu.Unlock()
	}
}

// insertRows is how many samples one statement inserts.
const insertRows = 100

func (w *writer) samples(b *batch) {
	if len(b.rows) == 0 || w.err != nil {
		return
	}
	var number int64
	w.err = w.tx.QueryRowContext(w.ctx, "INSERT INTO batch(first, last) VALUES(?, ?) RETURNING batch", b.first, b.last).Scan(&number)
	insert := func(n int) string {
		return "INSERT INTO raw VALUES " + strings.TrimSuffix(strings.Repeat("(?,?,?,?,?),", n), ",")
	}
	var many *sql.Stmt
	if len(b.rows) >= insertRows && w.err == nil {
		if many, w.err = w.tx.PrepareContext(w.ctx, insert(insertRows)); w.err == nil {
			defer many.Close()
		}
	}
	args := make([]any, 0, 5*insertRows)
	for rest := b.rows; len(rest) > 0 && w.err == nil; {
		n := min(len(rest), insertRows)
		args = args[:0]
		for _, r := range rest[:n] {
			args = append(args, number, r.track.id, r.at, r.value, r.within)
		}
		if n == insertRows {
			_, w.err = many.ExecContext(w.ctx, args...)
		} else {
			w.do(insert(n), args...)
		}
		rest = rest[n:]
	}
}

// count computes the minutes and hours of a signal that are over, and again those with a
// late sample.
func (w *writer) count(rows []row) {
	t := rows[0].track
	last := rows[len(rows)-1]
	open := max(t.open, minuteOf(last.at))
	late := int64(math.MinInt64)
	for _, r := range rows {
		if m := minuteOf(r.at); m < t.open && m != late {
			late = m
			w.minutes(t.id, m, m+1)
			if m/minutesPerHour < t.open/minutesPerHour {
				w.hours(t.id, m/minutesPerHour, m/minutesPerHour+1)
			}
		}
	}
	if open == t.open && !t.unitChanged && !t.done {
		return
	}
	from := t.open
	if t.done { // no samples between
		from = max(from, minuteOf(rows[0].at))
	}
	w.minutes(t.id, from, open)
	if open/minutesPerHour > from/minutesPerHour {
		w.hours(t.id, from/minutesPerHour, open/minutesPerHour)
	}
	w.do("UPDATE signal SET unit = ?, state = ?, first = min(first, ?) WHERE id = ?", t.unit, t.state, rows[0].at, t.id)
	w.last(t, last)
	w.open(t, open, t.done && minuteOf(last.at) < open)
}

// last updates the last sample of a signal.
func (w *writer) last(t *track, r row) {
	w.do("UPDATE signal SET last = ?2, value = ?3, within = ?4 WHERE id = ?1 AND last < ?2", t.id, r.at, r.value, r.within)
}

// open sets the first minute of a signal that is not computed; done if it has no samples.
func (w *writer) open(t *track, minute int64, done bool) {
	w.do("UPDATE signal SET open = ? WHERE id = ?", minute, t.id)
	w.mu.Lock()
	defer w.mu.Unlock()
	t.open, t.done, t.unitChanged = minute, done, false
}

// countMinutes computes the minutes of a signal in a range. The condition selects batches.
const countMinutes = `INSERT INTO minute SELECT r.id, r.at/60000000, min(r.value), max(r.value), ` + sumOfValues + `, count(*)
	FROM batch b JOIN raw r ON r.batch = b.batch AND r.id = ?1 AND r.at >= ?2 AND r.at < ?3
	WHERE %s GROUP BY r.at/60000000
	ON CONFLICT DO UPDATE SET min = min(min, excluded.min), max = max(max, excluded.max),
		total = iif(excluded.count > count, excluded.total, total), count = max(count, excluded.count)`

// minutes computes the minutes of a signal in [from, to). A minute whose samples were
// deleted keeps its values.
func (w *writer) minutes(id, from, to int64) {
	w.do(fmt.Sprintf(countMinutes, "b.last >= ?2 AND b.first < ?3"), id, from*microsPerMinute, to*microsPerMinute)
}

// hours computes the hours of a signal in [from, to) from its minutes.
func (w *writer) hours(id, from, to int64) {
	w.do(`INSERT OR REPLACE INTO hour SELECT id, at/60, min(min), max(max), `+sumOfTotals+`, sum(count)
		FROM minute WHERE id = ? AND at >= ? AND at < ? GROUP BY at/60`, id, from*minutesPerHour, to*minutesPerHour)
}
