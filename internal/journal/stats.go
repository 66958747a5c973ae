package journal

import "time"

// Stats is what a journal counts, since it was opened.
type Stats struct {
	// Records and Writes count what was written and synced: many records may share one
	// write.
	Records uint64
	Writes  uint64
	// Failures counts the writes that failed, and Lost is how many records wait to be
	// told of as missing.
	Failures uint64
	Lost     int
	// Bytes is how much of the file is written.
	Bytes int64
}

// Stats may be asked for at any time.
func (j *Journal) Stats() Stats {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.stats
	s.Lost, s.Bytes = j.lost, j.synced.offset
	return s
}

// OnSync has fn told how long the disk took for each sync, from now on. It must be
// quick.
func (j *Journal) OnSync(fn func(took time.Duration)) {
	j.disk.Lock()
	defer j.disk.Unlock()
	j.onSync = fn
}

// count takes in what came of a write. It is called with mu held.
func (j *Journal) count(records int, err error) {
	if err != nil {
		j.stats.Failures++
		return
	}
	j.stats.Records += uint64(records)
	j.stats.Writes++
}
