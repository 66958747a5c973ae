package condition

import (
	"container/heap"
	"time"
)

// timers is a heap of pairs by due time.
type timers []*pair

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].due.Before(t[j].due) }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i]; t[i].at, t[j].at = i, j }

// Push implements heap.Interface.
func (t *timers) Push(p any) {
	p.(*pair).at = len(*t)
	*t = append(*t, p.(*pair))
}

// Pop implements heap.Interface.
func (t *timers) Pop() any {
	n := len(*t) - 1
	p := (*t)[n]
	(*t)[n] = nil
	*t, p.at = (*t)[:n], -1
	return p
}

// set sets when a pair is due; zero removes it.
func (t *timers) set(p *pair, due time.Time) {
	switch p.due = due; {
	case due.IsZero() && p.at >= 0:
		heap.Remove(t, p.at)
	case due.IsZero():
	case p.at >= 0:
		heap.Fix(t, p.at)
	default:
		heap.Push(t, p)
	}
}
