//go:build !bench

package policy

// quiet reports whether the tests may take long and measure: .ci/ratios runs them on a quiet
// machine.
const quiet = false
