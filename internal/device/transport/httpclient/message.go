package httpclient

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"time"
)

// name is a name of DNS as it stands in a message: each label after its length,
// without the end. Labels are any bytes, and dots and spaces among them.
type name string

func makeName(labels ...string) name {
	var n strings.Builder
	for _, label := range labels {
		n.WriteByte(byte(len(label)))
		n.WriteString(label)
	}
	return name(n.String())
}

// key is the same for names that are. Lengths are below the letters.
func (n name) key() name {
	key := []byte(n)
	for i, b := range key {
		if b >= 'A' && b <= 'Z' {
			key[i] = b + 'a' - 'A'
		}
	}
	return name(key)
}

// first is the first label, and the rest.
func (n name) first() (label string, rest name) {
	if n == "" {
		return "", ""
	}
	end := 1 + int(n[0])
	return string(n[1:end]), n[end:]
}

// The types of records that matter here.
const (
	typeA    = 1
	typePTR  = 12
	typeTXT  = 16
	typeAAAA = 28
	typeSRV  = 33
)

// record is one of the records in a message of mDNS.
type record struct {
	name name
	kind uint16
	// flush tells that it is in place of older ones with its name and type.
	flush  bool
	ttl    time.Duration
	target name // of a PTR or SRV
	port   uint16
	text   []string // of a TXT
	addr   netip.Addr
}

// What a message is held to.
const (
	maxPacket  = 9000 // as the protocol has it
	maxRecords = 256
	maxName    = 255
	maxJumps   = 16 // in one name; a few are usual
)

var errMessage = errors.New("no answer of mDNS")

// decode reads the records of an answer that matter here. A question is errMessage,
// too: nobody is answered here.
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

// readRecord reads one record, and tells where the next begins. A record that does
// not matter here has no kind.
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
		r.addr, _ = netip.AddrFromSlice(data) // it has the length
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

// readText reads strings, each after its length.
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

// readName reads a name, and tells where it ends. Parts of it may stand earlier in
// the message. Each such jump goes back, and there are few, so that a message costs no
// more than its length.
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

// question asks for the records of a name that have a type.
type question struct {
	name name
	kind uint16
}

// maxQuery is the length of a message that passes every network in one piece.
const maxQuery = 1200

// encode makes messages of questions.
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
