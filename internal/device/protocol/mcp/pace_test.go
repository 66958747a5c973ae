package mcp

import (
	"testing"
	"time"
)

// TestPace: lists that change now and then are read at once. A device that keeps
// reporting changes is read less and less often.
func TestPace(t *testing.T) {
	var p pace
	now := time.Unix(1e9, 0)
	for range 5 {
		if wait := p.next(now); wait != minPause {
			t.Errorf("waits %v", wait)
		}
		now = now.Add(time.Minute)
	}
	times := 0
	for end := now.Add(time.Hour); now.Before(end); times++ {
		now = now.Add(p.next(now))
	}
	if times > 140 {
		t.Errorf("read %d times in an hour", times)
	}
	if wait := p.next(now.Add(10 * time.Minute)); wait != minPause {
		t.Errorf("after a rest it waits %v", wait)
	}
}
