package mcpu

import "testing"

// TestFirstID: ids start at random, so that a late answer to the previous session does
// not match. Every board accepts them, and none is 0.
func TestFirstID(t *testing.T) {
	seen := make(map[int]bool)
	for range 1000 {
		id := New().firstID()
		if id < 1 || id > maxID {
			t.Fatalf("a session starts with id %d", id)
		}
		seen[id] = true
	}
	if len(seen) < 100 {
		t.Errorf("1000 sessions started with %d different ids", len(seen))
	}
}
