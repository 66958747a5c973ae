package gateway

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// The garbage that the process may have, in percent of the live heap: SmallHeapGOGC below
// smallHeap bytes, largeHeapGOGC above largeHeap bytes. In between it is less than the
// largest small heap may have.
const (
	SmallHeapGOGC  = 400
	mediumHeapGOGC = 200
	largeHeapGOGC  = 100 // Go's default
	smallHeap      = 8 << 20
	largeHeap      = 16 << 20
)

// TuneGC collects garbage less often while the heap is small. The MCP SDK allocates 130
// to 270 KB for each call of an agent; collecting it takes two fifths of the processor
// time of a call, and a dozen megabytes of heap save most of that. A process with
// thousands of agents would need hundreds of megabytes, so it keeps Go's default. GOGC
// in the environment turns this off.
func TuneGC() {
	if os.Getenv("GOGC") == "" {
		tuneAfterEach(largeHeapGOGC)
	}
}

// tuneAfterEach sets GOGC by the size of the live heap, now and after each collection.
func tuneAfterEach(percent int) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	want := largeHeapGOGC
	switch heap := live[0].Value.Uint64(); {
	case heap < smallHeap:
		want = SmallHeapGOGC
	case heap < largeHeap:
		want = mediumHeapGOGC
	}
	if want != percent {
		debug.SetGCPercent(want) // stops the process for a moment
	}
	// The sentinel is garbage at once, so its cleanup runs with the next collection.
	runtime.AddCleanup(new(sentinel), tuneAfterEach, want)
}

type sentinel struct{ _ [64]byte }
