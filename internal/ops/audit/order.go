package audit

import (
	"container/heap"
	"time"
)

// maxWaiting limits the bytes of records that wait for older ones of other nodes.
const maxWaiting = 16 << 20

// order sorts the records of several chains by time. Each chain keeps its own order, even
// if its clock was set back. The memory is bounded: a record that arrives after too many
// newer ones is shown late.
type order struct {
	last  int // keep only the newest; 0 keeps all
	limit int // bytes that may wait, if all are kept
	show  func(Record) error

	waiting queue
	size    int
	count   int                  // of records added so far
	latest  map[origin]time.Time // of each chain
}

func newOrder(last int, show func(Record) error) *order {
	return &order{last: last, show: show, latest: make(map[origin]time.Time)}
}

// add takes a record. If too many wait, it shows or drops the oldest.
func (o *order) add(r Record) error {
	when := r.Time
	from := origin{r.Node, r.Chain}
	if latest := o.latest[from]; latest.After(when) {
		when = latest
	}
	o.latest[from] = when
	o.count++
	heap.Push(&o.waiting, queued{r, when, o.count})
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
	oldest := heap.Pop(&o.waiting).(queued)
	o.size -= weight(oldest.Record)
	return oldest.Record
}

// weight estimates the memory of a record.
func weight(r Record) int { return 512 + len(r.Args) + len(r.Message) }

type queued struct {
	Record
	when  time.Time
	count int
}

// queue is a heap.Interface with the oldest record first.
type queue []queued

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if !q[i].when.Equal(q[j].when) {
		return q[i].when.Before(q[j].when)
	}
	return q[i].count < q[j].count
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(queued)) }
func (q *queue) Pop() any {
	all := *q
	last := all[len(all)-1]
	all[len(all)-1] = queued{}
	*q = all[:len(all)-1]
	return last
}
