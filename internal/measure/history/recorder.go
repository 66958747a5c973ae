package history

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Source is the stream of this node's readings. Readings calls fn with the readings after a
// position and then with new ones, until ctx ends or fn fails. When there are no more for
// now, it calls fn once without a reading.
type Source interface {
	Readings(ctx context.Context, after string, fn func(ferrule.StoredReading) error) error
}

// The limits of what is recorded.
const (
	maxSignals  = 100_000
	maxOfDevice = 1024   // signals per device
	maxWaiting  = 20_000 // samples per batch
	maxSpan     = 10 * time.Minute
)

// Run records the readings of source until ctx ends. After an error it retries from the
// last written position.
func (s *Store) Run(ctx context.Context, source Source) error {
	const minPause, maxPause = 500 * time.Millisecond, 30 * time.Second
	pause := minPause
	for {
		began := time.Now()
		err := s.reopen()
		if err == nil {
			err = s.follow(ctx, source)
		}
		if ctx.Err() != nil {
			return nil
		}
		s.stopped(err)
		if isCorrupt(err) {
			if err := s.moveAside(err); err != nil {
				s.stopped(err)
			}
		}
		if time.Since(began) > maxPause {
			pause = minPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
		pause = min(2*pause, maxPause)
	}
}

// reopen opens the file again if it is not open.
func (s *Store) reopen() error {
	if s.usable {
		return nil
	}
	s.closeFiles() // it may be partly open
	return s.open()
}

// stopped notes why nothing is recorded.
func (s *Store) stopped(err error) {
	s.mu.Lock()
	was := s.stats.Stopped
	s.stats.Stopped = err.Error()
	s.mu.Unlock()
	if was == "" {
		s.log.Warn("measurements are not recorded, retrying", "err", err)
	}
}

// resumed notes that readings are recorded again.
func (s *Store) resumed() {
	s.mu.Lock()
	was := s.stats.Stopped
	s.stats.Stopped = ""
	s.mu.Unlock()
	if was != "" {
		s.log.Info("measurements are recorded again")
	}
}

// follow records from the last position until an error.
func (s *Store) follow(ctx context.Context, source Source) error {
	if err := s.loadTracks(ctx); err != nil {
		return err
	}
	position, err := s.position(ctx)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancel(ctx)
	readings, ended := make(chan ferrule.StoredReading), make(chan error, 1)
	go func() {
		ended <- source.Readings(inner, position, func(r ferrule.StoredReading) error {
			select {
			case readings <- r:
				return nil
			case <-inner.Done():
				return inner.Err()
			}
		})
	}()
	waiting := true
	defer func() {
		cancel()
		if waiting {
			<-ended
		}
	}()
	b := &batch{position: position}
	clean := time.NewTicker(cleanEvery)
	defer clean.Stop()
	var due <-chan time.Time
	for {
		var request flushRequest
		var rename renameRequest
		write := false
		select {
		case r := <-readings:
			s.add(b, s.underNewName(r))
			if due == nil && b.position != position {
				due = time.After(s.cfg.Sync)
			}
			write = r.Reading == nil || b.full()
		case <-due:
			write = true
		case request = <-s.flush:
			if !b.has(request.signal) { // a common case at the start
				close(request.done)
				continue
			}
			write = true
		case rename = <-s.renames:
			write = true
		case <-clean.C:
			if err := s.cleanUp(ctx, time.Now()); err != nil {
				return err
			}
		case err := <-ended:
			waiting = false
			return cmp.Or(err, errors.New("the stream of readings has ended"))
		case <-ctx.Done():
			final, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
			defer cancel()
			return s.commit(final, b)
		}
		if !write {
			continue
		}
		if b.position != position {
			if err := s.commit(ctx, b); err != nil {
				return err
			}
			position, due, b = b.position, nil, &batch{position: b.position}
		}
		s.resumed()
		if rename.done != nil {
			rename.done <- s.rename(ctx, rename)
		}
		if request.done != nil {
			close(request.done)
		}
		s.caughtUp()
	}
}

// shutdownTimeout limits the last write.
const shutdownTimeout = 5 * time.Second

// caughtUp closes ready when the stream has been read to its end for the first time.
func (s *Store) caughtUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stats.Behind > 0 {
		return
	}
	select {
	case <-s.ready:
	default:
		close(s.ready)
	}
}

