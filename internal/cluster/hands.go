package cluster

import (
	"sync"
	"sync/atomic"
)

// hands does jobs at once, as many as there are. A few goroutines stay for the next
// ones: a call needs a deep stack, and to grow one anew takes as long as much of what
// it does.
type hands struct {
	jobs chan func()
	over chan struct{}
	idle atomic.Int32
	wg   sync.WaitGroup
}

// mostIdle is how many wait for a job.
const mostIdle = 16

func newHands() *hands { return &hands{jobs: make(chan func()), over: make(chan struct{})} }

// do has a job done. It is not called any more once end is.
func (h *hands) do(job func()) {
	select {
	case h.jobs <- job:
	default:
		h.wg.Go(func() { h.work(job) })
	}
}

func (h *hands) work(job func()) {
	for {
		job()
		if h.idle.Add(1) > mostIdle {
			h.idle.Add(-1)
			return
		}
		select {
		case job = <-h.jobs:
			h.idle.Add(-1)
		case <-h.over:
			return
		}
	}
}

// end waits until all jobs are done.
func (h *hands) end() {
	close(h.over)
	h.wg.Wait()
}
