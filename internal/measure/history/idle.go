package history

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"time"
)

// lateness is how much later than it was measured a sample usually comes, at most.
const maxLateness = 10 * time.Minute

// countSilent counts the last minute and hour of signals that are not measured any more:
// those whose hour was over at a minute. Others are counted with the sample that follows.
func (s *Store) countIdle(ctx context.Context, over int64) error {
	s.mu.Lock()
	var silent []*track
	oldest := over
	if s.stats.Behind == 0 { // else the next sample may just not have been read
		for _, t := range s.tracks {
			if t.id != 0 && !t.done && t.nextHour() <= over {
				silent, oldest = append(silent, t), min(oldest, t.open)
			}
		}
	}
	s.mu.Unlock()
	if len(silent) == 0 {
		return nil
	}
	var all []span
	err := s.scan(ctx, func(rows *sql.Rows) error {
		var of span
		err := rows.Scan(&of.batch, &of.first, &of.last)
		all = append(all, of)
		return err
	}, "SELECT batch, first, last FROM batch WHERE last >= ?", oldest*microsPerMinute)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(silent, perTransaction) {
		if err := s.finish(ctx, part, all); err != nil {
			return err
		}
	}
	return nil
}

// span is from when to when the samples of a batch are.
type span struct{ batch, first, last int64 }

// finish counts the last minute and hour of signals, whose samples are in some batches.
func (s *Store) finish(ctx context.Context, tracks []*track, all []span) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	w := &writer{ctx: ctx, tx: tx, mu: &s.mu}
	for _, t := range tracks {
		from, to := int64(math.MaxInt64), int64(0)
		for _, of := range all {
			if of.last >= t.open*microsPerMinute && of.first < (t.open+1)*microsPerMinute {
				from, to = min(from, of.batch), max(to, of.batch)
			}
		}
		w.finish(t, from, to)
	}
	if w.err != nil {
		return w.err
	}
	return tx.Commit()
}

// finish counts the open minute of a signal, whose samples are in batches from one to
// another, and its hour.
func (w *writer) finish(t *track, from, to int64) {
	w.mu.Lock()
	at, latest := t.latest.Time.UnixMicro(), t.latest
	w.mu.Unlock()
	if minuteOf(at) == t.open { // else it waits to be written
		w.last(t, row{at: at, value: latest.Value, within: time.Duration(latest.Within).Microseconds()})
	}
	next := t.nextHour()
	w.do(fmt.Sprintf(countMinutes, "b.batch BETWEEN ?4 AND ?5"), t.id, t.open*microsPerMinute, next*microsPerMinute, from, to)
	w.hours(t.id, t.open/minutesPerHour, next/minutesPerHour)
	w.open(t, next, true)
}
