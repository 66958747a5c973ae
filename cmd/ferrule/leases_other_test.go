//go:build !linux

package main

// dialed is a command of tests that run on Linux only.
func dialed() {}
