//go:build race

package condition

const raceEnabled = true
