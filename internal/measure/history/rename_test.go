package history

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestRename checks that the measurements of a renamed device move to its new name, with
// those that wait to be written and those that were on their way, and continue there.
func TestRename(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	source := newStream()
	o := open(t, path, testConfig(), source)
	rename := func(from, to string) {
		t.Helper()
		if err := o.Rename(t.Context(), from, to); err != nil {
			t.Fatal(err)
		}
	}
	want := func(device string, points int) {
		t.Helper()
		o.settle()
		series, err := o.Series(t.Context(), ferrule.HistoryQuery{Device: device, Signals: []string{"light"}, From: epoch, To: epoch.Add(time.Hour), Points: 100})
		if err != nil || len(series) != 1 || len(series[0].Points) != points {
			t.Errorf("%s has %+v, %v, want %d points", device, series, err, points)
		}
	}
	source.add(reading("sim-board", "light", 0, time.Second, 1, 2, 3), reading("lamp", "heat", 0, time.Second, 1))
	o.wait("all samples", func() bool { return o.Stats().Samples == 4 })
	rename("sim-board", "robot")
	source.add(reading("robot", "light", 10*time.Second, time.Second, 4), reading("sim-board", "light", 20*time.Second, time.Second, 5))
	o.wait("all samples", func() bool { return o.Stats().Samples == 6 })
	want("robot", 5)
	want("sim-board", 0)
	rename("robot", "arm")
	rename("arm", "sim-board")
	source.add(reading("robot", "light", 30*time.Second, time.Second, 6))
	o.wait("all samples", func() bool { return o.Stats().Samples == 7 })
	want("sim-board", 6)
	o.agrees()

	rename("lamp", "sim-board") // heat moves
	source.add(reading("lamp2", "light", 0, time.Second, 1))
	o.wait("all samples", func() bool { return o.Stats().Samples == 8 })
	rename("lamp2", "sim-board") // there is light already, so it stays
	want("sim-board", 6)
	want("lamp2", 1)
	o.stop()
	o = open(t, path, testConfig(), source)
	want("sim-board", 6)
	if latest, err := o.Latest(t.Context(), "sim-board"); err != nil || len(latest) != 2 {
		t.Errorf("%+v, %v", latest, err)
	}
	rename("sim-board", "zed")
	o.Forget("zed") // and it is back as sim-board
	samples := o.Stats().Samples
	source.add(reading("sim-board", "light", 40*time.Second, time.Second, 7))
	o.wait("the sample", func() bool { return o.Stats().Samples == samples+1 })
	want("sim-board", 1)
	o.stop()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.Rename(ended, "sim-board", "robot"); err == nil {
		t.Error("renamed although nothing runs")
	}
}
