package main

import (
	"net"
	"os"
)

// writable tells nothing: what a list of access says is known when a file is
// made, and nothing is made here.
func writable(string) error { return nil }

// owner is not told: users have no number here.
func owner(os.FileInfo) (uid int, ok bool) { return 0, false }

// peerOf is not told here.
func peerOf(*net.UnixConn) int { return 0 }
