package program

import (
	"os/exec"
	"syscall"
)

// newGroup keeps signals for the gateway's console from the process.
func newGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// endGroup does nothing: Windows has no signal that asks a process to end.
func endGroup(*exec.Cmd) {}

// killGroup kills the process. What it started is not killed.
func killGroup(cmd *exec.Cmd) { cmd.Process.Kill() } // an error means that it is gone
