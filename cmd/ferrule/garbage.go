package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// What the process may have of garbage, in percent of what is in use, while that
// is small, and otherwise.
const (
	small     = 16 << 20
	whenSmall = 400
	otherwise = 100 // as Go has it
)

// allowGarbage has garbage collected less often while the process is small. The SDK
// makes 130 to 270 KB of it at each call of an agent; to collect it takes two fifths
// of the processor time of a call, and most of that is saved for a dozen megabytes.
// A process with thousands of agents would pay hundreds of megabytes for it, and is
// left as it is. So is one whose environment has GOGC set.
func allowGarbage() {
	if os.Getenv("GOGC") == "" {
		allowAfterEach(otherwise)
	}
}

// allowAfterEach sets how much garbage there may be, now and after each collection.
func allowAfterEach(percent int) {
	inUse := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(inUse)
	want := otherwise
	if inUse[0].Value.Uint64() < small {
		want = whenSmall
	}
	if want != percent {
		debug.SetGCPercent(want) // stops the process for a moment
	}
	// This is garbage at once, and collected with the rest.
	runtime.AddCleanup(new(sentinel), allowAfterEach, want)
}

// sentinel is something that is collected.
type sentinel struct{ _ [64]byte }
