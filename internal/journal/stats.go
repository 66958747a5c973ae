package journal

import "time"

// Stats are the figures of a journal since it was opened.
type Stats struct {
	// Records and Writes count what was written. Records may share a write.
	Records uint64
	Writes  uint64
	// Failures counts failed writes. Lost is the number of dropped records that the journal
	// does not mention yet.
	Failures uint64
	Lost     int
	// Bytes is the size of all segments.
	Bytes int64
}

// Stats returns the current figures. It is safe for concurrent use.
func (j *Journal) Stats() Stats {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.stats
	s.Lost, s.Bytes = j.lost, j.sealedBytes+j.synced.offset
	return s
}

// OnSync sets a function that is called with the duration of each sync. It must be fast.
func (j *Journal) OnSync(fn func(took time.Duration)) {
	j.syncing.Lock()
	defer j.syncing.Unlock()
	j.onSync = fn
}

// count counts a write. If it failed, part of the records may still have been written. It is
// called with mu held.
func (j *Journal) count(records int, err error) {
	if err != nil {
		j.stats.Failures++
	}
	if records > 0 {
		j.stats.Records += uint64(records)
		j.stats.Writes++
	}
}
