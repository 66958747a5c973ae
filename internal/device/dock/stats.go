package dock

// Stats is what the lanes of all devices are like now.
type Stats struct {
	// Busy counts the devices that are at a call, and Waiting the calls that wait for
	// one.
	Busy    int
	Waiting int
}

// Stats may be asked for at any time. It looks at every lane, and costs calls nothing.
func (d *Dock) Stats() (s Stats) {
	d.mu.Lock()
	lanes := make([]*lane, 0, len(d.berths))
	for _, b := range d.berths {
		lanes = append(lanes, &b.lane)
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
