package server

import "time"

// workerIdle is how long a worker waits for the next function.
const workerIdle = 100 * time.Millisecond

// workers run functions in goroutines that wait a while for the next one. A call goes through
// many stages, and a new goroutine has to grow its stack for them several times.
type workers chan func()

func newWorkers() workers { return make(workers) }

// run runs a function in a worker that waits, or in a new one.
func (w workers) run(fn func()) {
	select {
	case w <- fn:
	default:
		go func() {
			for fn != nil {
				fn()
				select {
				case fn = <-w:
				case <-time.After(workerIdle):
					fn = nil
				}
			}
		}()
	}
}
