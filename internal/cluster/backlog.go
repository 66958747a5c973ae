package cluster

import (
	"slices"
	"strconv"
	"sync"
)

// backlog has readings until they are kept. It is bounded: what is too much is not
// taken.
type backlog struct {
	name string // tells the numbers of one backlog from those of another

	mu    sync.Mutex
	all   []parcel // by number
	bytes int
	last  uint64
	ended bool // there will be no more
	more  bell
}

// How much waits in memory.
const (
	maxBacklog      = 16384
	maxBacklogBytes = 32 << 20
)

// add numbers a reading and takes it, if there is room.
func (l *backlog) add(subject string, data []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || len(l.all) >= maxBacklog || l.bytes+len(data) > maxBacklogBytes {
		return false
	}
	l.last++
	l.all = append(l.all, parcel{subject, l.last, l.last, data})
	l.bytes += len(data)
	l.more.ring()
	return true
}

// id is what the reading of a number is known by, for ever.
func (l *backlog) id(n uint64) string { return l.name + "-" + strconv.FormatUint(n, 10) }

// next is the first reading after a number, if it is there.
func (l *backlog) next(after uint64) (p parcel, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, found := l.search(after)
	if found {
		i++
	}
	if i == len(l.all) {
		return p, false
	}
	return l.all[i], true
}

// search finds a number, or where it would be. It is called with mu held. What is
// looked for is mostly one of the first, which nothing is missing between.
func (l *backlog) search(n uint64) (int, bool) {
	if len(l.all) == 0 || n < l.all[0].last {
		return 0, false
	}
	if i := n - l.all[0].last; i < uint64(len(l.all)) && l.all[i].last == n {
		return int(i), true
	}
	return slices.BinarySearchFunc(l.all, n, func(p parcel, n uint64) int {
		switch {
		case p.last < n:
			return -1
		case p.last > n:
			return 1
		}
		return 0
	})
}

// over tells that there will be no more.
func (l *backlog) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// forget drops a reading that is kept.
func (l *backlog) forget(n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, found := l.search(n)
	if !found {
		return
	}
	l.bytes -= len(l.all[i].data)
	if i == 0 {
		l.all[0] = parcel{}
		l.all = l.all[1:]
		return
	}
	l.all = slices.Delete(l.all, i, i+1)
}

// end tells that there will be no more.
func (l *backlog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.more.ring()
}

// length is how many readings wait.
func (l *backlog) length() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}
