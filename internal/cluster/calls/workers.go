package calls

import (
	"sync"
	"sync/atomic"
)

// workers runs each job at once in a goroutine of its own. A few goroutines stay for
// the next jobs: a call needs a deep stack, and growing a new one takes as long as much
// of the call itself.
type workers struct {
	jobs   chan func()
	closed chan struct{}
	idle   atomic.Int32
	wg     sync.WaitGroup
}

// maxIdle is how many goroutines wait for a job.
const maxIdle = 16

func newWorkers() *workers { return &workers{jobs: make(chan func()), closed: make(chan struct{})} }

// run starts a job. It must not be called after close.
func (w *workers) run(job func()) {
	select {
	case w.jobs <- job:
	default:
		w.wg.Go(func() { w.work(job) })
	}
}

func (w *workers) work(job func()) {
	for {
		job()
		if w.idle.Add(1) > maxIdle {
			w.idle.Add(-1)
			return
		}
		select {
		case job = <-w.jobs:
			w.idle.Add(-1)
		case <-w.closed:
			return
		}
	}
}

// close waits until all jobs are done.
func (w *workers) close() {
	close(w.closed)
	w.wg.Wait()
}
