package server

import "os"

// Standard is standard input and output.
func Standard() (in, out *os.File) { return os.Stdin, os.Stdout }
