package server

import "os"

// Standard returns standard input and output.
func Standard() (in, out *os.File) { return os.Stdin, os.Stdout }
