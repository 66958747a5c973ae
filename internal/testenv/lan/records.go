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

// PublishFor has avahi announce a device on a host of its own, with records that last
// for a time: avahi-publish has no such setting, and what it announces lasts for two
// minutes. They are announced until the test ends.
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
		l.t.Fatalf("avahi, about %s: %v", name, err)
	}
}

// The types of records, and the flag of one that nobody else may have.
const (
	typeA, typePTR, typeTXT, typeSRV = 1, 12, 16, 33

	unique = 1
)

// record is a record of DNS.
type record struct {
	name string
	kind uint16
	data []byte
}

// dnsName is a name as it stands in a record.
func dnsName(labels ...string) []byte {
	var name []byte
	for _, label := range labels {
		name = append(append(name, byte(len(label))), label...)
	}
	return append(name, 0)
}

// group is records that avahi announces for as long as the connection is there. What is
// here of D-Bus is what that takes.
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

// begin says who it is, and asks for a group.
func (g *group) begin() error {
	g.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(g, "\x00AUTH EXTERNAL %x\r\n", fmt.Sprint(os.Getuid()))
	if line, err := g.in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "OK") {
		return fmt.Errorf("the bus says %q, %v", line, err)
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
		return fmt.Errorf("a group without a path: %q", path)
	}
	g.path = string(path[4 : len(path)-1])
	return nil
}

// add puts a record into the group.
func (g *group) add(r record, ttl time.Duration) error {
	var flags uint32
	if r.kind != typePTR {
		flags = unique
	}
	var body packet
	body.number(^uint32(0)) // on every interface
	body.number(^uint32(0)) // of either protocol
	body.number(flags)
	body.text(r.name)
	body = binary.LittleEndian.AppendUint16(body.pad(2), 1) // of the Internet
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

// The types of messages on the bus.
const (
	methodCall, methodReturn, methodError = 1, 2, 3
)

// exchange sends a call, and waits for what it returns.
func (g *group) exchange(path, to, object, method, signature string, body []byte) ([]byte, error) {
	g.serial++
	out := packet{'l', methodCall, 0, 1}
	out.number(uint32(len(body)))
	out.number(g.serial)
	out.number(0) // bytes of the fields, once they are known
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
			return nil, fmt.Errorf("%s is refused: %q", method, body)
		case kind == methodReturn:
			return body, nil
		} // else it is a signal
	}
}

// receive reads a message.
func (g *group) receive() (kind byte, body []byte, err error) {
	var head [16]byte
	if _, err := io.ReadFull(g.in, head[:]); err != nil {
		return 0, nil, err
	}
	if head[0] != 'l' {
		return 0, nil, fmt.Errorf("a message of another machine: %q", head)
	}
	fields := (binary.LittleEndian.Uint32(head[12:]) + 7) &^ 7
	rest := make([]byte, fields+binary.LittleEndian.Uint32(head[4:]))
	_, err = io.ReadFull(g.in, rest)
	return head[1], rest[fields:], err
}

// packet is a message as it is written: each value at a multiple of its size.
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

// field is one of the head: its code, its type and its value.
func (w *packet) field(code, typ byte, value string) {
	*w = append(w.pad(8), code, 1, typ, 0)
	if typ == 'g' {
		*w = append(append(append(*w, byte(len(value))), value...), 0)
		return
	}
	w.text(value)
}
