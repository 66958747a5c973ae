package mqtt

import (
	"errors"
	"slices"
)

// framer splits the bytes of a device into packets. It holds at most one packet, up to
// the limit.
type framer struct {
	limit     int
	head      [5]byte
	headLen   int    // bytes in head
	packet    []byte // the current packet with its head
	remaining int    // bytes of the packet that are missing
	oversized bool   // the packet is too long and dropped
}

var (
	errLength  = errors.New("invalid packet length")
	errTooLong = errors.New("packet too long")
)

// publish is the type of a PUBLISH packet, which carries a message.
const publish = 3

// next consumes p up to the end of a packet and returns how many bytes it used. If no
// packet is complete, it used all of p. It reports a message that is too long as
// dropped at once, because its end may never come. Any other packet that is too long is
// an error. After an error the framer must not be used again.
func (f *framer) next(p []byte) (used int, packet []byte, dropped bool, err error) {
	for {
		if f.remaining == 0 && f.packet == nil {
			n, whole, err := f.takeHead(p[used:])
			used += n
			if err != nil || !whole {
				return used, nil, false, err
			}
			if f.oversized {
				return used, nil, true, nil
			}
		}
		used += f.take(p[used:])
		if f.remaining > 0 {
			return used, nil, false, nil
		}
		if packet, f.packet = f.packet, nil; packet != nil {
			return used, packet, false, nil
		}
	}
}

// takeHead collects the fixed header: the type and the length of a packet.
func (f *framer) takeHead(p []byte) (used int, whole bool, err error) {
	for f.headLen < 2 || f.head[f.headLen-1]&0x80 != 0 {
		if f.headLen == len(f.head) {
			return used, false, errLength
		}
		if used == len(p) {
			return used, false, nil
		}
		f.head[f.headLen] = p[used]
		f.headLen++
		used++
	}
	head := f.head[:f.headLen]
	f.headLen, f.remaining = 0, length(head)
	if f.oversized = len(head)+f.remaining > f.limit; !f.oversized {
		f.packet = append(make([]byte, 0, len(head)+min(f.remaining, initialCapacity)), head...)
	} else if head[0]>>4 != publish {
		return used, false, errTooLong
	}
	return used, true, nil
}

// initialCapacity bounds the memory that a fixed header alone can allocate.
const initialCapacity = 4 << 10

// length returns the length in a complete fixed header.
func length(head []byte) (n int) {
	for _, b := range slices.Backward(head[1:]) {
		n = n<<7 | int(b&0x7f)
	}
	return n
}

// take consumes bytes of the current packet, and drops those of an oversized one.
func (f *framer) take(p []byte) (used int) {
	p = p[:min(len(p), f.remaining)]
	if !f.oversized {
		f.packet = append(f.packet, p...)
	}
	f.remaining -= len(p)
	return len(p)
}

// space returns a buffer to read bytes of the current packet into, for advance.
func (f *framer) space() []byte {
	if f.packet == nil {
		return nil
	}
	f.packet = slices.Grow(f.packet, min(f.remaining, initialCapacity))
	return f.packet[len(f.packet):min(cap(f.packet), len(f.packet)+f.remaining)]
}

// advance adds n bytes that were read into space.
func (f *framer) advance(n int) {
	f.packet = f.packet[:len(f.packet)+n]
	f.remaining -= n
}
