package mcpserver

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/thing"
)

// CacheStats are statistics of the cache.
type CacheStats struct {
	// Entries is the number of cached results, and Bytes their size.
	Entries, Bytes int
	// MaxEntries and MaxBytes are their limits.
	MaxEntries, MaxBytes int
	// Tools is the number of tools whose results are cached.
	Tools int
	// Hits is the number of calls that were answered from the cache, Misses of those
	// that called a cached tool.
	Hits, Misses int
}

// HitRate returns the share of calls that were answered from the cache, from 0 to 1.
func (s CacheStats) HitRate() float64 {
	if s.Hits == 0 {
		return 0
	}
	return float64(s.Hits) / float64(s.Hits+s.Misses)
}

// cache keeps results of tools for a time.
type cache struct {
	mu      sync.Mutex
	times   map[string]time.Duration // by tool; other tools are not cached
	age     int                      // grows with each invalidation
	entries map[cacheKey]cached
	stats   CacheStats
}

// cacheKey is a tool and a hash of its arguments.
type cacheKey struct {
	tool string
	args [sha256.Size]byte
}

type cached struct {
	result any
	size   int
	until  time.Time
}

func newCache(maxEntries, maxBytes int) *cache {
	return &cache{
		times: make(map[string]time.Duration), entries: make(map[cacheKey]cached),
		stats: CacheStats{MaxEntries: max(maxEntries, 1), MaxBytes: max(maxBytes, 0)},
	}
}

// Cache caches the results of a tool, for calls with the same arguments. It is for
// read-only tools: an answer from the cache moves nothing. Errors are not cached, nor
// are results that depend on an answer of a user.
func (d *Device) Cache(tool string, keep time.Duration) {
	d.cache.mu.Lock()
	defer d.cache.mu.Unlock()
	d.cache.times[tool] = keep
}

// Invalidate drops the cached results of tools, or of all tools if none is named. The
// result of a call under way is not cached either.
func (d *Device) Invalidate(tools ...string) { d.cache.invalidate(tools) }

// CacheStats returns statistics of the cache.
func (d *Device) CacheStats() CacheStats {
	d.cache.mu.Lock()
	defer d.cache.mu.Unlock()
	stats := d.cache.stats
	stats.Entries, stats.Tools = len(d.cache.entries), len(d.cache.times)
	return stats
}

// keyOf returns the key of a result. Equal JSON objects have equal keys.
func keyOf(tool string, args json.RawMessage) (key cacheKey, ok bool) {
	value := map[string]any{}
	if len(args) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(args))
		decoder.UseNumber()
		if decoder.Decode(&value) != nil {
			return key, false
		}
	}
	sorted, err := json.Marshal(value)
	if err != nil {
		return key, false
	}
	return cacheKey{tool, sha256.Sum256(sorted)}, true
}

// get returns a cached result. On a miss, keep caches the result of the call; it is nil
// for tools that are not cached.
func (c *cache) get(tool string, args json.RawMessage) (result any, hit bool, keep func(any)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	life := c.times[tool]
	if life <= 0 {
		return nil, false, nil
	}
	key, ok := keyOf(tool, args)
	if !ok {
		return nil, false, nil
	}
	if e, ok := c.entries[key]; ok && time.Now().Before(e.until) {
		c.stats.Hits++
		return e.result, true, nil
	}
	c.stats.Misses++
	age := c.age
	return nil, false, func(result any) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.age == age {
			c.put(key, cached{result, sizeOf(result), time.Now().Add(life)})
		}
	}
}

// put caches a result, and makes room for it.
func (c *cache) put(key cacheKey, e cached) {
	c.drop(key)
	if e.size > c.stats.MaxBytes {
		return
	}
	for len(c.entries) >= c.stats.MaxEntries || c.stats.Bytes+e.size > c.stats.MaxBytes {
		var first cacheKey
		var until time.Time
		for k, other := range c.entries {
			if until.IsZero() || other.until.Before(until) {
				first, until = k, other.until
			}
		}
		c.drop(first)
	}
	c.entries[key] = e
	c.stats.Bytes += e.size
}

func (c *cache) drop(key cacheKey) {
	c.stats.Bytes -= c.entries[key].size
	delete(c.entries, key)
}

func (c *cache) invalidate(tools []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.age++
	for key := range c.entries {
		if len(tools) == 0 {
			c.drop(key)
		}
		for _, tool := range tools {
			if key.tool == tool {
				c.drop(key)
			}
		}
	}
}

// sizeOf returns roughly the memory that a result takes.
func sizeOf(result any) int {
	switch r := result.(type) {
	case string:
		return len(r)
	case json.RawMessage:
		return len(r)
	case thing.Image:
		return len(r.Data)
	case thing.Audio:
		return len(r.Data)
	case thing.Document:
		return len(r.Text) + len(r.Data)
	case thing.Parts:
		size := 0
		for _, part := range r {
			size += sizeOf(part)
		}
		return size
	}
	return 0
}
