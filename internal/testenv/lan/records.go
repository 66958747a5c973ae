//go:build linux

package lan

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"
)

// PublishFor announces a device on a host name of its own, with a given TTL, until the
// test ends. The TTL of avahi-publish is fixed at two minutes.
func (l *LAN) PublishFor(ttl time.Duration, name, host string, at netip.AddrPort, path string) {
	l.t.Helper()
	g, err := newGroup()
	if err != nil {
		l.t.Fatalf("avahi: %v", err)
	}
	l.t.Cleanup(func() { g.Close() })
	text := "path=" + path
	for _, r := range []record{
		{host + ".local", typeA, at.Addr().AsSlice()},
		{name + "._mcp._tcp.local", typeSRV, append(binary.BigEndian.AppendUint16(make([]byte, 4), at.Port()), dnsName(host, "local")...)},
		{name + "._mcp._tcp.local", typeTXT, append([]byte{byte(len(text))}, text...)},
		{"_mcp._tcp.local", typePTR, dnsName(name, "_mcp", "_tcp", "local")},
	} {
		if err == nil {
			err = g.add(r, ttl)
		}
	}
	if err == nil {
		_, err = g.call(g.path, "EntryGroup", "Commit", "", nil)
	}
	if err != nil {
		l.t.Fatalf("avahi: publishing %s: %v", name, err)
	}
}

// The record types, and avahi's flag for a unique record.
const (
	typeA, typePTR, typeTXT, typeSRV = 1, 12, 16, 33

	unique = 1
)

// record is a DNS record.
type record struct {
	name string
	kind uint16
	data []byte
}

// dnsName returns a name in record form.
func dnsName(labels ...string) []byte {
	var name []byte
	for _, label := range labels {
		name = append(append(name, byte(len(label))), label...)
	}
	return append(name, 0)
}

// group is an avahi entry group: records that are announced while the connection is
// open. It implements only the part of D-Bus that this needs.
type group struct {
	net.Conn
	in     *bufio.Reader
	serial uint32
	path   string
}

func newGroup() (*group, error) {
	conn, err := net.Dial("unix", busSocket)
	if err != nil {
		return nil, err
	}
	g := &group{Conn: conn, in: bufio.NewReader(conn), path: "/"}
	if err := g.begin(); err != nil {
		conn.Close()
		return nil, err
	}
	return g, nil
}

// begin authenticates and creates the entry group.
func (g *group) begin() error {
	g.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(g, "\x00AUTH EXTERNAL %x\r\n", fmt.Sprint(os.Getuid()))
	if line, err := g.in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "OK") {
		return fmt.Errorf("D-Bus answered %q, %v", line, err)
	}
	fmt.Fprint(g, "BEGIN\r\n")
	if _, err := g.exchange("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus", "Hello", "", nil); err != nil {
		return err
	}
	path, err := g.call("/", "Server", "EntryGroupNew", "", nil)
	if err != nil {
		return err
	}
	if len(path) < 5 {
		return fmt.Errorf("entry group without a path: %q", path)
	}
	g.path = string(path[4 : len(path)-1])
	return nil
}

// add adds a record to the group.
func (g *group) add(r record, ttl time.Duration) error {
	var flags uint32
	if r.kind != typePTR {
		flags = unique
	}
	var body packet
	body.number(^uint32(0)) // every interface
	body.number(^uint32(0)) // IPv4 and IPv6
	body.number(flags)
	body.text(r.name)
	body = binary.LittleEndian.AppendUint16(body.pad(2), 1) // class IN
	body = binary.LittleEndian.AppendUint16(body, r.kind)
	body.number(uint32(ttl / time.Second))
	body.number(uint32(len(r.data)))
	_, err := g.call(g.path, "EntryGroup", "AddRecord", "iiusqquay", append(body, r.data...))
	return err
}

// call calls a method of avahi.
func (g *group) call(path, object, method, signature string, body []byte) ([]byte, error) {
	const avahi = "org.freedesktop.Avahi"
	return g.exchange(path, avahi, avahi+"."+object, method, signature, body)
}

// The D-Bus message types.
const (
	methodCall, methodReturn, methodError = 1, 2, 3
)

// exchange sends a method call and waits for its result.
func (g *group) exchange(path, to, object, method, signature string, body []byte) ([]byte, error) {
	g.serial++
	out := packet{'l', methodCall, 0, 1}
	out.number(uint32(len(body)))
	out.number(g.serial)
	out.number(0) // length of the fields, set below
	out.field(1, 'o', path)
	out.field(2, 's', object)
	out.field(3, 's', method)
	out.field(6, 's', to)
	if signature != "" {
		out.field(8, 'g', signature)
	}
	binary.LittleEndian.PutUint32(out[12:], uint32(len(out)-16))
	if _, err := g.Write(append(out.pad(8), body...)); err != nil {
		return nil, err
	}
	for {
		kind, body, err := g.receive()
		switch {
		case err != nil:
			return nil, err
		case kind == methodError:
			return nil, fmt.Errorf("%s failed: %q", method, body)
		case kind == methodReturn:
			return body, nil
		} // skip signals
	}
}

// receive reads a message.
func (g *group) receive() (kind byte, body []byte, err error) {
	var head [16]byte
	if _, err := io.ReadFull(g.in, head[:]); err != nil {
		return 0, nil, err
	}
	if head[0] != 'l' {
		return 0, nil, fmt.Errorf("unexpected byte order: %q", head)
	}
	fields := (binary.LittleEndian.Uint32(head[12:]) + 7) &^ 7
	rest := make([]byte, fields+binary.LittleEndian.Uint32(head[4:]))
	_, err = io.ReadFull(g.in, rest)
	return head[1], rest[fields:], err
}

// packet is an encoded D-Bus message: each value is aligned to its size.
type packet []byte

func (w packet) pad(size int) packet {
	for len(w)%size != 0 {
		w = append(w, 0)
	}
	return w
}

func (w *packet) number(n uint32) { *w = binary.LittleEndian.AppendUint32(w.pad(4), n) }

func (w *packet) text(s string) {
	w.number(uint32(len(s)))
	*w = append(append(*w, s...), 0)
}

// field appends a header field: its code, type and value.
func (w *packet) field(code, typ byte, value string) {
	*w = append(w.pad(8), code, 1, typ, 0)
	if typ == 'g' {
		*w = append(append(append(*w, byte(len(value))), value...), 0)
		return
	}
	w.text(value)
}
