package streams

import (
	"slices"
	"strconv"
	"sync"
)

// backlog has the readings that are not stored yet. It is bounded: it rejects more.
type backlog struct {
	name string // distinguishes the numbers of two backlogs

	mu    sync.Mutex
	all   []batch // by number, one reading each
	bytes int
	last  uint64
	ended bool // no more readings follow
	more  bell
}

// Limits of the backlog.
const (
	maxBacklog      = 16384
	maxBacklogBytes = 32 << 20
)

// add numbers a reading and keeps it, if there is room.
func (l *backlog) add(subject string, data []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || len(l.all) >= maxBacklog || l.bytes+len(data) > maxBacklogBytes {
		return false
	}
	l.last++
	l.all = append(l.all, batch{subject, l.last, l.last, data})
	l.bytes += len(data)
	l.more.ring()
	return true
}

// id returns the permanent ID of a reading.
func (l *backlog) id(n uint64) string { return l.name + "-" + strconv.FormatUint(n, 10) }

// next returns the first reading after a number, if there is one.
func (l *backlog) next(after uint64) (b batch, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, found := l.search(after)
	if found {
		i++
	}
	if i == len(l.all) {
		return b, false
	}
	return l.all[i], true
}

// search returns the index of a number, or where it would be. It is called with mu held.
// Mostly the number is among the first, with none missing before it.
func (l *backlog) search(n uint64) (int, bool) {
	if len(l.all) == 0 || n < l.all[0].last {
		return 0, false
	}
	if i := n - l.all[0].last; i < uint64(len(l.all)) && l.all[i].last == n {
		return int(i), true
	}
	return slices.BinarySearchFunc(l.all, n, func(b batch, n uint64) int {
		switch {
		case b.last < n:
			return -1
		case b.last > n:
			return 1
		}
		return 0
	})
}

// over reports whether no more readings follow.
func (l *backlog) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// forget removes a reading that is stored.
func (l *backlog) forget(n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, found := l.search(n)
	if !found {
		return
	}
	l.bytes -= len(l.all[i].data)
	if i == 0 {
		l.all[0] = batch{}
		l.all = l.all[1:]
		return
	}
	l.all = slices.Delete(l.all, i, i+1)
}

// end marks that no more readings follow.
func (l *backlog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.more.ring()
}

func (l *backlog) length() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}
