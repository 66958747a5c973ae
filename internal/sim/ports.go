package sim

import (
	"fmt"
	"net"
)

// ports are the listeners of the devices.
type ports []net.Listener

// listen opens one port per device. What names the device in errors.
func listen(cfg Config, what string) (all ports, err error) {
	addr, err := net.ResolveTCPAddr("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", cfg.Addr, err)
	}
	for n := range cfg.Count {
		ln, err := net.ListenTCP("tcp", addr)
		if err != nil {
			all.close()
			return nil, fmt.Errorf("%s %d of %d: %w", what, n+1, cfg.Count, err)
		}
		all = append(all, ln)
		if addr.Port != 0 {
			addr.Port++
		}
	}
	return all, nil
}

// Addrs returns the addresses of the devices.
func (p ports) Addrs() []string {
	var addrs []string
	for _, ln := range p {
		addrs = append(addrs, ln.Addr().String())
	}
	return addrs
}

func (p ports) close() {
	for _, ln := range p {
		ln.Close()
	}
}
