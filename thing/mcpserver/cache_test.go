package mcpserver

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestCacheLimits: results expire, the cache stays within its limits, and a result that
// was read before an invalidation is not cached after it.
func TestCacheLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const maxCached, maxCachedBytes = 20, 1000
		c := newCache(maxCached, maxCachedBytes)
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
			t.Error("the newest result is not cached")
		}
		if _, hit, _ := c.get("read", args(0)); hit {
			t.Error("the oldest result is cached")
		}
		time.Sleep(time.Second)
		if _, hit, _ := c.get("read", args(2*maxCached-1)); hit {
			t.Error("a result did not expire")
		}
		_, _, keep := c.get("read", args(1))
		keep(string(make([]byte, maxCachedBytes)))
		if len(c.entries) != 1 {
			t.Errorf("%d entries besides a large one", len(c.entries))
		}
		_, _, keep = c.get("read", args(2))
		c.invalidate(nil)
		keep("too late")
		if len(c.entries) != 0 || c.stats.Bytes != 0 {
			t.Errorf("%d entries, %d bytes after an invalidation", len(c.entries), c.stats.Bytes)
		}
	})
}

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
			t.Errorf("%d requests passed at first", n)
		}
		if wait := b.take(); wait != 100*time.Millisecond {
			t.Errorf("wait %v", wait)
		}
		time.Sleep(200 * time.Millisecond)
		if n := let(); n != 2 {
			t.Errorf("%d requests passed after 200 ms", n)
		}
		time.Sleep(time.Hour)
		if n := let(); n != 5 {
			t.Errorf("%d requests passed after a pause", n)
		}
	})
}
