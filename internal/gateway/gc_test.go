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

// TestTuneGC checks that GOGC is high while the heap is small, and the default otherwise.
func TestTuneGC(t *testing.T) {
	if os.Getenv("FERRULE_TEST_ALONE") == "" { // other tests make the heap of this process large
		cmd := exec.Command(os.Args[0], "-test.run=^TestTuneGC$")
		cmd.Env = append(os.Environ(), "FERRULE_TEST_ALONE=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	t.Setenv("GOGC", "")
	TuneGC()
	becomes := func(want uint64) {
		t.Helper()
		wait.For(t, 10*time.Second, "GOGC changes", func() bool {
			runtime.GC()
			percent := []metrics.Sample{{Name: "/gc/gogc:percent"}}
			metrics.Read(percent)
			return percent[0].Value.Uint64() == want
		})
	}
	becomes(SmallHeapGOGC)
	used := make([]byte, smallHeap)
	becomes(mediumHeapGOGC)
	runtime.KeepAlive(used)
	used = make([]byte, 2*largeHeap)
	becomes(largeHeapGOGC)
	runtime.KeepAlive(used)
	becomes(SmallHeapGOGC)
}
