package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// stream is a stream of readings, numbered from 1.
type stream struct {
	mu     sync.Mutex
	first  int // the number of the first reading that is still kept
	kept   []ferrule.Reading
	before int // readings up to this number are marked MayRepeat
	more   chan struct{}
}

func newStream() *stream { return &stream{first: 1, more: make(chan struct{}, 1)} }

func (s *stream) add(readings ...ferrule.Reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, readings...)
	select {
	case s.more <- struct{}{}:
	default:
	}
}

func (s *stream) Readings(ctx context.Context, after string, fn func(ferrule.StoredReading) error) error {
	next := 1
	if after != "" {
		n, err := strconv.Atoi(after)
		if err != nil {
			return err
		}
		next = n + 1
	}
	idle := false
	for {
		s.mu.Lock()
		r := ferrule.StoredReading{Position: strconv.Itoa(next - 1)}
		if lost := s.first > next; lost {
			next, r.Lost = s.first, true
		}
		if i := next - s.first; i < len(s.kept) {
			r.Reading, r.Position, r.Remaining, r.MayRepeat = &s.kept[i], strconv.Itoa(next), uint64(len(s.kept)-i-1), next <= s.before
			next++
		}
		s.mu.Unlock()
		if r.Reading != nil || !idle {
			idle = r.Reading == nil || r.Remaining == 0
			if err := fn(r); err != nil {
				return err
			}
			continue
		}
		select {
		case <-s.more:
		case <-ctx.Done():
			return nil
		}
	}
}

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// reading returns a reading with samples of one signal.
func reading(device, name string, from, every time.Duration, values ...float64) ferrule.Reading {
	s := ferrule.SampleBatch{Signal: name, Unit: "lx"}
	for i, v := range values {
		s.Samples = append(s.Samples, ferrule.Sample{Time: epoch.Add(from + time.Duration(i)*every), Value: v, Within: ferrule.Duration(time.Millisecond)})
	}
	return ferrule.Reading{Device: device, Node: "here", Poll: name, Time: epoch.Add(from), Batches: []ferrule.SampleBatch{s}}
}

func testConfig() Config {
	c := DefaultConfig()
	c.Sync = minSync
	c.Raw, c.Minutes, c.Hours = maxKept, maxKept, maxKept // the samples of the tests are old
	return c
}

// running is a store whose Run is running.
type running struct {
	*Store
	t    *testing.T
	stop func()
}

func open(t *testing.T, path string, cfg Config, source Source) *running {
	t.Helper()
	s, err := Open(path, cfg, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	return run(t, s, source)
}

func run(t *testing.T, s *Store, source Source) *running {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, source) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ended, s.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return &running{s, t, stop}
}

// settle waits until everything in the stream is written.
func (o *running) settle() {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait.Ample)
	defer cancel()
	if _, err := o.Tail(ctx, "", "", 1); err != nil {
		o.t.Fatal(err)
	}
}

func (o *running) wait(what string, ok func() bool) {
	o.t.Helper()
	defer func() {
		if o.t.Failed() {
			o.t.Logf("%+v", o.Stats())
		}
	}()
	wait.For(o.t, what, ok)
}

