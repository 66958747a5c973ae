//go:build race

package api

// slower is how many times slower the race detector makes a test, at most.
const slower = 10
