package pipeline

import (
	"sync/atomic"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// isReading tells whether the gateway calls a tool by itself, to know what the device
// measures. There are very many such calls, and nobody has to answer for them: they are
// counted, and not journaled. The device is asked each time, so what is kept of it is
// neither used nor added to; a tool that may change something drops it, as ever.
func isReading(call *ferrule.Call) bool {
	return call.Principal.Role == ferrule.Gateway && call.Operation == ferrule.CallTool
}

// readings counts them.
type readings struct{ all, failed atomic.Uint64 }

// add counts a reading that has ended, and returns its error as one with a meaning.
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
