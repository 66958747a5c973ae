package history

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Source has the readings of this node in order. Readings calls fn with those after a
// place and then with those that come, until ctx ends or fn fails; when there are no more
// for now, once without a reading.
type Source interface {
	Readings(ctx context.Context, after string, fn func(ferrule.StoredReading) error) error
}

// The bounds of what is recorded.
const (
	maxSignals  = 100_000
	maxOfDevice = 1024 // signals
	maxWaiting  = 20_000
	maxSpan     = 10 * time.Minute
)

// Run records what the source has, until ctx ends. If something cannot be written, it
// goes on from what was, when it can.
func (s *Store) Run(ctx context.Context, source Source) error {
	const least, most = 500 * time.Millisecond, 30 * time.Second
	pause := least
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
		if time.Since(began) > most {
			pause = least
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
		pause = min(2*pause, most)
	}
}

// reopen opens the file again, if it was moved aside.
func (s *Store) reopen() error {
	if s.usable {
		return nil
	}
	s.closeFiles() // it may be half open
	return s.open()
}

// stop notes why nothing is recorded.
func (s *Store) stopped(err error) {
	s.mu.Lock()
	was := s.stats.Stopped
	s.stats.Stopped = err.Error()
	s.mu.Unlock()
	if was == "" {
		s.log.Warn("what devices measure is not recorded; it is tried again", "err", err)
	}
}

// goOn notes that it is.
func (s *Store) resumed() {
	s.mu.Lock()
	was := s.stats.Stopped
	s.stats.Stopped = ""
	s.mu.Unlock()
	if was != "" {
		s.log.Info("what devices measure is recorded again")
	}
}

// follow records from where it stopped, until something goes wrong.
func (s *Store) follow(ctx context.Context, source Source) error {
	if err := s.loadTracks(ctx); err != nil {
		return err
	}
	place, err := s.position(ctx)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancel(ctx)
	readings, ended := make(chan ferrule.StoredReading), make(chan error, 1)
	go func() {
		ended <- source.Readings(inner, place, func(r ferrule.StoredReading) error {
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
	b := &batch{position: place}
	clean := time.NewTicker(cleanEvery)
	defer clean.Stop()
	var due <-chan time.Time
	for {
		var asked flushRequest
		whole := false
		select {
		case r := <-readings:
			s.add(b, r)
			if due == nil && b.position != place {
				due = time.After(s.cfg.Sync)
			}
			whole = r.Reading == nil || b.full()
		case <-due:
			whole = true
		case asked = <-s.flush:
			if !b.has(asked.signal) { // many ask when they begin
				close(asked.done)
				continue
			}
			whole = true
		case <-clean.C:
			if err := s.cleanUp(ctx, time.Now()); err != nil {
				return err
			}
		case err := <-ended:
			waiting = false
			return cmp.Or(err, errors.New("the stream of readings has ended"))
		case <-ctx.Done():
			farewell, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
			defer cancel()
			return s.commit(farewell, b)
		}
		if !whole {
			continue
		}
		if b.position != place {
			if err := s.commit(ctx, b); err != nil {
				return err
			}
			place, due, b = b.position, nil, &batch{position: b.position}
		}
		s.resumed()
		if asked.done != nil {
			close(asked.done)
		}
		s.caughtUp()
	}
}

// maxFarewell is how long the last samples may take to be written.
const shutdownTimeout = 5 * time.Second

// caughtUp lets those go on who wait for all that there was at first.
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

// batch is what waits to be written.
type batch struct {
	position string // how far the stream was read
	rows     []row
	gaps     []gap
	// first and last are the times of its oldest sample and of its newest.
	first, last int64
}

// full tells whether a batch is to be written at once: one that spans hours would be
// kept for as long.
func (b *batch) full() bool {
	return len(b.rows) >= maxWaiting || b.last-b.first > maxSpan.Microseconds()
}

// has tells whether something of a signal waits, or anything if none is named.
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

// add takes a reading into a batch.
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
	for _, series := range r.Reading.Batches {
		t := s.track(signal{r.Reading.Device, series.Signal}, series)
		if t == nil {
			s.stats.Refused += uint64(len(series.Samples))
			continue
		}
		before := t.latest.Time
		for _, h := range series.Gaps {
			if !r.MayRepeat || h.To.After(before) {
				b.gaps = append(b.gaps, gap{t, h.From.UnixMicro(), h.To.UnixMicro(), string(h.Reason), h.MaxMissing})
			}
		}
		for _, sample := range series.Samples {
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

// lose notes that there may have been readings before one, of any signal that was being
// measured then. It is called with mu held.
func (s *Store) addLost(b *batch, next *ferrule.Reading) {
	begins := make(map[signal]time.Time)
	for _, series := range next.Batches {
		if len(series.Samples) > 0 {
			begins[signal{next.Device, series.Signal}] = series.Samples[0].Time
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

// maxSilence is how long a signal that is being measured usually brings nothing, at most.
const maxIdle = time.Hour

// track finds what is known of a signal, or begins to know it; nil if there are too many.
// It is called with mu held.
func (s *Store) track(of signal, series ferrule.SampleBatch) *track {
	t := s.tracks[of]
	if t == nil {
		if len(s.tracks) >= maxSignals || s.perDevice[of.device] >= maxOfDevice || len(series.Samples) == 0 {
			return nil
		}
		t = &track{signal: of}
		s.tracks[of] = t
		s.perDevice[of.device]++
	}
	if series.Unit != t.unit {
		t.unit, t.unitChanged = series.Unit, true
	}
	return t
}

// sorted puts rows in the order in which they are written, and drops those of one time.
func (b *batch) sorted() {
	slices.SortFunc(b.rows, func(x, y row) int {
		return cmp.Or(cmp.Compare(x.track.id, y.track.id), cmp.Compare(x.at, y.at))
	})
	b.rows = slices.CompactFunc(b.rows, func(x, y row) bool { return x.track == y.track && x.at == y.at })
}
