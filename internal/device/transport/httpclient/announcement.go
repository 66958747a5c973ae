package httpclient

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/mdns"
)

// textKeys are the keys of a TXT record that are used. Firmware differs in what it
// announces.
var textKeys = []string{"path", "endpoint", "mac", "usn", "ws_port"}

// announcement is an announced device: the service, and its TXT record parsed. All
// of it may be lies.
type announcement struct {
	mdns.Service
	path string // of the endpoint; empty if it is not announced
	id   string // of the hardware; empty if it is not announced
	// socketPort is the port of a WebSocket; zero if it is not announced. HTTP is
	// preferred: it has sessions and tokens.
	socketPort uint16
}

// maxID is the length of the longest announced hardware ID.
const maxID = 128

func parseAnnouncement(s mdns.Service) announcement {
	a := announcement{Service: s}
	for _, key := range []string{"path", "endpoint"} {
		if a.path = cleanPath(s.Text[key]); a.path != "" {
			break
		}
	}
	if mac, err := transport.ParseMAC(s.Text["mac"]); err == nil {
		a.id = mac
	}
	if usn := s.Text["usn"]; usn != "" && len(usn) <= maxID && !strings.ContainsFunc(usn, invalidInID) {
		a.id = usn
	}
	if port, err := strconv.ParseUint(s.Text["ws_port"], 10, 16); err == nil {
		a.socketPort = uint16(port)
	}
	return a
}

// invalidInID reports whether a character cannot be part of an ID. People paste
// addresses into a shell. Addresses made of names hold an @, so an ID may not.
func invalidInID(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:", r))
}

// cleanPath returns the path of a URL, or an empty string if path is not one.
func cleanPath(path string) string {
	if path == "" {
		return ""
	}
	if path[0] != '/' {
		path = "/" + path
	}
	u, err := url.ParseRequestURI(path)
	if err != nil || u.Host != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.EscapedPath() != path || strings.HasPrefix(path, "//") {
		return ""
	}
	return path
}

// endpoint returns the endpoint of the device.
func (a announcement) endpoint() endpoint {
	at := endpoint{scheme: "http", path: a.path}
	if at.path == "" {
		at.path = DefaultPath
	}
	for _, addr := range a.Addrs {
		at.targets = append(at.targets, netip.AddrPortFrom(addr, a.Port))
	}
	at.host = at.targets[0].String()
	return at
}

// addresses returns the addresses that identify the hardware, best first: its ID if
// it announces one, then its names. A network address can change. The prefix keeps
// an announcement from taking the address of a device on another transport, which
// may be trusted.
func (a announcement) addresses() []string {
	names := addressPrefix + escape(a.Instance) + "@" + escape(a.Host)
	if first, _, _ := strings.Cut(a.Type, "."); first != "_mcp" {
		names += escape(first)
	}
	if len(names) > maxNames {
		names = fmt.Sprintf("%s-%x", names[:maxNames-17], sha256.Sum256([]byte(names)))[:maxNames]
	}
	if a.id == "" {
		return []string{names}
	}
	return []string{addressPrefix + a.id, names}
}

// maxNames is the length of the longest address made of names.
const maxNames = 80

// addressPrefix starts the address of every discovered device.
const addressPrefix = "mdns:"

// escape returns s in lower case, with every byte except ASCII letters, digits and
// "-_." as hexadecimal.
func escape(s string) string {
	var out strings.Builder
	for _, b := range []byte(s) {
		if b >= 'A' && b <= 'Z' {
			b += 'a' - 'A'
		}
		if b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || strings.IndexByte("-_.", b) >= 0 {
			out.WriteByte(b)
		} else {
			fmt.Fprintf(&out, "%%%02x", b)
		}
	}
	return out.String()
}

// title returns the name of the instance, fit to be shown.
func (a announcement) title() string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, a.Instance)
}

// isAmong reports whether the device is one of the configured endpoints, which are
// given by host and port.
func (a announcement) isAmong(configured map[string][]endpoint) bool {
	for _, hostport := range a.hostports(a.Port) {
		for _, at := range configured[hostport] {
			if at.socket() || a.path == "" || strings.TrimSuffix(a.path, "/") == strings.TrimSuffix(at.path, "/") {
				return true
			}
		}
	}
	if a.socketPort == 0 {
		return false
	}
	for _, hostport := range a.hostports(a.socketPort) {
		if slices.ContainsFunc(configured[hostport], endpoint.socket) {
			return true
		}
	}
	return false
}

// hostports returns the host name and the addresses, each with a port.
func (a announcement) hostports(port uint16) []string {
	all := []string{net.JoinHostPort(strings.ToLower(a.Host), strconv.Itoa(int(port)))}
	for _, addr := range a.Addrs {
		all = append(all, netip.AddrPortFrom(addr, port).String())
	}
	return all
}
