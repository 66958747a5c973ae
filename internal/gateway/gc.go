package gateway

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Garbage is collected when the heap has heapTarget bytes, or has doubled, whichever is later:
// a small heap would be collected a hundred times a second, and a large one needs no more
// garbage than by Go's default.
const (
	heapTarget    = uint64(20 << 20)
	SmallHeapGOGC = 400 // the most, in percent of the live heap
	defaultGOGC   = 100
	gogcStep      = 50 // each change stops the process for a moment
)

// A process that has not collected for idleDelay gives memory back to the system if it does
// not use minFree bytes or more.
const (
	idleDelay   = 5 * time.Second
	minFree     = 4 << 20
	maxIdleHeap = 64 << 20 // live; a larger heap takes long to collect
)

// TuneGC sets when garbage is collected, by the size of the live heap, and gives memory back
// after a load. GOGC in the environment turns both off.
func TuneGC() {
	if os.Getenv("GOGC") == "" {
		tuneGC(idleDelay)
	}
}

func tuneGC(idle time.Duration) {
	t := &tuner{percent: defaultGOGC, idle: idle, timer: time.AfterFunc(idle, debug.FreeOSMemory)}
	t.collected()
	t.timer.Reset(idle) // for the garbage of starting
}

// tuner tunes the collector after each collection.
type tuner struct {
	percent int
	idle    time.Duration
	timer   *time.Timer
}

// collected handles the end of a collection.
func (t *tuner) collected() {
	live, unused := heap()
	if want := gogc(live); want != t.percent {
		t.percent = want
		debug.SetGCPercent(want)
	}
	if live < maxIdleHeap && unused >= minFree {
		t.timer.Reset(t.idle)
	} else {
		t.timer.Stop()
	}
	// The sentinel is garbage at once, so its cleanup runs with the next collection.
	runtime.AddCleanup(new(sentinel), (*tuner).collected, t)
}

type sentinel struct{ _ [64]byte }

// gogc returns the garbage that a heap may have, in percent of what is live.
func gogc(live uint64) int {
	percent := 100 * (heapTarget - min(live, heapTarget)) / max(live, 1)
	return int(min(max(percent/gogcStep*gogcStep, defaultGOGC), SmallHeapGOGC))
}

// heap returns the size of what was live at the last collection, and how much memory is not
// used and not given back, with garbage that is not swept yet.
func heap() (live, unused uint64) {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(s)
	live, objects := s[0].Value.Uint64(), s[1].Value.Uint64()
	return live, objects - min(objects, live) + s[2].Value.Uint64()
}
