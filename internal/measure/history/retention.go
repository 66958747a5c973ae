package history

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// Old data is deleted in small steps.
const (
	cleanEvery  = 30 * time.Second
	cleanPart   = 64       // one part in so many is deleted per step when space is needed
	reserve     = 64 << 20 // bytes of disk that stay free
	sampleBytes = 64       // upper bound for a sample or a gap
	gapsPart    = 8        // gaps may take one part in so many when space is needed
	gapBytes    = 40       // typical size of a gap
	page        = 4096
)

// cleanUp deletes what is too old.
func (s *Store) cleanUp(ctx context.Context, now time.Time) error {
	before := func(kept time.Duration) int64 { return now.Add(-kept).UnixMicro() }
	if err := s.countIdle(ctx, minuteOf(now.Add(-maxLateness).UnixMicro())); err != nil {
		return err
	}
	if err := s.dropRaw(ctx, before(s.cfg.Raw)-1); err != nil {
		return err
	}
	for table, at := range map[string]int64{
		"minute": before(s.cfg.Minutes) / microsPerMinute, "hour": before(s.cfg.Hours) / microsPerMinute / minutesPerHour,
	} {
		if err := s.eachSignal(ctx, "DELETE FROM "+table+" WHERE id = ? AND at < ?", at); err != nil {
			return err
		}
	}
	if err := s.eachSignal(ctx, "DELETE FROM gap WHERE id = ? AND until < ?", before(s.cfg.Hours)); err != nil {
		return err
	}
	if err := s.forgetSignals(ctx, before(s.cfg.Hours)); err != nil {
		return err
	}
	return s.shrink(ctx)
}

// dropRaw deletes the batches whose last sample is not after a time.
func (s *Store) dropRaw(ctx context.Context, until int64) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, table := range []string{"raw", "batch"} {
		if _, err := tx.ExecContext(ctx, "DELETE FROM "+table+" WHERE batch IN (SELECT batch FROM batch WHERE last <= ? ORDER BY last LIMIT ?)", until, dropBatches); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// dropBatches is how many batches one transaction deletes.
const dropBatches = 2000

// eachSignal runs a query for each signal, in short transactions so that readers do not
// wait long.
func (s *Store) eachSignal(ctx context.Context, query string, before int64) error {
	s.mu.Lock()
	ids := make([]int64, 0, len(s.tracks))
	for _, t := range s.tracks {
		if t.id != 0 {
			ids = append(ids, t.id)
		}
	}
	s.mu.Unlock()
	for len(ids) > 0 {
		tx, err := s.write.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		n := min(perTransaction, len(ids))
		for _, id := range ids[:n] {
			if _, err := tx.ExecContext(ctx, query, id, before); err != nil {
				tx.Rollback()
				return err
			}
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// perTransaction is how many signals one transaction handles.
const perTransaction = 100

// forgetSignals deletes signals without data.
func (s *Store) forgetSignals(ctx context.Context, before int64) error {
	s.mu.Lock()
	var old []*track
	for _, t := range s.tracks {
		if t.id != 0 && t.latest.Time.UnixMicro() < before {
			old = append(old, t)
		}
	}
	s.mu.Unlock()
	for part := range slices.Chunk(old, perTransaction) {
		if err := s.forget(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// forget deletes signals and what is left of them, because SQLite may reuse their IDs.
func (s *Store) forget(ctx context.Context, tracks []*track) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, t := range tracks {
		for _, table := range []string{"minute", "hour", "gap", "signal"} {
			if _, err := tx.ExecContext(ctx, "DELETE FROM "+table+" WHERE id = ?", t.id); err != nil {
				return err
			}
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range tracks {
		delete(s.tracks, t.signal)
		if s.perDevice[t.signal.device]--; s.perDevice[t.signal.device] == 0 {
			delete(s.perDevice, t.signal.device)
		}
	}
	return nil
}

// size returns how many bytes of the file are in use, and its size.
func (s *Store) size(ctx context.Context) (used, all int64, err error) {
	var pages, free int64
	if err := s.write.QueryRowContext(ctx, "PRAGMA page_count").Scan(&pages); err != nil {
		return 0, 0, err
	}
	if err := s.write.QueryRowContext(ctx, "PRAGMA freelist_count").Scan(&free); err != nil {
		return 0, 0, err
	}
	return (pages - free) * page, pages * page, nil
}

// shrink returns unused pages to the file system, if there are many.
func (s *Store) shrink(ctx context.Context) error {
	used, all, err := s.size(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.stats.Bytes = all
	s.mu.Unlock()
	if all-used < all/4 || all < minSize {
		return nil
	}
	_, err = s.write.ExecContext(ctx, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", (all-used)/page/4))
	return err
}

// makeRoom deletes old data until so many samples and gaps fit, both in history.size and on
// the disk.
func (s *Store) makeRoom(ctx context.Context, samples int) error {
	limit := s.cfg.Size
	used, all, err := s.size(ctx)
	if err != nil {
		return err
	}
	if free, err := FreeSpace(filepath.Dir(s.path)); err == nil {
		limit = min(limit, all+max(0, int64(min(free, 1<<60))-reserve)) // it may use the space that it already has
	}
	for used > limit-max(limit/cleanPart, int64(samples)*sampleBytes) {
		dropped, err := s.dropOldest(ctx)
		if err != nil {
			return err
		}
		if used, _, err = s.size(ctx); err != nil {
			return err
		}
		switch {
		case dropped:
		case limit == s.cfg.Size:
			return errors.New("history.size is too small for what devices measure: raise it in ferrule.yaml")
		default:
			return fmt.Errorf("disk full: the history needs at least %d MiB of free space", reserve>>20)
		}
	}
	return nil
}

// dropOldest deletes part of the oldest samples, or if none are left, of the oldest minutes
// and hours. Gaps come first if there are too many. It reports whether anything was deleted.
func (s *Store) dropOldest(ctx context.Context) (bool, error) {
	var batches, gaps, until int64
	limit := s.cfg.Size / gapsPart / gapBytes
	if err := s.write.QueryRowContext(ctx, "SELECT count(*), (SELECT count(*) FROM (SELECT 1 FROM gap LIMIT ?)) FROM batch", limit).Scan(&batches, &gaps); err != nil {
		return false, err
	}
	if gaps == limit {
		if dropped, err := s.dropPart(ctx, "gap", "since"); dropped || err != nil {
			return dropped, err
		}
	}
	if batches > 1 {
		if err := s.write.QueryRowContext(ctx, "SELECT last FROM batch ORDER BY last LIMIT 1 OFFSET ?", min(max(1, batches/cleanPart), dropBatches)-1).Scan(&until); err != nil {
			return false, err
		}
		return true, s.dropRaw(ctx, until)
	}
	for _, table := range []string{"minute", "hour"} {
		if dropped, err := s.dropPart(ctx, table, "at"); dropped || err != nil {
			return dropped, err
		}
	}
	return false, nil
}

// dropPart deletes the oldest part of a table, by its time column. It reports false if the
// table is almost empty.
func (s *Store) dropPart(ctx context.Context, table, column string) (bool, error) {
	var first, last *int64
	if err := s.write.QueryRowContext(ctx, fmt.Sprintf("SELECT min(%s), max(%[1]s) FROM %s", column, table)).Scan(&first, &last); err != nil {
		return false, err
	}
	if first == nil || *last-*first <= cleanPart {
		return false, nil
	}
	return true, s.eachSignal(ctx, fmt.Sprintf("DELETE FROM %s WHERE id = ? AND %s < ?", table, column), *first+(*last-*first)/cleanPart)
}
