//go:build !race

package check_test

// raceEnabled reports whether the race detector slows everything down.
const raceEnabled = false
