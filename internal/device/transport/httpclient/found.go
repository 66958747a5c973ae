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
)

// facts are what matters of what a device says about itself in its announcement.
// Firmware differs in what it says, and all of it may be a lie.
type facts struct {
	path string // of its endpoint; empty if it does not say
	id   string // of the hardware; empty if it does not say
	// socket is the port of its WebSocket; zero if it does not say. HTTP is
	// what is used: with a session, and with a token if need be.
	socket uint16
}

// maxID is the length of the longest id that a device may give itself.
const maxID = 128

// readFacts reads a text: keys and values, of which the first of a key counts.
func readFacts(text []string) (f facts) {
	said := make(map[string]string)
	for _, pair := range text {
		key, value, _ := strings.Cut(pair, "=")
		key = strings.ToLower(key)
		if _, again := said[key]; !again {
			said[key] = value
		}
	}
	for _, key := range []string{"path", "endpoint"} {
		if f.path = cleanPath(said[key]); f.path != "" {
			break
		}
	}
	if mac, err := transport.ParseMAC(said["mac"]); err == nil {
		f.id = mac
	}
	if usn := said["usn"]; usn != "" && len(usn) <= maxID && !strings.ContainsFunc(usn, notID) {
		f.id = usn
	}
	if port, err := strconv.ParseUint(said["ws_port"], 10, 16); err == nil {
		f.socket = uint16(port)
	}
	return f
}

// notID tells whether a character cannot stand in an id. People copy addresses into
// a shell; and those that are made of names have an @, so that no id is like one.
func notID(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:", r))
}

// cleanPath is a path as it can stand in a URL; empty if it is none.
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

// endpoint is where a device that was found answers.
func (f found) endpoint() endpoint {
	at := endpoint{scheme: "http", path: f.text.path}
	if at.path == "" {
		at.path = DefaultPath
	}
	for _, a := range f.addrs {
		at.targets = append(at.targets, netip.AddrPortFrom(a, f.port))
	}
	at.host = at.targets[0].String()
	return at
}

// addresses are by what the hardware can be told apart: the id that it gives itself,
// or its names. A network address changes. That of hardware which is met in another
// way, and perhaps trusted there, cannot be taken by an announcement: it begins otherwise.
func (f found) addresses() []string {
	label, _ := f.name.first()
	names := scheme + escape(label) + "@" + escape(f.host.text())
	if first, _ := f.service.first(); first != "_mcp" {
		names += escape(first)
	}
	if len(names) > maxNames {
		names = fmt.Sprintf("%s-%x", names[:maxNames-17], sha256.Sum256([]byte(names)))[:maxNames]
	}
	if f.text.id == "" {
		return []string{names}
	}
	return []string{scheme + f.text.id, names}
}

// maxNames is the length of the longest address that is made of names.
const maxNames = 80

// scheme begins the address of whatever was found.
const scheme = "mdns:"

// text is a name with dots.
func (n name) text() string {
	var labels []string
	for n != "" {
		label, rest := n.first()
		labels, n = append(labels, label), rest
	}
	return strings.Join(labels, ".")
}

// escape puts what is neither letter nor digit of ASCII into hexadecimal, and keeps
// what names have in common.
func escape(s string) string {
	var out strings.Builder
	for _, b := range []byte(name(s).key()) {
		if b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || strings.IndexByte("-_.", b) >= 0 {
			out.WriteByte(b)
		} else {
			fmt.Fprintf(&out, "%%%02x", b)
		}
	}
	return out.String()
}

// title is what an instance calls itself, for people.
func (f found) title() string {
	label, _ := f.name.first()
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, label)
}

// isAmong tells whether what was found is what the owner gave a URL of. Asked is what there
// are URLs of, by host and port.
func (f found) isAmong(asked map[string][]endpoint) bool {
	for _, hostport := range f.places(f.port) {
		for _, at := range asked[hostport] {
			if at.socket() || f.text.path == "" || f.text.path == at.path {
				return true
			}
		}
	}
	if f.text.socket == 0 {
		return false
	}
	for _, hostport := range f.places(f.text.socket) {
		if slices.ContainsFunc(asked[hostport], endpoint.socket) {
			return true
		}
	}
	return false
}

// places is where it is, by its name and by its addresses, each with a port.
func (f found) places(port uint16) []string {
	all := []string{net.JoinHostPort(strings.ToLower(f.host.text()), strconv.Itoa(int(port)))}
	for _, a := range f.addrs {
		all = append(all, netip.AddrPortFrom(a, port).String())
	}
	return all
}
