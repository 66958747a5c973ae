//go:build unix && !linux

package terminal

import "syscall"

const getTermios, setTermios = syscall.TIOCGETA, syscall.TIOCSETA

// flushTermios also drops unread input.
const flushTermios = syscall.TIOCSETAF
