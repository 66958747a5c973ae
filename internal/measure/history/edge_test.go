package history

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestLargestNumbers checks that numbers whose sum overflows are recorded with a mean
// between them.
func TestLargestNumbers(t *testing.T) {
	source := newStream()
	o := open(t, filepath.Join(t.TempDir(), "history.db"), testConfig(), source)
	const largest = math.MaxFloat64
	source.add(
		reading("robot", "light", 0, time.Second, largest, largest, largest),
		reading("robot", "light", time.Minute, time.Second, -largest, -largest, -largest),
		reading("robot", "light", time.Hour, time.Second, largest, largest, -largest, -largest),
	)
	o.wait("all samples", func() bool { return o.Stats().Samples == 10 || o.Stats().Stopped != "" })
	o.settle()
	for resolution, want := range map[ferrule.Resolution]int{ferrule.Minutes: 3, ferrule.Hours: 2} {
		series, err := o.Series(t.Context(), ferrule.HistoryQuery{Device: "robot", From: epoch, To: epoch.Add(2 * time.Hour), Resolution: resolution})
		if err != nil || len(series[0].Points) != want {
			t.Fatalf("%s: %+v, %v", resolution, series, err)
		}
		for _, p := range series[0].Points {
			if !(p.Min <= p.Mean && p.Mean <= p.Max) {
				t.Errorf("%s: %+v", resolution, p)
			}
		}
	}
	for _, view := range []string{"minutes", "hours"} {
		if n := o.number("SELECT count(*) FROM " + view + " WHERE mean BETWEEN min AND max"); n < 2 || n != o.number("SELECT count(*) FROM "+view) {
			t.Errorf("%v rows of %s have a valid mean", n, view)
		}
	}
}

// TestSignals checks that the view signals has the last sample while its minute is not
// over, also in files of versions 3 and 1.
func TestSignals(t *testing.T) {
	path, source := filepath.Join(t.TempDir(), "history.db"), newStream()
	o := open(t, path, testConfig(), source)
	source.add(reading("robot", "light", 0, time.Second, 1, 2, 3), reading("robot", "heat", time.Hour, time.Second, 7))
	o.wait("all samples", func() bool { return o.Stats().Samples == 4 })
	o.settle()
	last := func() {
		t.Helper()
		if v, at := o.number("SELECT value FROM signals WHERE signal = 'light'"), o.number("SELECT last - first FROM signals WHERE signal = 'light'"); v != 3 || at != 2 {
			t.Errorf("the last value is %v, %v s after the first, want 3, 2 s", v, at)
		}
		if v := o.number("SELECT value FROM signals WHERE signal = 'heat'"); v != 7 {
			t.Errorf("the last value is %v, want 7", v)
		}
	}
	last()
	for _, old := range []string{version3, version1} {
		if _, err := o.write.Exec(old); err != nil {
			t.Fatal(err)
		}
		o.stop()
		o = open(t, path, testConfig(), source)
		last()
		o.agrees()
	}
}

// version3 turns a file into one of version 3.
const version3 = "ALTER TABLE signal DROP COLUMN state; PRAGMA user_version = 3"

// version1 turns a file into one of version 1.
const version1 = `
DROP VIEW signals; DROP VIEW samples; DROP VIEW minutes; DROP VIEW hours; DROP VIEW gaps;
ALTER TABLE position RENAME TO place;
ALTER TABLE signal RENAME TO known; ALTER TABLE known DROP COLUMN state;
ALTER TABLE minute RENAME COLUMN min TO least; ALTER TABLE minute RENAME COLUMN max TO most;
ALTER TABLE hour RENAME COLUMN min TO least; ALTER TABLE hour RENAME COLUMN max TO most;
ALTER TABLE gap RENAME COLUMN reason TO why; ALTER TABLE gap RENAME COLUMN max_missing TO most;
CREATE VIEW signals AS SELECT device, signal, unit, first/1e6 AS first, last/1e6 AS last, value FROM known;
CREATE VIEW samples AS SELECT id FROM raw;
CREATE VIEW minutes AS SELECT least, most FROM minute;
CREATE VIEW hours AS SELECT least, most FROM hour;
CREATE VIEW holes AS SELECT why, most FROM gap;
PRAGMA user_version = 1`

