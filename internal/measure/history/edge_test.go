package history

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Numbers whose sum is none any more are recorded as others are, and so is what comes
// after them; their mean lies between them.
func TestLargest(t *testing.T) {
	source := newTape()
	o := open(t, filepath.Join(t.TempDir(), "history.db"), testConfig(), source)
	const most = math.MaxFloat64
	source.add(
		reading("robot", "light", 0, time.Second, most, most, most),
		reading("robot", "light", time.Minute, time.Second, -most, -most, -most),
		reading("robot", "light", time.Hour, time.Second, most, most, -most, -most),
	)
	o.wait("all is there", func() bool { return o.Stats().Samples == 10 || o.Stats().Stopped != "" })
	o.settle()
	for grain, want := range map[ferrule.Resolution]int{ferrule.Minutes: 3, ferrule.Hours: 2} {
		curves, err := o.Past(t.Context(), ferrule.HistoryQuery{Device: "robot", From: epoch, To: epoch.Add(2 * time.Hour), Resolution: grain})
		if err != nil || len(curves[0].Points) != want {
			t.Fatalf("%s: %+v, %v", grain, curves, err)
		}
		for _, p := range curves[0].Points {
			if !(p.Min <= p.Mean && p.Mean <= p.Max) {
				t.Errorf("%s: %+v", grain, p)
			}
		}
	}
	for _, view := range []string{"minutes", "hours"} {
		if n := o.number("SELECT count(*) FROM " + view + " WHERE mean BETWEEN min AND max"); n < 2 || n != o.number("SELECT count(*) FROM "+view) {
			t.Errorf("%v of the %s are whole", n, view)
		}
	}
}

// The last of a signal is its last sample, also while its minute is not over; and so it is
// in a file that an older program has begun.
func TestSignals(t *testing.T) {
	path, source := filepath.Join(t.TempDir(), "history.db"), newTape()
	o := open(t, path, testConfig(), source)
	source.add(reading("robot", "light", 0, time.Second, 1, 2, 3), reading("robot", "heat", time.Hour, time.Second, 7))
	o.wait("all is there", func() bool { return o.Stats().Samples == 4 })
	o.settle()
	last := func() {
		t.Helper()
		if v, at := o.number("SELECT value FROM signals WHERE signal = 'light'"), o.number("SELECT last - first FROM signals WHERE signal = 'light'"); v != 3 || at != 2 {
			t.Errorf("the last is %v, %v s after the first", v, at)
		}
		if v := o.number("SELECT value FROM signals WHERE signal = 'heat'"); v != 7 {
			t.Errorf("the last is %v", v)
		}
	}
	last()
	if _, err := o.write.Exec("DROP VIEW signals; CREATE VIEW signals AS SELECT device, signal, unit, first/1e6 AS first, last/1e6 AS last, value FROM known; PRAGMA user_version = 1"); err != nil {
		t.Fatal(err)
	}
	o.stop()
	o = open(t, path, testConfig(), source)
	last()
}

// closed is a store that does not run, with some readings in it.
func closed(t *testing.T, readings ...ferrule.Reading) *opened {
	t.Helper()
	source, samples := newTape(), uint64(0)
	for _, r := range readings {
		samples += uint64(len(r.Batches[0].Samples))
	}
	o := open(t, filepath.Join(t.TempDir(), "history.db"), testConfig(), source)
	source.add(readings...)
	o.wait("all is there", func() bool { return o.Stats().Samples == samples })
	o.stop()
	s, err := Open(o.path, testConfig(), o.log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &opened{Store: s, t: t}
}

// Of a signal that is not measured any more, the last minute is kept as long as minutes
// are, and the last hour as long as hours.
func TestSilent(t *testing.T) {
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
			t.Errorf("after %v: the hours are of %v samples", step.after, n)
		}
		if v := at.number("SELECT value FROM signals"); v != 5 {
			t.Errorf("after %v: the last is %v", step.after, v)
		}
		if err := at.loadTracks(t.Context()); err != nil {
			t.Fatal(err)
		}
		if all, err := at.Latest(t.Context(), "robot"); err != nil || all[0].Value != 5 {
			t.Errorf("after %v: %+v, %v", step.after, all, err)
		}
	}
}

