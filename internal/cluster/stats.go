package cluster

// Stats is what the bus counts.
type Stats struct {
	// Spooled is how many events wait in memory to be kept, and Lost counts those that
	// there was no room for, since the bus was made.
	Spooled int
	Lost    uint64
	// Sending is how many calls to other nodes are under way, and Serving how many of
	// theirs are served.
	Sending int
	Serving int
}

// Stats may be asked for at any time.
func (b *Cluster) Stats() (s Stats) {
	s.Spooled, s.Lost = b.spool.count()
	s.Sending, s.Serving = b.outbox.underway(), b.inbox.underway()
	return s
}

func (s *spool) count() (waiting int, lost uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.events), s.ever + uint64(s.lost)
}

func (o *outbox) underway() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.calls)
}

func (i *inbox) underway() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.running
}
