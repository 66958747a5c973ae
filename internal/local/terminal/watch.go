package terminal

import (
	"os"
	"slices"
)

// Watch returns a function that reports whether the terminal on which this process was
// started has been closed. The kernel then sends SIGHUP too, and a gateway that went on
// would be one that its user cannot see.
func Watch(files ...*os.File) (closed func() bool) {
	onTerminal := func() bool {
		return slices.ContainsFunc(files, func(f *os.File) bool { _, _, ok := Size(f); return ok })
	}
	if !onTerminal() {
		return func() bool { return false }
	}
	return func() bool { return !onTerminal() }
}
