//go:build unix && !linux

package terminal

import "syscall"

const getTermios, setTermios = syscall.TIOCGETA, syscall.TIOCSETA
