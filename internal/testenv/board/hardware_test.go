//go:build linux

package board_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/testenv/board"
)

// TestHardware runs the tests of thing/hardware that need simulated hardware. In the guest, none
// of them may be skipped.
func TestHardware(t *testing.T) {
	kernel := os.Getenv("FERRULE_TEST_BOARD")
	if kernel == "" {
		t.Skip("set FERRULE_TEST_BOARD to the folder of a kernel; see README.md")
	}
	program := filepath.Join(t.TempDir(), "hardware.test")
	build := exec.Command("go", "test", "-c", "-trimpath", "-ldflags=-s -w", "-o", program, "github.com/ferrulehq/ferrule/thing/hardware")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the tests: %v\n%s", err, out)
	}
	g := board.Boot(t, kernel, map[string]string{"bin/hardware.test": program}, "pwm-pca9685", "spi-sink", "mac80211_hwsim", "w1_therm", "w1-sim", "i2c-sim")
	names := strings.Fields(g.Do("hardware.test -test.list '^TestKernel'"))
	if len(names) < 9 {
		t.Errorf("only %q need simulated hardware", names)
	}
	for _, name := range names {
		t.Run(strings.TrimPrefix(name, "TestKernel"), func(t *testing.T) {
			out, code := g.At(t).Run("hardware.test -test.v -test.run '^" + name + "$' 2>&1")
			if code != 0 || !strings.Contains(out, "--- PASS: "+name+" ") {
				t.Errorf("exit code %d\n%s", code, out)
			}
		})
	}
}
