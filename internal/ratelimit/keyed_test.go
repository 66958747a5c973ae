package ratelimit

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestKeyed: each key has a limit of its own, and is told how long to wait.
func TestKeyed(t *testing.T) {
	k := NewKeyed[string](Rate{Burst: 2, Every: time.Second}, 10)
	now := time.Now()
	for _, step := range []struct {
		key   string
		after time.Duration
		want  time.Duration
	}{
		{"a", 0, 0},
		{"a", 0, 0},
		{"a", 0, time.Second},
		{"b", 0, 0},
		{"a", 600 * time.Millisecond, 400 * time.Millisecond},
		{"a", time.Second, 0},
		{"a", time.Second, time.Second},
	} {
		if got := k.Take(step.key, now.Add(step.after)); got != step.want {
			t.Errorf("%s after %v: wait %v, want %v", step.key, step.after, got, step.want)
		}
	}
}

// TestKeyedIsBounded: keys beyond the limit share one Limiter, and the others keep theirs.
// Idle keys make room.
func TestKeyedIsBounded(t *testing.T) {
	const limit = 100
	k := NewKeyed[int](Rate{Burst: 1, Every: time.Minute}, limit)
	now := time.Now()
	allowed := 0
	for i := range 10 * limit {
		if k.Take(i, now) == 0 {
			allowed++
		}
	}
	if len(k.keys) != limit || allowed != limit+1 {
		t.Errorf("%d keys are remembered, %d events were allowed", len(k.keys), allowed)
	}
	if k.Take(0, now) == 0 {
		t.Error("a known key lost its count")
	}
	if now = now.Add(2 * time.Minute); k.Take(-1, now) != 0 || len(k.keys) != 1 {
		t.Errorf("%d keys are left", len(k.keys))
	}
}

// sums collects what a Digest sums up.
type sums struct {
	mu  sync.Mutex
	all []string
}

func (s *sums) add(key string, count int, last string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, fmt.Sprintf("%s: %d, %s", key, count, last))
}

// take returns what was collected, sorted.
func (s *sums) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = nil
	slices.Sort(all)
	return all
}

// TestDigest: the first events of a key stand alone. The others are summed up once per
// window until the key is quiet, also those of too many keys.
func TestDigest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got sums
		d := NewDigest(DigestRules{First: 2, Window: time.Minute, Keys: 2}, got.add)
		alone := func(key string, n int) (count int) {
			for i := range n {
				if d.Alone(key, fmt.Sprint("event ", i)) {
					count++
				}
			}
			return count
		}
		after := func(wait time.Duration, want ...string) {
			t.Helper()
			time.Sleep(wait)
			synctest.Wait()
			if got := got.take(); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		if n := alone("a", 5); n != 2 {
			t.Errorf("%d stand alone", n)
		}
		if alone("b", 1) != 1 || alone("c", 4) != 2 || alone("d", 4) != 0 {
			t.Error("the first events of other keys do not stand alone")
		}
		after(61*time.Second, ": 6, event 3", "a: 3, event 4")
		if alone("a", 1) != 0 || alone("b", 1) != 1 {
			t.Error("a key that goes on must be counted, and a quiet one starts over")
		}
		after(time.Minute, "a: 1, event 0")
		after(time.Minute)
		if len(d.open) != 0 {
			t.Errorf("%d keys are open", len(d.open))
		}
		alone("a", 3)
		d.Flush()
		after(0, "a: 1, event 2")
		after(2 * time.Minute)
	})
}
