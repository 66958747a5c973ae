//go:build unix

package mosquitto

import "syscall"

// Pause stops the process, which keeps its connections open and answers nothing, until
// Resume is called.
func (b *Broker) Pause() { b.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume ends Pause.
func (b *Broker) Resume() { b.cmd.Process.Signal(syscall.SIGCONT) }
