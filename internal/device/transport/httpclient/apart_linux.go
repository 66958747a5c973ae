package httpclient

import "syscall"

// apart has a socket hear what came to one interface only. Otherwise each hears what came
// to any of them, and everything is read as often as there are sockets. It works without,
// as on old kernels, only with more work.
func apart(fd uintptr, name string) { syscall.BindToDevice(int(fd), name) }
