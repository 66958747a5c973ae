//go:build !bench

package policy

// quiet reports whether the machine is quiet enough for limits in microseconds.
const quiet = false
