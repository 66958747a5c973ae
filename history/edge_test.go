package history

import (
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule"
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
	for grain, want := range map[ferrule.Grain]int{ferrule.Minutes: 3, ferrule.Hours: 2} {
		curves, err := o.Past(t.Context(), ferrule.Period{Device: "robot", From: epoch, To: epoch.Add(2 * time.Hour), Grain: grain})
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
