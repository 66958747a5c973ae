package main

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

// TestAllowGarbage: a small process may have much garbage, until it is not small,
// and again when it is.
func TestAllowGarbage(t *testing.T) {
	if os.Getenv("FERRULE_TEST_ALONE") == "" { // other tests leave things behind: this process is not small
		cmd := exec.Command(os.Args[0], "-test.run=^TestAllowGarbage$")
		cmd.Env = append(os.Environ(), "FERRULE_TEST_ALONE=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	t.Setenv("GOGC", "")
	allowGarbage()
	becomes := func(want uint64) {
		t.Helper()
		eventually(t, 10*time.Second, "the percentage is the other", func() bool {
			runtime.GC()
			percent := []metrics.Sample{{Name: "/gc/gogc:percent"}}
			metrics.Read(percent)
			return percent[0].Value.Uint64() == want
		})
	}
	becomes(whenSmall)
	used := make([]byte, 2*small)
	becomes(otherwise)
	runtime.KeepAlive(used)
	becomes(whenSmall)
}
