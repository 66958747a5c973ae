//go:build race

package template

// slack is how much slower and larger the race detector makes everything.
const slack = 20
