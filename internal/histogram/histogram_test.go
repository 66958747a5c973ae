package histogram_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/histogram"
)

func TestHistogram(t *testing.T) {
	h := histogram.New([]time.Duration{time.Millisecond, time.Second})
	if s := h.Snapshot(); s.Total() != 0 || s.Quantile(0.5) != 0 {
		t.Errorf("empty histogram: %+v", s)
	}
	var wg sync.WaitGroup
	for _, d := range []time.Duration{-time.Second, time.Millisecond, time.Millisecond + 1, time.Hour} {
		wg.Go(func() {
			for range 100 {
				h.Add(d)
			}
		})
	}
	wg.Wait()
	s := h.Snapshot()
	if want := []uint64{200, 100, 100}; !slices.Equal(s.Counts, want) || s.Total() != 400 {
		t.Errorf("got %v, want %v", s.Counts, want)
	}
	if want := 100 * (2*time.Millisecond + 1 + time.Hour); s.Sum != want {
		t.Errorf("sum is %v, want %v", s.Sum, want)
	}
	for share, want := range map[float64]time.Duration{0.5: time.Millisecond, 0.75: time.Second, 1: time.Second} {
		if got := s.Quantile(share); got != want {
			t.Errorf("quantile %v is %v, want %v", share, got, want)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	h := histogram.New([]time.Duration{time.Microsecond, 10 * time.Microsecond, 100 * time.Microsecond, time.Millisecond})
	for b.Loop() {
		h.Add(50 * time.Microsecond)
	}
}
