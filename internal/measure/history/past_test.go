package history

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// pastRecorder is somebody who has recorded before.
type pastRecorder struct {
	past *ferrule.Past
	err  error
}

func (r pastRecorder) Latest(string) []ferrule.Latest {
	return []ferrule.Latest{{Signal: "temperature", Unit: "°C", Sample: ferrule.Sample{Value: 21}}}
}

func (r pastRecorder) Past(context.Context, string, string, time.Time, time.Time) (*ferrule.Past, error) {
	return r.past, r.err
}

func withPast(t *testing.T, r pastRecorder) WithPast {
	t.Helper()
	store, err := Open(filepath.Join(t.TempDir(), "history"), DefaultConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return WithPast{store, func(device string) (PastSource, string) {
		if device == "thermometer" {
			return r, "home/a"
		}
		return nil, ""
	}}
}

func TestPast(t *testing.T) {
	start := time.Now().Truncate(time.Hour).Add(-2 * time.Hour)
	past := &ferrule.Past{Unit: "°C"}
	for i := range 90 { // one a minute, for an hour and a half
		past.Samples = append(past.Samples, ferrule.Sample{Time: start.Add(time.Duration(i) * time.Minute), Value: float64(i)})
	}
	q := ferrule.HistoryQuery{Device: "thermometer", Signals: []string{"temperature"}, From: start.Add(-48 * time.Hour), To: time.Now(), Points: 100}
	r := withPast(t, pastRecorder{past: past})
	series := func(q ferrule.HistoryQuery) ferrule.Series {
		t.Helper()
		all, err := r.Series(t.Context(), q)
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		return all[0]
	}
	if s := series(q); s.Resolution != ferrule.Raw || len(s.Points) != 90 || s.Unit != "°C" || s.Truncated || s.Last == nil || s.Last.Value != 89 {
		t.Errorf("raw: %+v", s)
	}
	few := q
	few.Points = 10
	if s := series(few); s.Resolution != ferrule.Hours || len(s.Points) != 2 || s.Points[0].Count != 60 || s.Points[0].Mean != 29.5 || s.Points[1].Min != 60 || s.Points[1].Max != 89 {
		t.Errorf("hours: %+v", s)
	}
	few.Resolution = ferrule.Raw
	if s := series(few); len(s.Points) != 10 || !s.Truncated || s.Points[9].Mean != 89 {
		t.Errorf("truncated: %+v", s)
	}
	past.Hours = []ferrule.Point{{Time: start.Add(-24 * time.Hour), Mean: 5, Min: 4, Max: 6, Count: 1}}
	if s := series(q); s.Resolution != ferrule.Hours || len(s.Points) != 3 || s.Points[0].Mean != 5 {
		t.Errorf("with older hours: %+v", s)
	}
	latest, err := r.Latest(t.Context(), "thermometer")
	if err != nil || len(latest) != 1 || latest[0].Value != 21 {
		t.Errorf("latest: %+v, %v", latest, err)
	}
	q.Device = "another"
	if all, err := r.Series(t.Context(), q); err != nil || len(all[0].Points) != 0 {
		t.Errorf("of another device: %+v, %v", all, err)
	}
}

// TestPastIsMissing: somebody who does not answer leaves a gap, and no error.
func TestPastIsMissing(t *testing.T) {
	r := withPast(t, pastRecorder{err: errors.New("unreachable")})
	q := ferrule.HistoryQuery{Device: "thermometer", Signals: []string{"temperature"}, From: time.Now().Add(-time.Hour), To: time.Now()}
	all, err := r.Series(t.Context(), q)
	if err != nil || len(all[0].Gaps) != 1 || !all[0].Gaps[0].From.Equal(q.From) {
		t.Errorf("%+v, %v", all, err)
	}
}
