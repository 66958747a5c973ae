package mdns

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"time"
)

// name is a DNS name in message form: each label follows its length, without the
// final zero. Labels hold any bytes, including dots and spaces.
type name string

func makeName(labels ...string) name {
	var n strings.Builder
	for _, label := range labels {
		n.WriteByte(byte(len(label)))
		n.WriteString(label)
	}
	return name(n.String())
}

// key returns the name in lower case, for comparison. Length bytes are smaller than
// any letter and stay as they are.
func (n name) key() name {
	key := []byte(n)
	for i, b := range key {
		if b >= 'A' && b <= 'Z' {
			key[i] = b + 'a' - 'A'
		}
	}
	return name(key)
}

// first splits off the first label.
func (n name) first() (label string, rest name) {
	if n == "" {
		return "", ""
	}
	end := 1 + int(n[0])
	return string(n[1:end]), n[end:]
}

// text returns the labels joined by dots.
func (n name) text() string {
	var labels []string
	for n != "" {
		label, rest := n.first()
		labels, n = append(labels, label), rest
	}
	return strings.Join(labels, ".")
}

// The record types that discovery uses.
const (
	typeA    = 1
	typePTR  = 12
	typeTXT  = 16
	typeAAAA = 28
	typeSRV  = 33
)

// record is one resource record of a message.
type record struct {
	name name
	kind uint16
	// flush reports that it replaces older records of its name and type.
	flush  bool
	ttl    time.Duration
	target name // of a PTR or SRV
	port   uint16
	text   []string // of a TXT
	addr   netip.Addr
}

// The limits of a message.
const (
	maxPacket  = 9000 // from RFC 6762
	maxRecords = 256
	maxName    = 255
	maxJumps   = 16 // compression pointers in one name; a few are usual
)

var errMessage = errors.New("not an mDNS response")

// decode returns the records of a response that discovery uses. For a query it
// returns errMessage: this package answers none.
func decode(packet []byte) ([]record, error) {
	if len(packet) < 12 || len(packet) > maxPacket {
		return nil, errMessage
	}
	const response, opcode, code = 1 << 15, 0xf << 11, 0xf
	if flags := binary.BigEndian.Uint16(packet[2:]); flags&response == 0 || flags&(opcode|code) != 0 {
		return nil, errMessage
	}
	count := func(at int) int { return int(binary.BigEndian.Uint16(packet[at:])) }
	at := 12
	for range min(count(4), maxRecords) { // questions
		_, next, err := readName(packet, at)
		if err != nil || next+4 > len(packet) {
			return nil, errMessage
		}
		at = next + 4
	}
	var records []record
	for range min(count(6)+count(8)+count(10), maxRecords) {
		r, next, err := readRecord(packet, at)
		if err != nil {
			return nil, err
		}
		if at = next; r.kind != 0 {
			records = append(records, r)
		}
	}
	return records, nil
}

// readRecord returns the record at an offset, and the offset of the next one. A record
// that discovery does not use has no kind.
func readRecord(packet []byte, at int) (r record, next int, err error) {
	owner, at, err := readName(packet, at)
	if err != nil || at+10 > len(packet) {
		return record{}, 0, errMessage
	}
	kind, class := binary.BigEndian.Uint16(packet[at:]), binary.BigEndian.Uint16(packet[at+2:])
	ttl := time.Duration(binary.BigEndian.Uint32(packet[at+4:])) * time.Second
	size := int(binary.BigEndian.Uint16(packet[at+8:]))
	at += 10
	next = at + size
	if next > len(packet) {
		return record{}, 0, errMessage
	}
	const flush, internet = 1 << 15, 1
	if class&^flush != internet {
		return record{}, next, nil
	}
	r = record{name: owner, kind: kind, flush: class&flush != 0, ttl: ttl}
	data := packet[at:next]
	switch {
	case kind == typeA && size == 4, kind == typeAAAA && size == 16:
		r.addr, _ = netip.AddrFromSlice(data) // the length was checked
	case kind == typePTR:
		r.target, _, err = readName(packet[:next], at)
	case kind == typeSRV && size > 6:
		r.port = binary.BigEndian.Uint16(data[4:])
		r.target, _, err = readName(packet[:next], at+6)
	case kind == typeTXT:
		r.text, err = readText(data)
	default:
		return record{}, next, nil
	}
	return r, next, err
}

// readText returns the strings of a TXT record. Each follows its length.
func readText(data []byte) ([]string, error) {
	var text []string
	for len(data) > 0 {
		end := 1 + int(data[0])
		if end > len(data) {
			return nil, errMessage
		}
		text = append(text, string(data[1:end]))
		data = data[end:]
	}
	return text, nil
}

// readName returns the name at an offset, and the offset after it. A compression
// pointer continues the name earlier in the message. Each must point backwards and
// their number is limited, so the cost of a message is linear in its length.
func readName(packet []byte, at int) (n name, next int, err error) {
	var all []byte
	jumps := 0
	for lowest := at; ; {
		if at >= len(packet) {
			return "", 0, errMessage
		}
		switch size := int(packet[at]); {
		case size == 0:
			if next == 0 {
				next = at + 1
			}
			return name(all), next, nil
		case size < 64:
			if at+1+size > len(packet) || len(all)+1+size > maxName {
				return "", 0, errMessage
			}
			all = append(all, packet[at:at+1+size]...)
			at += 1 + size
		case size >= 0xc0 && at+1 < len(packet):
			to := (size&0x3f)<<8 | int(packet[at+1])
			if jumps++; to >= lowest || jumps > maxJumps {
				return "", 0, errMessage
			}
			if next == 0 {
				next = at + 2
			}
			lowest, at = to, to
		default:
			return "", 0, errMessage
		}
	}
}

// question asks for the records of one type of a name.
type question struct {
	name name
	kind uint16
}

// maxQuery is a message length that needs no fragmentation on any network.
const maxQuery = 1200

// encode packs questions into as few query messages as possible.
func encode(questions []question) (packets [][]byte) {
	var packet []byte
	for _, q := range questions {
		if packet == nil || len(packet)+len(q.name)+5 > maxQuery {
			packet = make([]byte, 12)
			packets = append(packets, nil)
		}
		binary.BigEndian.PutUint16(packet[4:], binary.BigEndian.Uint16(packet[4:])+1)
		packet = append(append(packet, q.name...), 0)
		packet = binary.BigEndian.AppendUint16(packet, q.kind)
		packet = binary.BigEndian.AppendUint16(packet, 1)
		packets[len(packets)-1] = packet
	}
	return packets
}
