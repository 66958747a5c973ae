// Package figure holds limits of times, ratios and memory in tests. They depend on the
// machine as much as on the code. So the gate does not decide by them: it logs them, and
// .ci/measure, which has a quiet machine, sets FERRULE_TEST_MEASURE and fails on them.
package figure

import (
	"cmp"
	"os"
	"testing"
)

// Measuring reports whether limits of figures decide about a test.
func Measuring() bool { return os.Getenv("FERRULE_TEST_MEASURE") != "" }

// Only skips a test that shows nothing but figures.
func Only(t testing.TB) {
	t.Helper()
	if !Measuring() {
		t.Skip("only .ci/measure runs this")
	}
}

// AtMost logs a figure and its limit. If limits decide, it fails a test whose figure is
// above the limit.
func AtMost[T cmp.Ordered](t testing.TB, what string, got, limit T) {
	t.Helper()
	t.Logf("figure: %s: %v, limit %v", what, got, limit)
	if Measuring() && got > limit {
		t.Errorf("%s: %v is above the limit of %v", what, got, limit)
	}
}
