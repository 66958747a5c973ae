package mdns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// groups are the multicast groups of mDNS, by network.
var groups = map[string]*net.UDPAddr{
	"udp4": {IP: net.IPv4(224, 0, 0, 251), Port: 5353},
	"udp6": {IP: net.ParseIP("ff02::fb"), Port: 5353},
}

// maxSockets bounds the sockets of a machine with very many networks.
const maxSockets = 64

// A socket reads at most maxPackets messages per pace; the kernel drops the rest.
const (
	maxPackets = 200
	pace       = 100 * time.Millisecond
)

// sockets listens on every network of the machine. Networks come and go, so refresh
// is called every few seconds.
type sockets struct {
	receive func(packet []byte)

	open    map[socketKey]*net.UDPConn
	reading sync.WaitGroup

	mu     sync.Mutex
	onLink []netip.Prefix // the networks that the machine is on
}

// socketKey identifies a socket. It includes the addresses of the interface: after
// they change, an old socket would send from an address that is gone.
type socketKey struct{ network, name, addresses string }

func newSockets(receive func(packet []byte)) *sockets {
	return &sockets{receive: receive, open: make(map[socketKey]*net.UDPConn)}
}

// refresh opens and closes sockets to match the networks, and reports whether it
// opened any. It returns an error only if no network can be listened on.
func (s *sockets) refresh() (more bool, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return false, err
	}
	there := make(map[socketKey]bool)
	onLink := []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10")}
	var failed error
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagMulticast == 0 {
			continue
		}
		for network, prefixes := range networksOf(i) {
			at := socketKey{network, fmt.Sprint(i.Name, i.Index), fmt.Sprint(prefixes)}
			onLink = append(onLink, prefixes...)
			if there[at] = true; s.open[at] != nil || len(s.open) >= maxSockets {
				continue
			}
			conn, err := listen(network, &i)
			if err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			more = true
			s.open[at] = conn
			s.reading.Go(func() { s.read(conn) })
		}
	}
	for at, conn := range s.open {
		if !there[at] {
			conn.Close()
			delete(s.open, at)
		}
	}
	s.mu.Lock()
	s.onLink = onLink
	s.mu.Unlock()
	if len(s.open) > 0 {
		failed = nil
	}
	return more, failed
}

// networksOf returns the addresses of an interface, by network.
func networksOf(i net.Interface) map[string][]netip.Prefix {
	addrs, _ := i.Addrs() // the interface may be gone
	networks := make(map[string][]netip.Prefix)
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		network := "udp6"
		if prefix.Addr().Is4() {
			network = "udp4"
		}
		networks[network] = append(networks[network], prefix)
	}
	return networks
}

// listen joins the multicast group on an interface. Queries also reach this machine,
// because devices may run on it.
func listen(network string, i *net.Interface) (*net.UDPConn, error) {
	conn, err := net.ListenMulticastUDP(network, i, groups[network])
	if err != nil {
		return nil, err
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			setMulticast(fd, network)
			bindTo(fd, i.Name)
		})
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// read reads messages until the socket is closed.
func (s *sockets) read(conn *net.UDPConn) {
	packet := make([]byte, maxPacket)
	began, count := time.Now(), 0
	for {
		n, from, err := conn.ReadFromUDPAddrPort(packet)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && from.Port() == 5353 && s.isLocal(from.Addr()) {
			s.receive(packet[:n])
		}
		if count++; count < maxPackets {
			continue
		}
		time.Sleep(pace - time.Since(began))
		began, count = time.Now(), 0
	}
}

// isLocal reports whether an address is on a network of this machine. A packet from
// anywhere else was not multicast.
func (s *sockets) isLocal(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.onLink {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// send sends a message on every network. Errors are ignored: a network may just be
// going away.
func (s *sockets) send(packet []byte) {
	for at, conn := range s.open {
		conn.SetWriteDeadline(time.Now().Add(time.Second))
		conn.WriteToUDP(packet, groups[at.network])
	}
}

// close closes all sockets and waits for their readers.
func (s *sockets) close() {
	for _, conn := range s.open {
		conn.Close()
	}
	s.reading.Wait()
}