// batch is what is written next.
type batch struct {
	position string // how far the stream was read
	rows     []row
	gaps     []gap
	// first and last are the times of the oldest and the newest sample.
	first, last int64
}

// full reports whether a batch must be written now. A batch is deleted as a whole, so it
// must not span much time.
func (b *batch) full() bool {
	return len(b.rows) >= maxWaiting || b.last-b.first > maxSpan.Microseconds()
}

// has reports whether samples of a signal wait; of any signal if it is zero.
func (b *batch) has(of signal) bool {
	return of == signal{} || slices.ContainsFunc(b.rows, func(r row) bool { return r.track.signal == of })
}

type row struct {
	track      *track
	at, within int64
	value      float64
}

type gap struct {
	track        *track
	since, until int64
	reason       string
	maxMissing   int
}

// add adds a reading to a batch.
func (s *Store) add(b *batch, r ferrule.StoredReading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.position, s.stats.Behind = r.Position, r.Remaining
	if r.Reading == nil {
		return
	}
	if r.Lost {
		s.addLost(b, r.Reading)
	}
	for _, samples := range r.Reading.Batches {
		t := s.track(signal{r.Reading.Device, samples.Signal}, samples)
		if t == nil {
			s.stats.Refused += uint64(len(samples.Samples))
			continue
		}
		before := t.latest.Time
		for _, g := range samples.Gaps {
			if !r.MayRepeat || g.To.After(before) {
				b.gaps = append(b.gaps, gap{t, g.From.UnixMicro(), g.To.UnixMicro(), string(g.Reason), g.MaxMissing})
			}
		}
		for _, sample := range samples.Samples {
			if r.MayRepeat && !sample.Time.After(before) {
				continue
			}
			at := sample.Time.UnixMicro()
			if len(b.rows) == 0 {
				b.first, b.last = at, at
			}
			b.first, b.last = min(b.first, at), max(b.last, at)
			b.rows = append(b.rows, row{t, at, time.Duration(sample.Within).Microseconds(), sample.Value})
			if sample.Time.After(t.latest.Time) {
				t.latest = sample
			}
		}
	}
}

// addLost adds a gap to every active signal, because readings before next were lost. It is
// called with mu held.
func (s *Store) addLost(b *batch, next *ferrule.Reading) {
	begins := make(map[signal]time.Time)
	for _, samples := range next.Batches {
		if len(samples.Samples) > 0 {
			begins[signal{next.Device, samples.Signal}] = samples.Samples[0].Time
		}
	}
	var newest time.Time
	for _, t := range s.tracks {
		if t.latest.Time.After(newest) {
			newest = t.latest.Time
		}
	}
	for _, t := range s.tracks {
		until, named := begins[t.signal]
		if !named {
			until = next.Time
		}
		if t.latest.Time.IsZero() || !until.After(t.latest.Time) || !named && newest.Sub(t.latest.Time) > maxIdle {
			continue
		}
		b.gaps = append(b.gaps, gap{t, t.latest.Time.UnixMicro(), until.UnixMicro(), string(ferrule.Lost), 0})
	}
}

// maxIdle is how long an active signal may have no sample.
const maxIdle = time.Hour

// track returns the state of a signal and creates it if necessary. It returns nil if there
// are too many signals. It is called with mu held.
func (s *Store) track(of signal, samples ferrule.SampleBatch) *track {
	t := s.tracks[of]
	if t == nil {
		if len(s.tracks) >= maxSignals || s.perDevice[of.device] >= maxOfDevice || len(samples.Samples) == 0 {
			return nil
		}
		t = &track{signal: of}
		s.tracks[of] = t
		s.perDevice[of.device]++
	}
	if samples.Unit != t.unit || samples.State != t.state {
		t.unit, t.state, t.unitChanged = samples.Unit, samples.State, true
	}
	return t
}

// sort sorts the rows by signal and time, and drops duplicates.
func (b *batch) sort() {
	slices.SortFunc(b.rows, func(x, y row) int {
		return cmp.Or(cmp.Compare(x.track.id, y.track.id), cmp.Compare(x.at, y.at))
	})
	b.rows = slices.CompactFunc(b.rows, func(x, y row) bool { return x.track == y.track && x.at == y.at })
}
