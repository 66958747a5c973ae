//go:build !race

package policy

// raceEnabled reports whether the race detector is on.
const raceEnabled = false
