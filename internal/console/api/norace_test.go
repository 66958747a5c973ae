//go:build !race

package api

const slower = 1
