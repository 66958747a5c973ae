package dock

// Stats is the present load of all lanes.
type Stats struct {
	// Busy counts devices that serve a call; Waiting counts calls in queues.
	Busy    int
	Waiting int
}

// Stats returns the load. It looks at every lane without blocking calls.
func (d *Dock) Stats() (s Stats) {
	d.mu.Lock()
	lanes := make([]*lane, 0, len(d.supervisors))
	for _, c := range d.supervisors {
		lanes = append(lanes, &c.lane)
	}
	d.mu.Unlock()
	for _, l := range lanes {
		busy, waiting := l.count()
		s.Waiting += waiting
		if busy {
			s.Busy++
		}
	}
	return s
}
