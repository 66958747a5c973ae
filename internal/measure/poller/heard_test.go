package poller_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	store "github.com/ferrulehq/ferrule/internal/measure/history"
	"github.com/ferrulehq/ferrule/internal/measure/poller"
)

// hearing is a Heard with a history.
type hearing struct {
	heard *poller.Heard
	store *store.Store
	end   func()
}

// hear starts a Heard on a file. Full reports whether there is no room for readings.
func hear(t *testing.T, file string, kept *stream, full func() bool) *hearing {
	t.Helper()
	cfg := store.DefaultConfig()
	cfg.Sync = time.Minute // fewer writes make the test faster
	history, err := store.Open(file, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	h := &hearing{store: history}
	h.heard = poller.NewHeard(poller.HeardParts{
		History: history, Node: "here", Log: slog.New(slog.DiscardHandler),
		Publish: func(r ferrule.Reading) bool {
			if full() {
				return false
			}
			kept.add(r)
			return true
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { h.heard.Run(ctx) })
	running.Go(func() { history.Run(ctx, kept) })
	h.end = func() {
		cancel()
		running.Wait()
		history.Close()
	}
	return h
}

func never() bool { return false }

func heardValue(signal string, value float64, state bool) []ferrule.Measurement {
	return []ferrule.Measurement{{Signal: signal, Unit: "°C", Values: []float64{value}, State: state}}
}

func device(id string, state ferrule.State) *ferrule.Device {
	return &ferrule.Device{ID: id, State: state, Trust: ferrule.TrustAdopted}
}

var sensors = flag.Int("sensors", 10, "how many sensors TestHeardHour has")

// TestHeardHour: what many sensors report in an hour, each at its own rate, is in the history
// once, with the time at which it was said.
func TestHeardHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hear(t, filepath.Join(t.TempDir(), "history.db"), &stream{more: make(chan struct{})}, never)
		start := time.Now()
		said := make([][]ferrule.Sample, *sensors)
		var all sync.WaitGroup
		for i := range *sensors {
			all.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(i), 19))
				id := fmt.Sprintf("sensor-%d", i)
				every := 10*time.Second + rand.N(5*time.Minute)
				for time.Since(start) < time.Hour {
					time.Sleep(every/2 + time.Duration(rnd.Int64N(int64(every))))
					value := float64(rnd.IntN(1000)) / 10
					h.heard.Report(id, time.Now(), heardValue("temperature", value, false))
					said[i] = append(said[i], ferrule.Sample{Time: time.Now(), Value: value})
				}
			})
		}
		all.Wait()
		time.Sleep(2 * time.Minute) // until everything is written
		defer h.end()
		count := 0
		for i := range *sensors {
			got := raw(t, h.store, fmt.Sprintf("sensor-%d", i), start)
			if len(got) != 1 || len(got[0].Gaps) != 0 || !slices.EqualFunc(got[0].Points, said[i], sameSample) {
				t.Fatalf("sensor %d said %d values; recorded: %d series, %+v", i, len(said[i]), len(got), got)
			}
			count += len(said[i])
		}
		t.Logf("%d samples of %d sensors in an hour, each recorded once", count, *sensors)
	})
}

// raw returns what is recorded of a device, in full resolution.
func raw(t *testing.T, s *store.Store, device string, from time.Time) []ferrule.Series {
	t.Helper()
	got, err := s.Series(t.Context(), ferrule.HistoryQuery{Device: device, From: from, To: time.Now(), Points: store.MaxPoints, Resolution: ferrule.Raw})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func sameSample(p ferrule.Point, s ferrule.Sample) bool {
	return p.Time.Equal(s.Time.Truncate(time.Microsecond)) && p.Mean == s.Value
}

// TestHeardGaps: a gap is the time in which a device was not connected, readings were
// dropped, or the gateway did not run; silence is none. Only changes of a state are
// recorded.
func TestHeardGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, kept, full := filepath.Join(t.TempDir(), "history.db"), &stream{more: make(chan struct{})}, false
		h := hear(t, file, kept, func() bool { return full })
		start := time.Now()
		at := func(minute int) time.Time { return start.Add(time.Duration(minute) * time.Minute) }
		report := func(minute int, value float64) {
			time.Sleep(time.Until(at(minute)))
			h.heard.Report("door", time.Now(), append(heardValue("temperature", value, false), heardValue("open", value, true)...))
		}
		report(1, 1)
		report(31, 1) // half an hour of silence
		time.Sleep(time.Until(at(40)))
		h.heard.Put(device("door", ferrule.StateOffline), nil)
		time.Sleep(time.Until(at(50)))
		h.heard.Put(device("door", ferrule.StateOnline), nil)
		report(51, 2)
		full = true
		report(52, 3)
		full = false
		report(53, 4)
		time.Sleep(2 * time.Minute)
		h.end()
		time.Sleep(time.Until(at(70)))
		h = hear(t, file, kept, never)
		defer func() { h.end() }()
		report(71, 5)
		time.Sleep(2 * time.Minute)
		want := []ferrule.Gap{
			{From: at(40), To: at(51), Reason: ferrule.Silent},
			{From: at(52), To: at(53), Reason: ferrule.Dropped},
			{From: at(53), To: at(71), Reason: ferrule.Silent},
		}
		for _, series := range raw(t, h.store, "door", start) {
			var values []float64
			for _, p := range series.Points {
				values = append(values, p.Mean)
			}
			same := func(a, b ferrule.Gap) bool { return a.From.Equal(b.From) && a.To.Equal(b.To) && a.Reason == b.Reason }
			if !slices.EqualFunc(series.Gaps, want, same) {
				t.Errorf("%s: gaps are %+v", series.Signal, series.Gaps)
			}
			if !slices.Equal(values, []float64{1, 1, 2, 4, 5}) {
				t.Errorf("%s: values are %v", series.Signal, values)
			}
		}
	})
}

// TestHeardBounds: a device that invents names, or sends what is not a number, takes little.
func TestHeardBounds(t *testing.T) {
	count := 0
	heard := poller.NewHeard(poller.HeardParts{Node: "here", Log: slog.New(slog.DiscardHandler), Publish: func(r ferrule.Reading) bool {
		if err := r.Check(); err != nil {
			t.Error(err)
		}
		count += len(r.Batches)
		return true
	}})
	for i := range 10_000 {
		heard.Report("liar", time.Now(), heardValue(fmt.Sprintf("signal_%d", i), 1, false))
		heard.Report("liar", time.Now(), []ferrule.Measurement{{Signal: "no\nname", Values: []float64{1}}, {Signal: "none"}, {Signal: "nan", Values: []float64{math.NaN()}}})
	}
	if count != 256 {
		t.Errorf("%d signals of one device were recorded", count)
	}
}