func (o *running) number(query string, args ...any) (n float64) {
	o.t.Helper()
	if err := o.read.QueryRow(query, args...).Scan(&n); err != nil {
		o.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// agrees checks that minutes and hours agree with the samples.
func (o *running) agrees() {
	o.t.Helper()
	for _, each := range []struct {
		view string
		unit int
	}{{"minutes", 60}, {"hours", 3600}} {
		wrong := o.number(fmt.Sprintf(`SELECT count(*) FROM (
			SELECT device, signal, cast(time/%[1]d AS INTEGER)*%[1]d AS t, min(value) AS a, max(value) AS b, avg(value) AS c, count(*) AS n FROM samples GROUP BY 1, 2, 3
		) s FULL JOIN %[2]s v ON v.device = s.device AND v.signal = s.signal AND v.time = s.t
		WHERE v.min IS NOT s.a OR v.max IS NOT s.b OR v.count IS NOT s.n OR abs(v.mean - s.c) > 1e-9`, each.unit, each.view))
		if wrong > 0 {
			o.t.Errorf("%v rows of %s do not agree with the samples", wrong, each.view)
		}
	}
}

func TestRecord(t *testing.T) {
	source := newStream()
	o := open(t, filepath.Join(t.TempDir(), "history.db"), testConfig(), source)
	source.add(
		reading("robot", "light", 0, 500*time.Millisecond, 1, 2, 3),
		reading("robot", "heat", 0, time.Second, 20.5),
		reading("robot", "light", 1500*time.Millisecond, 500*time.Millisecond, 4, 5),
	)
	o.wait("all samples", func() bool { return o.Stats().Samples == 6 })
	o.settle()
	latest, err := o.Latest(t.Context(), "robot")
	if err != nil || len(latest) != 2 || latest[0].Signal != "heat" || latest[1].Value != 5 || latest[1].Unit != "lx" {
		t.Errorf("%+v, %v", latest, err)
	}
	tail, err := o.Tail(t.Context(), "robot", "light", 4)
	if err != nil || len(tail) != 4 || tail[0].Value != 2 || tail[3].Value != 5 || !tail[3].Time.Equal(epoch.Add(2*time.Second)) || tail[0].Within != ferrule.Duration(time.Millisecond) {
		t.Errorf("%+v, %v", tail, err)
	}
	if none, err := o.Tail(t.Context(), "robot", "sound", 4); err != nil || none != nil {
		t.Errorf("%+v, %v", none, err)
	}
	series, err := o.Series(t.Context(), ferrule.HistoryQuery{Device: "robot", Signals: []string{"light"}, From: epoch, To: epoch.Add(time.Minute), Points: 10})
	if err != nil || len(series) != 1 || series[0].Resolution != ferrule.Raw || len(series[0].Points) != 5 || series[0].Truncated {
		t.Errorf("%+v, %v", series, err)
	}
}

// TestResolutions checks that a coarser resolution is used if there are too many points,
// including the minute that is not over yet.
func TestResolutions(t *testing.T) {
	source := newStream()
	o := open(t, filepath.Join(t.TempDir(), "history.db"), testConfig(), source)
	n := 0
	for at := time.Duration(0); at < 3*time.Hour+90*time.Second; at += 10 * time.Second {
		source.add(reading("robot", "light", at, 5*time.Second, float64(n), float64(n+1)))
		n += 2
	}
	o.wait("all samples", func() bool { return o.Stats().Samples == uint64(n) })
	o.settle()
	o.agrees()
	all := ferrule.HistoryQuery{Device: "robot", From: epoch.Add(-time.Hour), To: epoch.Add(24 * time.Hour)}
	for points, want := range map[int]struct {
		resolution ferrule.Resolution
		count      int
		truncated  bool
	}{5000: {ferrule.Raw, n, false}, 500: {ferrule.Minutes, 182, false}, 100: {ferrule.Hours, 4, false}, 3: {ferrule.Hours, 3, true}} {
		all.Points = points
		series, err := o.Series(t.Context(), all)
		if err != nil || len(series) != 1 {
			t.Fatalf("%+v, %v", series, err)
		}
		c := series[0]
		if c.Resolution != want.resolution || len(c.Points) != want.count || c.Truncated != want.truncated {
			t.Errorf("limit %d: %d points of resolution %s, truncated %v", points, len(c.Points), c.Resolution, c.Truncated)
		}
		last := c.Points[len(c.Points)-1]
		if last.Max != float64(n-1) || want.resolution == ferrule.Hours && last.Count != 18 {
			t.Errorf("limit %d: the last point is %+v", points, last)
		}
	}
	all.Resolution, all.Points = ferrule.Minutes, 1000
	if series, err := o.Series(t.Context(), all); err != nil || series[0].Points[1].Mean != 17.5 || series[0].Points[1].Count != 12 {
		t.Errorf("%+v, %v", series, err)
	}
}

// TestLate checks that a late sample is counted in its minute and hour.
func TestLate(t *testing.T) {
	source := newStream()
	o := open(t, filepath.Join(t.TempDir(), "history.db"), testConfig(), source)
	for at := time.Duration(0); at < 2*time.Hour; at += time.Minute {
		source.add(reading("robot", "light", at, time.Second, 1, 2))
	}
	o.wait("all samples", func() bool { return o.Stats().Samples == 240 })
	source.add(reading("robot", "light", 30*time.Second, time.Second, 100), reading("robot", "light", 90*time.Minute+30*time.Second, time.Second, -100))
	o.wait("the late samples", func() bool { return o.Stats().Samples == 242 })
	o.settle()
	o.agrees()
	if highest := o.number("SELECT max FROM hours ORDER BY time LIMIT 1"); highest != 100 {
		t.Errorf("the maximum of the first hour is %v, want 100", highest)
	}
}

// TestExactlyOnce stops the store many times at random points: each sample is recorded once.
func TestExactlyOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	source := newStream()
	r := rand.New(rand.NewPCG(1, 2))
	total := 0
	for run := range 25 {
		ctx, cancel := context.WithCancel(context.Background())
		s, err := Open(path, testConfig(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		interrupted := failing{source, r.IntN(60)}
		go func() { ended <- s.Run(ctx, interrupted) }()
		for i := range 40 {
			source.add(reading("robot", fmt.Sprint("s", i%7), time.Duration(run*40+i)*time.Second, 100*time.Millisecond, 1, 2, 3))
			total += 3
			time.Sleep(time.Duration(r.IntN(2)) * time.Millisecond)
		}
		cancel()
		if err := errors.Join(<-ended, s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	o := open(t, path, testConfig(), source)
	o.settle()
	if n := o.number("SELECT count(*) FROM samples"); n != float64(total) {
		t.Errorf("%v samples, want %d", n, total)
	}
	if n := o.number("SELECT count(*) FROM (SELECT DISTINCT device, signal, time FROM samples)"); n != float64(total) {
		t.Errorf("%v different samples, want %d", n, total)
	}
	o.agrees()
}

// failing is a source that fails after some readings, each time.
type failing struct {
	Source
	after int
}

func (f failing) Readings(ctx context.Context, after string, fn func(ferrule.StoredReading) error) error {
	n := 0
	return f.Source.Readings(ctx, after, func(r ferrule.StoredReading) error {
		if n++; n > f.after {
			return errors.New("connection lost")
		}
		return fn(r)
	})
}

// TestLostAndRepeated checks that readings lost by the stream leave a gap, and that
// repeated readings are not recorded twice.
func TestLostAndRepeated(t *testing.T) {
	source := newStream()
	path := filepath.Join(t.TempDir(), "history.db")
	o := open(t, path, testConfig(), source)
	source.add(reading("lamp", "old", -2*time.Hour, time.Second, 1), reading("lamp", "power", time.Second, time.Second, 5), reading("robot", "light", 0, time.Second, 1, 2, 3))
	o.wait("the first readings", func() bool { return o.Stats().Samples == 5 })
	o.stop()
	source.first = 5 // the fourth was lost
	source.kept = []ferrule.Reading{reading("robot", "light", 10*time.Second, time.Second, 11, 12)}
	o = open(t, path, testConfig(), source)
	o.wait("the next reading", func() bool { return o.Stats().Samples == 2 })
	o.settle()
	if from, to := o.number(`SELECT "from" FROM gaps WHERE signal = 'power'`), o.number(`SELECT "to" FROM gaps WHERE signal = 'power'`); to-from != 9 {
		t.Errorf("gap of another active signal from %v to %v, want 9 s", from, to)
	}
	if n := o.number("SELECT count(*) FROM gaps WHERE signal = 'old'"); n != 0 {
		t.Errorf("%v gaps of an idle signal, want none", n)
	}
	series, err := o.Series(t.Context(), ferrule.HistoryQuery{Device: "robot", From: epoch, To: epoch.Add(time.Hour)})
	if err != nil || len(series) != 1 || len(series[0].Points) != 5 || len(series[0].Gaps) != 1 {
		t.Fatalf("%+v, %v", series, err)
	}
	if h := series[0].Gaps[0]; !h.From.Equal(epoch.Add(2*time.Second)) || !h.To.Equal(epoch.Add(10*time.Second)) || h.Reason != ferrule.Lost {
		t.Errorf("%+v", h)
	}
	o.stop()
	// A stream that has lost the position.
	again := newStream()
	again.before = 1
	again.add(reading("robot", "light", 9*time.Second, time.Second, 10, 11, 12, 13), reading("robot", "light", 13*time.Second, time.Second, 14))
	o = open(t, path, testConfig(), fromStart{again})
	o.wait("the new readings", func() bool { return o.Stats().Samples == 2 })
	o.settle()
	if n := o.number("SELECT count(*) FROM samples WHERE device = 'robot'"); n != 7 {
		t.Errorf("%v samples", n)
	}
	o.agrees()
}

// fromStart ignores the position.
type fromStart struct{ *stream }

func (f fromStart) Readings(ctx context.Context, _ string, fn func(ferrule.StoredReading) error) error {
	return f.stream.Readings(ctx, "", fn)
}

// TestTailAfterGap checks that a tail starts after the last gap.
func TestTailAfterGap(t *testing.T) {
	source := newStream()
	o := open(t, filepath.Join(t.TempDir(), "history.db"), testConfig(), source)
	second := reading("robot", "light", 10*time.Second, time.Second, 4, 5)
	second.Batches[0].Gaps = []ferrule.Gap{{From: epoch.Add(2 * time.Second), To: epoch.Add(10 * time.Second), Reason: ferrule.Unclear, MaxMissing: 1}}
	source.add(reading("robot", "light", 0, time.Second, 1, 2, 3), second)
	o.wait("all samples", func() bool { return o.Stats().Samples == 5 })
	tail, err := o.Tail(t.Context(), "robot", "light", 100)
	if err != nil || len(tail) != 2 || tail[0].Value != 4 {
		t.Errorf("%+v, %v", tail, err)
	}
	if n := o.number(`SELECT max_missing FROM gaps WHERE device = 'robot' AND reason = 'unclear' AND "to" - "from" = 8`); n != 1 {
		t.Errorf("max_missing is %v, want 1", n)
	}
}

// TestTooManySignals checks the limit of signals per device.
func TestTooManySignals(t *testing.T) {
	source := newStream()
	o := open(t, filepath.Join(t.TempDir(), "history.db"), testConfig(), source)
	for i := range maxOfDevice + 50 {
		source.add(reading("robot", fmt.Sprint("s", i), 0, time.Second, 1))
	}
	o.wait("50 refused samples", func() bool { return o.Stats().Refused == 50 })
	o.settle()
	if n := o.Stats().Signals; n != maxOfDevice {
		t.Errorf("%d signals, want %d", n, maxOfDevice)
	}
}

// TestState checks that a signal stays a state after a restart, and that Recorded has what
// was published last.
func TestState(t *testing.T) {
	path, source := filepath.Join(t.TempDir(), "history.db"), newStream()
	o := open(t, path, testConfig(), source)
	door := reading("robot", "door", 0, time.Second, 0, 1)
	door.Batches[0].State = true
	source.add(door, reading("robot", "light", 0, time.Second, 5))
	o.wait("all samples", func() bool { return o.Stats().Samples == 3 })
	o.stop()
	source.add(reading("robot", "light", time.Second, time.Second, 6)) // while nothing runs
	o = open(t, path, testConfig(), source)
	last, err := o.Recorded(t.Context(), "robot")
	if err != nil || len(last) != 2 || last[0].Value != 1 || last[1].Value != 6 {
		t.Errorf("got %+v, %v", last, err)
	}
	o.settle()
	all, err := o.Series(t.Context(), ferrule.HistoryQuery{Device: "robot", From: time.Unix(0, 0), To: time.Now().Add(time.Hour)})
	if err != nil || len(all) != 2 || !all[0].State || all[1].State {
		t.Errorf("got %+v, %v", all, err)
	}
}

// TestSnapshot checks that the last value, the minimum and the maximum of a series belong
// together at every resolution, while values are written that rise all the time.
func TestSnapshot(t *testing.T) {
	source := newStream()
	o := open(t, filepath.Join(t.TempDir(), "history.db"), testConfig(), source)
	for n := range 200 {
		source.add(reading("robot", "light", time.Duration(n)*20*time.Second, time.Second, float64(n)))
		if n == 0 {
			o.wait("the first sample", func() bool { return o.Stats().Samples > 0 })
		}
		for _, resolution := range []ferrule.Resolution{ferrule.Raw, ferrule.Minutes, ferrule.Hours} {
			all, err := o.Series(t.Context(), ferrule.HistoryQuery{
				Device: "robot", Signals: []string{"light"}, From: time.Unix(0, 0), To: time.Now().AddDate(1, 0, 0), Points: 1000, Resolution: resolution,
			})
			if err != nil {
				t.Fatal(err)
			}
			high := -1.0
			for _, p := range all[0].Points {
				high = max(high, p.Max)
			}
			if last := all[0].Last; last == nil || last.Value != high {
				t.Fatalf("%s: the last value is %+v, the maximum is %v", resolution, last, high)
			}
		}
	}
}
