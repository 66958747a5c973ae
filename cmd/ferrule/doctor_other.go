//go:build !linux

package main

// Of other processes only Linux tells in files.

func commandOf(string, int) string                 { return "" }
func lockHolder(string, string) (pid int, ok bool) { return 0, false }
func portHolder(string, int) program               { return program{} }
