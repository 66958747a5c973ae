package mcpu

import "testing"

// TestFirstID: ids begin anywhere, so that an answer to the session before is not
// taken for one to this. They are ids that every board takes, and never 0.
func TestFirstID(t *testing.T) {
	seen := make(map[int]bool)
	for range 1000 {
		id := New().firstID()
		if id < 1 || id > maxID {
			t.Fatalf("a session begins with id %d", id)
		}
		seen[id] = true
	}
	if len(seen) < 100 {
		t.Errorf("1000 sessions began with %d different ids", len(seen))
	}
}
