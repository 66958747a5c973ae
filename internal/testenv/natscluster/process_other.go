//go:build !linux

package natscluster

import "os/exec"

// dieWithUs does nothing: only Linux can promise it.
func dieWithUs(*exec.Cmd) {}
