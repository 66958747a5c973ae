package pipeline

// Stats is what the road counts, since it was built.
type Stats struct {
	// CacheHits and CacheMisses count the calls whose answer may be kept.
	CacheHits   uint64 `json:"cache_hits"`
	CacheMisses uint64 `json:"cache_misses"`
	// CacheEntries and CacheBytes are what is kept now.
	CacheEntries int `json:"cache_entries"`
	CacheBytes   int `json:"cache_bytes"`
	// Limited counts the calls that were refused because their caller called
	// too much.
	Limited uint64 `json:"limited"`
	// Readings counts the calls that the gateway has made by itself to know what
	// devices measure, and ReadingsFailed those of them that ended in an error.
	Readings       uint64 `json:"readings"`
	ReadingsFailed uint64 `json:"readings_failed"`
}

// Stats may be asked for at any time.
func (r *Pipeline) Stats() Stats {
	var s Stats
	r.answers.count(&s)
	r.callers.count(&s)
	r.readings.count(&s)
	return s
}
