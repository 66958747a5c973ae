package mcp

import (
	"testing"
	"time"
)

// TestPace: a device whose lists change now and then is read at once, and one that says
// so all the time ever less often.
func TestPace(t *testing.T) {
	var p pace
	now := time.Unix(1e9, 0)
	for range 5 {
		if wait := p.next(now); wait != calm {
			t.Errorf("waits %v", wait)
		}
		now = now.Add(time.Minute)
	}
	times := 0
	for end := now.Add(time.Hour); now.Before(end); times++ {
		now = now.Add(p.next(now))
	}
	if times > 140 {
		t.Errorf("its lists are read %d times in an hour", times)
	}
	if wait := p.next(now.Add(10 * time.Minute)); wait != calm {
		t.Errorf("after a rest it waits %v", wait)
	}
}
