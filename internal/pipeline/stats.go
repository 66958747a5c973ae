package pipeline

// Stats are the counters of a pipeline since it was built.
type Stats struct {
	// CacheHits and CacheMisses count calls whose answer may be cached.
	CacheHits   uint64 `json:"cache_hits"`
	CacheMisses uint64 `json:"cache_misses"`
	// CacheEntries and CacheBytes are the present size of the cache.
	CacheEntries int `json:"cache_entries"`
	CacheBytes   int `json:"cache_bytes"`
	// Limited counts calls that the limit stage refused.
	Limited uint64 `json:"limited"`
	// Readings counts the gateway's own calls; ReadingsFailed counts those that
	// failed.
	Readings       uint64 `json:"readings"`
	ReadingsFailed uint64 `json:"readings_failed"`
}

// Stats returns the counters. It is safe for concurrent use.
func (p *Pipeline) Stats() Stats {
	var s Stats
	p.answers.count(&s)
	p.callers.count(&s)
	p.readings.count(&s)
	return s
}
