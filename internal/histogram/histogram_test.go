package histogram

import (
	"maps"
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	h := New([]time.Duration{5 * time.Millisecond, 200 * time.Millisecond, 10 * time.Second})
	if s := h.Snapshot(); s.Quantile(0.99) != 0 || s.Count() != 0 {
		t.Errorf("empty: quantile %v, count %d", s.Quantile(0.99), s.Count())
	}
	for range 98 {
		h.Observe(3 * time.Millisecond)
	}
	h.Observe(-time.Second)
	h.Observe(150 * time.Millisecond)
	s := h.Snapshot()
	for q, want := range map[float64]time.Duration{0.5: 5 * time.Millisecond, 0.99: 5 * time.Millisecond, 1: 200 * time.Millisecond} {
		if got := s.Quantile(q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if want := 98*3*time.Millisecond + 150*time.Millisecond; s.Sum != want {
		t.Errorf("sum is %v, want %v", s.Sum, want)
	}
	h.Observe(time.Hour)
	s = h.Snapshot()
	if got := s.Quantile(1); got != 10*time.Second {
		t.Errorf("the last quantile is %v, want the last bound", got)
	}
	if want := map[float64]uint64{0.005: 99, 0.2: 100, 10: 100}; !maps.Equal(s.Buckets(), want) || s.Count() != 101 {
		t.Errorf("buckets %v, count %d, want %v, 101", s.Buckets(), s.Count(), want)
	}
}
