package audit

import (
	"container/heap"
	"slices"
)

// maxWaiting limits the bytes of records that wait for older ones.
const maxWaiting = 16 << 20

// order sorts records by their place. The memory is bounded: a record that arrives after
// too many newer ones is shown late.
type order struct {
	last  int // keep only the newest; 0 keeps all
	limit int // bytes that may wait, if all are kept
	show  func(Record) error

	waiting queue
	size    int
}

func newOrder(last, limit int, show func(Record) error) *order {
	return &order{last: last, limit: limit, show: show}
}

// passes reports whether records are shown before all were added, now or soon.
func (o *order) passes() bool { return o.last == 0 && o.size >= o.limit/2 }

// add takes a record. If too many wait, it shows or drops the oldest.
func (o *order) add(r Record) error {
	heap.Push(&o.waiting, r)
	o.size += weight(r)
	if o.last > 0 {
		if len(o.waiting) > o.last {
			o.take()
		}
		return nil
	}
	for o.size > o.limit {
		if err := o.show(o.take()); err != nil {
			return err
		}
	}
	return nil
}

// drain shows the records that wait. After that, each record is shown as it arrives.
func (o *order) drain() error {
	o.last, o.limit = 0, 0
	for len(o.waiting) > 0 {
		if err := o.show(o.take()); err != nil {
			return err
		}
	}
	return nil
}

func (o *order) take() Record {
	oldest := heap.Pop(&o.waiting).(Record)
	o.size -= weight(oldest)
	return oldest
}

// remove removes the record at a place, if it still waits.
func (o *order) remove(at place) {
	if i := slices.IndexFunc(o.waiting, func(r Record) bool { return r.at.compare(at) == 0 }); i >= 0 {
		o.size -= weight(o.waiting[i])
		heap.Remove(&o.waiting, i)
	}
}

// weight estimates the memory of a record.
func weight(r Record) int { return 512 + len(r.Args) + len(r.Message) }

// queue is a heap.Interface with the oldest record first.
type queue []Record

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at.compare(q[j].at) < 0 }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(Record)) }
func (q *queue) Pop() any {
	all := *q
	last := all[len(all)-1]
	all[len(all)-1] = Record{}
	*q = all[:len(all)-1]
	return last
}
