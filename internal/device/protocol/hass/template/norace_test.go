//go:build !race

package template

// slack is 1 without the race detector.
const slack = 1
