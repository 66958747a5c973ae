package mdns

import "syscall"

// bindTo restricts a socket to one interface. Without it, Linux delivers each
// packet to every socket, which costs time and nothing else; so a failure, as on
// old kernels, is ignored.
func bindTo(fd uintptr, name string) { syscall.BindToDevice(int(fd), name) }
