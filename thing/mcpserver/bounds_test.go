package mcpserver

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestCacheIsBounded: results are kept for their time, and never too many or too
// large; and what was read before an invalidation is not kept after it.
func TestCacheIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache()
		c.times["read"] = time.Second
		args := func(i int) json.RawMessage { return fmt.Appendf(nil, `{"pin":%d}`, i) }
		for i := range 2 * maxCached {
			_, _, keep := c.get("read", args(i))
			keep("a result")
			time.Sleep(time.Millisecond)
		}
		if len(c.entries) != maxCached || c.stats.Bytes != maxCached*len("a result") {
			t.Errorf("%d entries, %d bytes", len(c.entries), c.stats.Bytes)
		}
		if _, hit, _ := c.get("read", args(2*maxCached-1)); !hit {
			t.Error("the newest was not kept")
		}
		if _, hit, _ := c.get("read", args(0)); hit {
			t.Error("the oldest was kept")
		}
		time.Sleep(time.Second)
		if _, hit, _ := c.get("read", args(2*maxCached-1)); hit {
			t.Error("it was kept for too long")
		}
		_, _, keep := c.get("read", args(1))
		keep(string(make([]byte, maxCachedBytes)))
		if len(c.entries) != 1 {
			t.Errorf("%d entries beside a large one", len(c.entries))
		}
		_, _, keep = c.get("read", args(2))
		c.invalidate(nil)
		keep("too late")
		if len(c.entries) != 0 || c.stats.Bytes != 0 {
			t.Errorf("%d entries, %d bytes after an invalidation", len(c.entries), c.stats.Bytes)
		}
	})
}

// TestBucket: so many in a second, and some more at once after a pause.
func TestBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(10, 5)
		let := func() (n int) {
			for b.take() == 0 {
				n++
			}
			return n
		}
		if n := let(); n != 5 {
			t.Errorf("%d at first", n)
		}
		if wait := b.take(); wait != 100*time.Millisecond {
			t.Errorf("wait %v", wait)
		}
		time.Sleep(200 * time.Millisecond)
		if n := let(); n != 2 {
			t.Errorf("%d after a while", n)
		}
		time.Sleep(time.Hour)
		if n := let(); n != 5 {
			t.Errorf("%d after a pause", n)
		}
	})
}
