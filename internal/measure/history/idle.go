package history

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"time"
)

// maxLateness is how much later than measured a sample usually arrives, at most.
const maxLateness = 10 * time.Minute

// countIdle computes the last minute and hour of idle signals: those whose hour was over at
// a given minute. Other signals are computed with their next sample.
func (s *Store) countIdle(ctx context.Context, over int64) error {
	s.mu.Lock()
	var idle []*track
	oldest := over
	if s.stats.Behind == 0 { // else the next sample may be in the stream
		for _, t := range s.tracks {
			if t.id != 0 && !t.done && t.nextHour() <= over {
				idle, oldest = append(idle, t), min(oldest, t.open)
			}
		}
	}
	s.mu.Unlock()
	if len(idle) == 0 {
		return nil
	}
	var all []span
	err := s.scan(ctx, func(rows *sql.Rows) error {
		var one span
		err := rows.Scan(&one.batch, &one.first, &one.last)
		all = append(all, one)
		return err
	}, "SELECT batch, first, last FROM batch WHERE last >= ?", oldest*microsPerMinute)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(idle, perTransaction) {
		if err := s.finish(ctx, part, all); err != nil {
			return err
		}
	}
	return nil
}

// span is the time range of a batch.
type span struct{ batch, first, last int64 }

// finish computes the last minute and hour of signals.
func (s *Store) finish(ctx context.Context, tracks []*track, all []span) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	w := &writer{ctx: ctx, tx: tx, mu: &s.mu}
	for _, t := range tracks {
		from, to := int64(math.MaxInt64), int64(0)
		for _, one := range all {
			if one.last >= t.open*microsPerMinute && one.first < (t.open+1)*microsPerMinute {
				from, to = min(from, one.batch), max(to, one.batch)
			}
		}
		w.finish(t, from, to)
	}
	if w.err != nil {
		return w.err
	}
	return tx.Commit()
}

// finish computes the open minute of a signal from a range of batches, and its hour.
func (w *writer) finish(t *track, from, to int64) {
	w.mu.Lock()
	at, latest := t.latest.Time.UnixMicro(), t.latest
	w.mu.Unlock()
	if minuteOf(at) == t.open { // else the latest sample is not written yet
		w.last(t, row{at: at, value: latest.Value, within: time.Duration(latest.Within).Microseconds()})
	}
	next := t.nextHour()
	w.do(fmt.Sprintf(countMinutes, "b.batch BETWEEN ?4 AND ?5"), t.id, t.open*microsPerMinute, next*microsPerMinute, from, to)
	w.hours(t.id, t.open/minutesPerHour, next/minutesPerHour)
	w.open(t, next, true)
}