// A signal that is forgotten leaves nothing behind, which another would inherit.
func TestForgottenWhole(t *testing.T) {
	gone := reading("robot", "light", 10*time.Minute, time.Second, 1, 2, 3)
	gone.Batches[0].Gaps = []ferrule.Gap{{From: epoch, To: epoch.Add(time.Minute), Reason: ferrule.Silent}}
	at := closed(t, gone, reading("robot", "light", 20*time.Minute, time.Second, 4))
	at.cfg.Raw, at.cfg.Minutes, at.cfg.Hours = time.Hour, time.Hour, time.Hour
	for after := 50 * time.Minute; after < 100*time.Minute; after += time.Minute {
		if err := at.cleanUp(t.Context(), epoch.Add(after)); err != nil {
			t.Fatal(err)
		}
	}
	for _, table := range []string{"known", "minute", "hour", "gap"} {
		if n := at.number("SELECT count(*) FROM " + table); n != 0 {
			t.Errorf("%v are left in %s", n, table)
		}
	}
}

// A signal that comes again at the moment at which it would be forgotten is not.
func TestNotForgotten(t *testing.T) {
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
		t.Errorf("%v samples", n)
	}
}

// A signal that was silent is counted on, whenever its next sample is of.
func TestSilentAndBack(t *testing.T) {
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
			t.Errorf("%v: the last is %v", next, v)
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

// What cannot be divided by time is forgotten all the same.
func TestOneTime(t *testing.T) {
	at := closed(t, reading("robot", "light", 0, time.Second, 1))
	for i := range 5 {
		r, b := reading("robot", "light", 0, time.Second, 1), &batch{}
		at.add(b, ferrule.StoredReading{Reading: &r, Position: fmt.Sprint(i)})
		if err := at.commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	at.cfg.Size = 4096
	if err := at.makeRoom(ctx, 1); err == nil || ctx.Err() != nil {
		t.Errorf("it goes on for ever: %v", err)
	}
}

// Where holes take all the room, they go before what was measured.
func TestTooManyHoles(t *testing.T) {
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
		t.Errorf("%v minutes are left", n)
	}
}

// Of more holes than are told, none is left out: those that are close to each other are
// told as one.
func TestHolesTogether(t *testing.T) {
	const holes, each = 3 * maxGaps, 60
	var all []ferrule.Reading
	for i := 0; i < holes; i += each {
		r := reading("robot", "light", time.Duration(2*i)*time.Minute, time.Second, 1)
		for n := range each {
			from := epoch.Add(time.Duration(2*(i+n)) * time.Minute)
			r.Batches[0].Gaps = append(r.Batches[0].Gaps, ferrule.Gap{From: from, To: from.Add(time.Minute), Reason: ferrule.Unclear, MaxMissing: 2})
		}
		all = append(all, r)
	}
	at := closed(t, all...)
	whole := ferrule.HistoryQuery{Device: "robot", From: epoch, To: epoch.Add(2 * holes * time.Minute), Points: 7}
	if curves, err := at.Past(t.Context(), whole); err != nil || len(curves[0].Gaps) == 0 || len(curves[0].Gaps) > 7 {
		t.Errorf("who wants few points is told of %d holes, %v", len(curves[0].Gaps), err)
	}
	whole.Points = MaxPoints
	curves, err := at.Past(t.Context(), whole)
	if err != nil || len(curves) != 1 {
		t.Fatal(err)
	}
	told := curves[0].Gaps
	if n := len(told); n == 0 || n > maxGaps {
		t.Fatalf("%d holes", n)
	}
	most := 0
	for i, h := range told {
		most += h.MaxMissing
		if !h.From.Before(h.To) || i > 0 && !told[i-1].To.Before(h.From) || h.Reason != ferrule.Unclear {
			t.Fatalf("%+v", h)
		}
	}
	if last := told[len(told)-1].To; most != 2*holes || !told[0].From.Equal(epoch) || !last.Equal(epoch.Add((2*holes-1)*time.Minute)) {
		t.Errorf("they are from %v to %v, of %d samples", told[0].From, last, most)
	}
	whole.To = epoch.Add(maxGaps * 2 * time.Minute) // as many as are told
	if curves, err := at.Past(t.Context(), whole); err != nil || len(curves[0].Gaps) != maxGaps {
		t.Errorf("%d holes, %v", len(curves[0].Gaps), err)
	}
}
