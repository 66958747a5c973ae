//go:build !linux

package mdns

// bindTo does nothing: only Linux delivers packets of all interfaces to a socket.
func bindTo(uintptr, string) {}
