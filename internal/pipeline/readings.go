package pipeline

import (
	"sync/atomic"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// isReading reports whether the gateway itself calls a tool to measure something.
// Readings are frequent and nobody is accountable for them, so they are counted
// and not journaled. They always reach the device: they neither use the cache nor
// fill it. A reading with a tool that may change something drops cached answers
// like any other call.
func isReading(call *ferrule.Call) bool {
	return call.Principal.Role == ferrule.Gateway && call.Operation == ferrule.CallTool && !call.Urgent
}

// readings counts readings.
type readings struct{ all, failed atomic.Uint64 }

// add counts a reading and returns its error as a [ferrule.Error].
func (r *readings) add(err error) error {
	r.all.Add(1)
	if err == nil {
		return nil
	}
	r.failed.Add(1)
	return ferrule.AsError(err)
}

func (r *readings) count(s *Stats) {
	s.Readings, s.ReadingsFailed = r.all.Load(), r.failed.Load()
}
