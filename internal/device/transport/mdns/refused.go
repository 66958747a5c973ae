package mdns

import (
	"net/netip"
	"slices"
)

// metadata are the addresses at which clouds give a machine its credentials. Those that
// are link-local are refused anyway.
var metadata = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("192.0.0.192"),     // Oracle
	netip.MustParseAddr("fd00:ec2::254"),   // Amazon
	netip.MustParseAddr("fd20:ce::254"),    // Google
}

// refused reports whether an announcement must not lead to an address, because only this
// machine can reach it or because no device can be there.
func refused(addr netip.Addr) bool {
	return addr.IsLoopback() || addr.IsUnspecified() || addr.IsMulticast() || addr.IsLinkLocalUnicast() ||
		addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || slices.Contains(metadata, addr)
}
