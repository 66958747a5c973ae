package localca

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// machine is where a certificate is made, and when.
type machine struct {
	host      string // without a domain
	full      string // host name as the system has it
	addresses []netip.Addr
	now       time.Time
}

// here returns this machine.
func here() machine {
	full, _ := os.Hostname()
	full = strings.ToLower(full)
	host, _, _ := strings.Cut(full, ".")
	m := machine{host: cmp.Or(host, "ferrule"), full: full, now: time.Now()}
	interfaces, _ := net.InterfaceAddrs() // without them, the names are left
	for _, a := range interfaces {
		if network, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(network.IP); ok {
				m.addresses = append(m.addresses, ip.Unmap())
			}
		}
	}
	return m
}

// names returns the names and addresses of a machine in its local network, and those it
// has for itself. Public addresses are left out: the owner names them, if need be.
func (m machine) names() nameSet {
	s := nameSet{}
	for _, name := range []string{m.host + ".local", m.full, m.host} {
		if dnsName.MatchString(name) && len(name) <= maxName {
			s.dns = append(s.dns, name)
		}
	}
	s.dns = append(s.dns, "localhost")
	s.ips = append(m.lan(), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"))
	return nameSet{}.with(s)
}

// lan returns the addresses of a machine in its local network.
func (m machine) lan() (ips []netip.Addr) {
	for _, ip := range m.addresses {
		if !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && isLocal(ip) {
			ips = append(ips, ip)
		}
	}
	return ips
}

// reachable returns the name or address that other machines are most likely to reach: one
// that was given, else an address, because not every network resolves names.
func (m machine) reachable(given nameSet) string {
	for _, name := range given.strings() {
		return name
	}
	for _, ip := range m.lan() {
		if ip.Is4() {
			return ip.String()
		}
	}
	return m.names().dns[0]
}

// The names and addresses of local networks. CGNAT addresses are those of VPNs.
var (
	localDomains = []string{"localhost", "local", "home.arpa", "internal"}
	localRanges  = prefixes("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "::1/128", "fc00::/7", "fe80::/10")
)

func prefixes(all ...string) (out []netip.Prefix) {
	for _, p := range all {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func isLocal(ip netip.Addr) bool {
	return slices.ContainsFunc(localRanges, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// limits returns what a new CA may sign for: local networks, this machine and given
// names.
func limits(m machine, given nameSet) (dns []string, ips []*net.IPNet) {
	all := nameSet{dns: slices.Clone(localDomains)}.with(nameSet{dns: m.names().dns}).with(given)
	for _, name := range all.dns {
		if !strings.HasSuffix(name, ".local") { // covered
			dns = append(dns, name)
		}
	}
	ranges := slices.Clone(localRanges)
	for _, ip := range given.ips {
		if !isLocal(ip) {
			ranges = append(ranges, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	for _, p := range ranges {
		ips = append(ips, &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())})
	}
	return dns, ips
}

// permitted reports whether a CA may sign for a name or an address. A CA without limits
// may sign for all.
func permitted(root *x509.Certificate, name string) bool {
	if ip := net.ParseIP(name); ip != nil {
		return len(root.PermittedIPRanges) == 0 || slices.ContainsFunc(root.PermittedIPRanges, func(n *net.IPNet) bool { return n.Contains(ip) })
	}
	return len(root.PermittedDNSDomains) == 0 || slices.ContainsFunc(root.PermittedDNSDomains, func(domain string) bool {
		return name == domain || strings.HasSuffix(name, "."+domain)
	})
}

// nameSet are the names of a certificate.
type nameSet struct {
	dns []string
	ips []netip.Addr
}

var dnsName = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// maxName is the length of the longest host name.
const maxName = 253

// parseNames reads host names and addresses.
func parseNames(names []string) (s nameSet, err error) {
	for _, name := range names {
		ip, err := netip.ParseAddr(name)
		switch name = strings.ToLower(name); {
		case err == nil && ip.Zone() == "" && !ip.IsUnspecified():
			s.ips = append(s.ips, ip.Unmap())
		case err != nil && dnsName.MatchString(name) && len(name) <= maxName:
			s.dns = append(s.dns, name)
		default:
			return s, fmt.Errorf("--name must be a host name or an address, such as ferrule.home.arpa or 192.168.1.10, got %q", name)
		}
	}
	return nameSet{}.with(s), nil
}

// namesOf returns the names of a certificate.
func namesOf(c *x509.Certificate) nameSet {
	s := nameSet{dns: c.DNSNames}
	for _, ip := range c.IPAddresses {
		if addr, ok := netip.AddrFromSlice(ip); ok {
			s.ips = append(s.ips, addr.Unmap())
		}
	}
	return s
}

// with returns the names of both, without duplicates.
func (s nameSet) with(other nameSet) nameSet {
	out := nameSet{slices.Clone(s.dns), slices.Clone(s.ips)}
	for _, name := range other.dns {
		if !slices.Contains(out.dns, name) {
			out.dns = append(out.dns, name)
		}
	}
	for _, ip := range other.ips {
		if !slices.Contains(out.ips, ip) {
			out.ips = append(out.ips, ip)
		}
	}
	return out
}

// only returns the names that keep reports true for.
func (s nameSet) only(keep func(name string) bool) (out nameSet) {
	for _, name := range s.dns {
		if keep(name) {
			out.dns = append(out.dns, name)
		}
	}
	for _, ip := range s.ips {
		if keep(ip.String()) {
			out.ips = append(out.ips, ip)
		}
	}
	return out
}

func (s nameSet) strings() []string {
	out := slices.Clone(s.dns)
	for _, ip := range s.ips {
		out = append(out, ip.String())
	}
	return out
}

func (s nameSet) netIPs() (out []net.IP) {
	for _, ip := range s.ips {
		out = append(out, ip.AsSlice())
	}
	return out
}
