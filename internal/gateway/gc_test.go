package gateway

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestTuneGC checks that GOGC is high while the heap is small, and the default otherwise, and
// that a process which is idle gives memory back.
func TestTuneGC(t *testing.T) {
	if os.Getenv("FERRULE_TEST_ALONE") == "" { // other tests make the heap of this process large
		cmd := exec.Command(os.Args[0], "-test.run=^TestTuneGC$")
		cmd.Env = append(os.Environ(), "FERRULE_TEST_ALONE=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	metric := func(name string) uint64 {
		sample := []metrics.Sample{{Name: name}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	tuneGC(50 * time.Millisecond)
	becomes := func(want uint64) {
		t.Helper()
		wait.For(t, "GOGC changes", func() bool {
			runtime.GC()
			return metric("/gc/gogc:percent") == want
		})
	}
	becomes(SmallHeapGOGC)
	used := make([]byte, 10<<20)
	becomes(defaultGOGC)
	runtime.KeepAlive(used)
	used = make([]byte, 2*maxIdleHeap)
	becomes(defaultGOGC)
	runtime.KeepAlive(used)
	used = nil
	becomes(SmallHeapGOGC)
	wait.For(t, "memory is given back", func() bool {
		return metric("/memory/classes/heap/free:bytes") < minFree && metric("/memory/classes/heap/released:bytes") > 60<<20
	})
	wait.For(t, "only the test collects, as there is little to give back", func() bool {
		before := metric("/gc/cycles/forced:gc-cycles")
		runtime.GC()
		time.Sleep(300 * time.Millisecond)
		return metric("/gc/cycles/forced:gc-cycles") == before+1
	})
}

// TestGOGC checks how much garbage a heap may have.
func TestGOGC(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 3 << 20: 400, 4 << 20: 400, 5 << 20: 300, 6 << 20: 200, 8 << 20: 150, 10 << 20: 100, 19 << 20: 100, 1 << 40: 100} {
		if got := gogc(live); got != want {
			t.Errorf("%d bytes: got %d, want %d", live, got, want)
		}
	}
}
