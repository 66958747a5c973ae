package registry

import (
	"context"
	"errors"
	"time"

	"github.com/ferrulehq/ferrule/internal/cluster/concurrent"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
)

// The pace of writing. All batches in flight must fit into engine.MaxPending twice.
const (
	writeBatch = 2048
	writers    = 4                      // batches in flight
	writePause = 250 * time.Millisecond // after a failure

	_ = uint(engine.MaxPending - 2*writers*writeBatch)
)

// keepOwn writes the records of own devices as they change, until ctx ends or the
// server in this process must be restarted.
func (s *Session) keepOwn(ctx context.Context) error {
	for failures := 0; ; {
		err := s.writeAll(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			if failures++; failures > 1 && s.r.cfg.Alone() && s.engine.Stuck(err) {
				return engine.ErrStuck
			}
			s.r.options.WriteProblem("cannot write device records: " + s.engine.Explain(err).Error())
			concurrent.Sleep(ctx, writePause)
			continue
		case failures > 0:
			failures = 0
			s.r.options.WriteProblem("")
		}
		select {
		case <-s.r.dirty:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// writeAll writes all dirty records, several batches at a time, until one fails.
func (s *Session) writeAll(ctx context.Context) error {
	errs := make(chan error, writers)
	for range writers {
		go func() {
			more, err := true, error(nil)
			for more && err == nil && ctx.Err() == nil {
				more, err = s.writeSome(ctx)
			}
			errs <- err
		}()
	}
	var failed error
	for range writers {
		if err := <-errs; err != nil {
			failed = err
		}
	}
	return failed
}

// writeSome writes one batch, and reports whether there may be more.
func (s *Session) writeSome(ctx context.Context) (more bool, failed error) {
	view := s.r.view
	all := view.plans(writeBatch)
	if len(all) == 0 {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, engine.WriteTime)
	defer cancel()
	all, failed = s.publishKinds(ctx, all)
	writes := make([]write, len(all))
	for i, p := range all {
		writes[i] = p.write
	}
	unseen := false
	for i, o := range s.devices.put(ctx, writes) {
		if errors.Is(o.err, engine.ErrStale) {
			e, err := s.devices.get(ctx, all[i].id)
			if err == nil {
				view.update(all[i].id, e)
			}
			unseen = unseen || err != nil || e.revision == all[i].revision
		} else if o.err != nil {
			failed = o.err
		}
		view.written(all[i], o)
	}
	if unseen && failed == nil {
		concurrent.Sleep(ctx, writePause) // the newer record cannot be read yet
	}
	return true, failed
}
