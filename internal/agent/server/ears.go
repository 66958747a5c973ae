package server

import (
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Sampler tells of what devices measure. Fn is called with what asking a device brings
// from now on that is about a signal, or about any where it is empty, until stop is
// called. It does not block, and what it is called with is shared and read only.
type Sampler interface {
	Samples(device, signal string, fn func(ferrule.Reading)) (stop func())
}

// maxHeard is how many devices are listened to at once.
const maxHeard = 4096

// ears is the devices that are listened to: each once, however many agents want to
// hear of however many of its signals, until none does.
type ears struct {
	samples Sampler // nil if there is none
	heard   func(device string, r ferrule.Reading)

	// Samples and stop are called with mu held: heard must not need it, nor may who
	// calls begin or end hold what heard needs.
	mu  sync.Mutex
	all map[string]*ear // by device
}

// ear is one of them.
type ear struct {
	wanted int // by so many
	stop   func()
}

// possible tells whether anything can be heard of.
func (e *ears) possible() bool { return e.samples != nil }

// begin listens to a device, unless it is listened to. What has begun must end.
func (e *ears) begin(device string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if one := e.all[device]; one != nil {
		one.wanted++
		return nil
	}
	if len(e.all) >= maxHeard {
		return ferrule.Errorf(ferrule.Limited, "agents hear of what %d devices measure; more are not possible", len(e.all))
	}
	stop := e.samples.Samples(device, "", func(r ferrule.Reading) { e.heard(device, r) })
	e.all[device] = &ear{1, stop}
	return nil
}

// end tells that one fewer wants to hear of a device.
func (e *ears) end(device string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	one := e.all[device]
	if one == nil {
		return
	}
	if one.wanted--; one.wanted == 0 {
		delete(e.all, device)
		one.stop()
	}
}

// measured has those told who have subscribed to a signal that a device has measured.
func (f *Server) measured(device string, r ferrule.Reading) {
	if _, _, known := f.parts.Catalog.Lookup(device); !known {
		return // agents may not know of it any more
	}
	for _, v := range f.viewsOf(device) {
		for i := range r.Batches {
			v.subscriptions.touch(signalURI(device, r.Batches[i].Signal))
		}
	}
}

// viewsOf are the views at which a device is to be seen.
func (f *Server) viewsOf(device string) []*view {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := []*view{f.views[""]}
	if alone := f.views[device]; alone != nil {
		of = append(of, alone)
	}
	return of
}
