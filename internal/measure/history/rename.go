package history

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// renameRequest asks for the signals of a device to be moved to its new name.
type renameRequest struct {
	from, to string
	done     chan error // has room for the result
}

// newName is the name of a device that had another one until a time.
type newName struct {
	name  string
	until time.Time
}

// inTransit is how long readings may arrive under an old name.
const inTransit = 5 * time.Second

// Rename moves the signals of a device to its new name. A signal stays where it is if the
// new name has one of the same name already, from a device that was called so before.
func (s *Store) Rename(ctx context.Context, from, to string) error {
	r := renameRequest{from: from, to: to, done: make(chan error, 1)}
	select {
	case s.renames <- r:
	case <-ctx.Done():
		return fmt.Errorf("history: renaming %s: %w", from, ctx.Err())
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("history: renaming %s: %w", from, ctx.Err())
	}
}

// rename is called by Run, when no samples wait to be written.
func (s *Store) rename(ctx context.Context, r renameRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var moved []*track
	for _, t := range s.tracks {
		if t.signal.device == r.from && s.tracks[signal{r.to, t.signal.name}] == nil {
			moved = append(moved, t)
		}
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("history: renaming %s: %w", r.from, err)
	}
	defer tx.Rollback()
	for _, t := range moved {
		if _, err := tx.ExecContext(ctx, "UPDATE signal SET device = ? WHERE id = ?", r.to, t.id); err != nil {
			return fmt.Errorf("history: renaming %s: %w", r.from, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("history: renaming %s: %w", r.from, err)
	}
	for _, t := range moved {
		delete(s.tracks, t.signal)
		t.signal.device = r.to
		s.tracks[t.signal] = t
		s.perDevice[r.from]--
		s.perDevice[r.to]++
	}
	if s.renamed == nil {
		s.renamed = make(map[string]newName)
	}
	delete(s.renamed, r.to)
	s.renamed[r.from] = newName{r.to, time.Now().Add(inTransit)}
	return nil
}

// Forget ends the move of readings to the name of a device that its owner forgot. The device
// may come back under its earlier name.
func (s *Store) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.renamed, func(_ string, now newName) bool { return now.name == name })
}

// underNewName returns a reading under the new name of its device, if it was on its way when
// the device was renamed.
func (s *Store) underNewName(r ferrule.StoredReading) ferrule.StoredReading {
	if r.Reading == nil {
		return r
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, renamed := s.renamed[r.Reading.Device]
	if !renamed || !r.Reading.Time.Before(now.until) {
		return r
	}
	reading := *r.Reading
	for renamed {
		reading.Device = now.name
		now, renamed = s.renamed[reading.Device]
	}
	r.Reading = &reading
	return r
}