// closed returns a store that is not running, with some readings in it.
func closed(t *testing.T, readings ...ferrule.Reading) *running {
	t.Helper()
	source, samples := newStream(), uint64(0)
	for _, r := range readings {
		samples += uint64(len(r.Batches[0].Samples))
	}
	o := open(t, filepath.Join(t.TempDir(), "history.db"), testConfig(), source)
	source.add(readings...)
	o.wait("all samples", func() bool { return o.Stats().Samples == samples })
	o.stop()
	s, err := Open(o.path, testConfig(), o.log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &running{Store: s, t: t}
}

// TestIdle checks that the last minute and hour of an idle signal are kept as long as other
// minutes and hours.
func TestIdle(t *testing.T) {
	at := closed(t, reading("robot", "light", 58*time.Minute, 30*time.Second, 1, 2, 3), reading("robot", "light", time.Hour+10*time.Minute, time.Second, 4, 5))
	at.cfg.Raw, at.cfg.Minutes, at.cfg.Hours = 2*day, 9*day, 90*day
	for _, step := range []struct {
		after                time.Duration
		samples, mins, hours float64
	}{{time.Hour, 5, 3, 2}, {3 * time.Hour, 5, 3, 2}, {3 * day, 0, 3, 2}, {10 * day, 0, 0, 2}} {
		for range 2 {
			if err := at.cleanUp(t.Context(), epoch.Add(step.after)); err != nil {
				t.Fatal(err)
			}
		}
		samples, mins, hours := at.number("SELECT count(*) FROM samples"), at.number("SELECT count(*) FROM minutes"), at.number("SELECT count(*) FROM hours")
		if samples != step.samples || mins != step.mins || hours != step.hours {
			t.Errorf("after %v: %v samples, %v minutes, %v hours, want %+v", step.after, samples, mins, hours, step)
		}
		if n := at.number("SELECT sum(count) FROM hours"); n != 5 {
			t.Errorf("after %v: the hours have %v samples, want 5", step.after, n)
		}
		if v := at.number("SELECT value FROM signals"); v != 5 {
			t.Errorf("after %v: the last value is %v, want 5", step.after, v)
		}
		if err := at.loadTracks(t.Context()); err != nil {
			t.Fatal(err)
		}
		if all, err := at.Latest(t.Context(), "robot"); err != nil || all[0].Value != 5 {
			t.Errorf("after %v: %+v, %v", step.after, all, err)
		}
	}
}

// TestForgottenSignal checks that a deleted signal leaves no rows, because another signal
// may get its ID.
func TestForgottenSignal(t *testing.T) {
	gone := reading("robot", "light", 10*time.Minute, time.Second, 1, 2, 3)
	gone.Batches[0].Gaps = []ferrule.Gap{{From: epoch, To: epoch.Add(time.Minute), Reason: ferrule.Silent}}
	at := closed(t, gone, reading("robot", "light", 20*time.Minute, time.Second, 4))
	at.cfg.Raw, at.cfg.Minutes, at.cfg.Hours = time.Hour, time.Hour, time.Hour
	for after := 50 * time.Minute; after < 100*time.Minute; after += time.Minute {
		if err := at.cleanUp(t.Context(), epoch.Add(after)); err != nil {
			t.Fatal(err)
		}
	}
	for _, table := range []string{"signal", "minute", "hour", "gap"} {
		if n := at.number("SELECT count(*) FROM " + table); n != 0 {
			t.Errorf("%v rows left in %s", n, table)
		}
	}
}

// TestReturningSignal checks that a signal with a waiting sample is not deleted.
func TestReturningSignal(t *testing.T) {
	at := closed(t, reading("robot", "light", 0, time.Second, 1))
	at.cfg.Raw, at.cfg.Minutes, at.cfg.Hours = time.Hour, time.Hour, time.Hour
	again, b := reading("robot", "light", 5*time.Hour, time.Second, 2), &batch{}
	at.add(b, ferrule.StoredReading{Reading: &again, Position: "2"})
	if err := at.cleanUp(t.Context(), epoch.Add(5*time.Hour+time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := at.commit(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if n := at.number("SELECT count(*) FROM samples WHERE value = 2"); n != 1 {
		t.Errorf("%v samples, want 1", n)
	}
}

// TestIdleAndBack checks minutes and hours of a signal that was idle, for several times of
// its next sample.
func TestIdleAndBack(t *testing.T) {
	for _, next := range []time.Duration{70*time.Minute + 30*time.Second, 119 * time.Minute, 120*time.Minute + 10*time.Second, 121 * time.Minute, 5 * time.Hour} {
		at := closed(t, reading("robot", "light", 58*time.Minute, 30*time.Second, 1, 2, 3), reading("robot", "light", 70*time.Minute, time.Second, 4, 5))
		if err := at.cleanUp(t.Context(), epoch.Add(6*time.Hour)); err != nil {
			t.Fatal(err)
		}
		again, b := reading("robot", "light", next, time.Second, 6), &batch{}
		at.add(b, ferrule.StoredReading{Reading: &again, Position: "3"})
		if err := at.commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		at.agrees()
		if v := at.number("SELECT value FROM signals"); v != 6 {
			t.Errorf("%v: the last value is %v, want 6", next, v)
		}
		if err := at.cleanUp(t.Context(), epoch.Add(9*time.Hour)); err != nil {
			t.Fatal(err)
		}
		at.agrees()
		if err := at.loadTracks(t.Context()); err != nil {
			t.Fatal(err)
		}
		if all, err := at.Latest(t.Context(), "robot"); err != nil || all[0].Value != 6 {
			t.Errorf("%v: %+v, %v", next, all, err)
		}
	}
}

// TestOneTime checks that samples with the same time, which cannot be deleted in parts, do
// not cause an endless loop.
func TestOneTime(t *testing.T) {
	at := closed(t, reading("robot", "light", 0, time.Second, 1))
	for i := range 5 {
		r, b := reading("robot", "light", 0, time.Second, 1), &batch{}
		at.add(b, ferrule.StoredReading{Reading: &r, Position: fmt.Sprint(i)})
		if err := at.commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	at.cfg.Size = 4096
	if err := at.makeRoom(ctx, 1); err == nil || ctx.Err() != nil {
		t.Errorf("makeRoom does not give up: %v", err)
	}
}

// TestTooManyGaps checks that gaps are deleted before minutes if they take too much space.
func TestTooManyGaps(t *testing.T) {
	at := closed(t, reading("robot", "light", 0, time.Minute, make([]float64, 100)...))
	const size = 192 << 10
	at.cfg.Size = size
	for i := range 70 {
		r, b := reading("robot", "light", time.Duration(100+i)*time.Minute, time.Second, 1), &batch{}
		for n := range ferrule.MaxGaps {
			from := r.Batches[0].Samples[0].Time.Add(time.Duration(n) * time.Millisecond)
			r.Batches[0].Gaps = append(r.Batches[0].Gaps, ferrule.Gap{From: from, To: from.Add(time.Microsecond), Reason: ferrule.Unclear})
		}
		at.add(b, ferrule.StoredReading{Reading: &r, Position: fmt.Sprint(i)})
		if err := at.commit(t.Context(), b); err != nil {
			t.Fatalf("after %d: %v", i, err)
		}
	}
	if used, _, err := at.size(t.Context()); err != nil || used > size {
		t.Errorf("%d bytes, %v", used, err)
	}
	if n := at.number("SELECT count(*) FROM minutes"); n != 170 {
		t.Errorf("%v minutes left, want 170", n)
	}
}

// TestJoinedGaps checks that gaps above the limit are joined, and none is left out.
func TestJoinedGaps(t *testing.T) {
	const count, each = 3 * maxGaps, 60
	var all []ferrule.Reading
	for i := 0; i < count; i += each {
		r := reading("robot", "light", time.Duration(2*i)*time.Minute, time.Second, 1)
		for n := range each {
			from := epoch.Add(time.Duration(2*(i+n)) * time.Minute)
			r.Batches[0].Gaps = append(r.Batches[0].Gaps, ferrule.Gap{From: from, To: from.Add(time.Minute), Reason: ferrule.Unclear, MaxMissing: 2})
		}
		all = append(all, r)
	}
	at := closed(t, all...)
	query := ferrule.HistoryQuery{Device: "robot", From: epoch, To: epoch.Add(2 * count * time.Minute), Points: 7}
	if series, err := at.Series(t.Context(), query); err != nil || len(series[0].Gaps) == 0 || len(series[0].Gaps) > 7 {
		t.Errorf("%d gaps, limit is 7; %v", len(series[0].Gaps), err)
	}
	query.Points = MaxPoints
	series, err := at.Series(t.Context(), query)
	if err != nil || len(series) != 1 {
		t.Fatal(err)
	}
	gaps := series[0].Gaps
	if n := len(gaps); n == 0 || n > maxGaps {
		t.Fatalf("%d gaps, limit is %d", n, maxGaps)
	}
	missing := 0
	for i, g := range gaps {
		missing += g.MaxMissing
		if !g.From.Before(g.To) || i > 0 && !gaps[i-1].To.Before(g.From) || g.Reason != ferrule.Unclear {
			t.Fatalf("%+v", g)
		}
	}
	if last := gaps[len(gaps)-1].To; missing != 2*count || !gaps[0].From.Equal(epoch) || !last.Equal(epoch.Add((2*count-1)*time.Minute)) {
		t.Errorf("gaps from %v to %v, of %d samples", gaps[0].From, last, missing)
	}
	query.To = epoch.Add(maxGaps * 2 * time.Minute) // exactly the limit
	if series, err := at.Series(t.Context(), query); err != nil || len(series[0].Gaps) != maxGaps {
		t.Errorf("%d gaps, want %d; %v", len(series[0].Gaps), maxGaps, err)
	}
}
