package main

import (
	"container/heap"
	"time"
)

// maxHeld is how many bytes of records wait for older ones of other nodes.
const maxHeld = 16 << 20

// hold brings the records of several chains into the order of time. Each chain is in
// order by itself, and stays so even if its clock was set back. What is held is
// bounded: a record that comes when too many newer ones are held is late, and comes
// after those that had to go.
type hold struct {
	last int // only so many of the newest are wanted; zero wants all
	most int // how many bytes may be held, if all are wanted
	show func(record) error

	held  queue
	size  int
	count int                  // of all that were added
	at    map[origin]time.Time // the latest time in each chain
}

func newHold(last int, show func(record) error) *hold {
	return &hold{last: last, show: show, at: make(map[origin]time.Time)}
}

// add takes a record, and shows or drops the oldest if there are too many.
func (h *hold) add(r record) error {
	when := r.Time
	from := origin{r.Node, r.Chain}
	if at := h.at[from]; at.After(when) {
		when = at
	}
	h.at[from] = when
	h.count++
	heap.Push(&h.held, held{r, when, h.count})
	h.size += weight(r)
	if h.last > 0 {
		if len(h.held) > h.last {
			h.take()
		}
		return nil
	}
	for h.size > h.most {
		if err := h.show(h.take()); err != nil {
			return err
		}
	}
	return nil
}

// drain shows what is held. From then on each record is shown as it comes.
func (h *hold) drain() error {
	h.last, h.most = 0, 0
	for len(h.held) > 0 {
		if err := h.show(h.take()); err != nil {
			return err
		}
	}
	return nil
}

func (h *hold) take() record {
	oldest := heap.Pop(&h.held).(held)
	h.size -= weight(oldest.record)
	return oldest.record
}

// weight is about how many bytes a record takes.
func weight(r record) int { return 512 + len(r.Args) + len(r.Message) }

// held is a record that waits.
type held struct {
	record
	when  time.Time
	count int
}

// queue is records with the oldest first, as package heap wants it.
type queue []held

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if !q[i].when.Equal(q[j].when) {
		return q[i].when.Before(q[j].when)
	}
	return q[i].count < q[j].count
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(held)) }
func (q *queue) Pop() any {
	all := *q
	last := all[len(all)-1]
	all[len(all)-1] = held{}
	*q = all[:len(all)-1]
	return last
}
