//go:build !linux

package doctor

// Only Linux shows other processes as files.

func commandOf(string, int) string                 { return "" }
func lockHolder(string, string) (pid int, ok bool) { return 0, false }
func portHolder(string, int) process               { return process{} }
