//go:build !linux

package natscluster

import "os/exec"

// killWithParent does nothing: only Linux can do it.
func killWithParent(*exec.Cmd) {}
