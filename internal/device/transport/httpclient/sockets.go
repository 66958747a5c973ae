package httpclient

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// groups are where mDNS is spoken.
var groups = map[string]*net.UDPAddr{
	"udp4": {IP: net.IPv4(224, 0, 0, 251), Port: 5353},
	"udp6": {IP: net.ParseIP("ff02::fb"), Port: 5353},
}

// maxSockets bounds how many there are, on a machine with very many networks.
const maxSockets = 64

// maxPackets is how many messages are read from a socket in pace. Whoever sends more
// is not listened to.
const (
	maxPackets = 200
	pace       = 100 * time.Millisecond
)

// sockets listen on every network of the machine. Networks come and go, so they are
// looked at again and again.
type sockets struct {
	take func(packet []byte, zone string)

	open    map[where]*net.UDPConn
	reading sync.WaitGroup

	mu     sync.Mutex
	onLink []netip.Prefix // the networks that the machine is on
}

// where a socket listens. On an interface that has other addresses than before, what
// it sends would come from an address that is not there any more.
type where struct{ network, name, addresses string }

func newSockets(take func(packet []byte, zone string)) *sockets {
	return &sockets{take: take, open: make(map[where]*net.UDPConn)}
}

// refresh listens where it does not yet, and tells whether there is such a place. The
// error says why nothing can be listened to at all.
func (s *sockets) refresh() (more bool, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return false, err
	}
	there := make(map[where]bool)
	onLink := []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10")}
	var failed error
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagMulticast == 0 {
			continue
		}
		for network, prefixes := range networksOf(i) {
			at := where{network, fmt.Sprint(i.Name, i.Index), fmt.Sprint(prefixes)}
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

// networksOf are the addresses of an interface, by the protocol.
func networksOf(i net.Interface) map[string][]netip.Prefix {
	addrs, _ := i.Addrs() // it may have gone
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

// listen joins the group on an interface. What is sent is also heard on this machine,
// where devices may be, too.
func listen(network string, i *net.Interface) (*net.UDPConn, error) {
	conn, err := net.ListenMulticastUDP(network, i, groups[network])
	if err != nil {
		return nil, err
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			loopback(fd, network)
			apart(fd, i.Name)
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
		if err == nil && from.Port() == 5353 && s.near(from.Addr()) {
			s.take(packet[:n], from.Addr().Zone())
		}
		if count++; count < maxPackets {
			continue
		}
		time.Sleep(pace - time.Since(began))
		began, count = time.Now(), 0
	}
}

// near tells whether an address is on a network of this machine: what came from
// farther away was not multicast.
func (s *sockets) near(addr netip.Addr) bool {
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

// send sends a message on every network. One that is going away does not matter.
func (s *sockets) send(packet []byte) {
	for at, conn := range s.open {
		conn.SetWriteDeadline(time.Now().Add(time.Second))
		conn.WriteToUDP(packet, groups[at.network])
	}
}

// close ends all, and waits for it.
func (s *sockets) close() {
	for _, conn := range s.open {
		conn.Close()
	}
	s.reading.Wait()
}
