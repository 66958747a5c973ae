package terminal

import "syscall"

const getTermios, setTermios = syscall.TCGETS, syscall.TCSETS

// flushTermios is TCSETSF: it also drops unread input.
const flushTermios = syscall.TCSETS + 2
