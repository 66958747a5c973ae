package mqtt

import (
	"errors"
	"slices"
)

// framer takes the bytes of a device apart into packets. It holds no more than one
// packet, of no more than the limit; the broker decodes what is whole.
type framer struct {
	limit     int
	head      [5]byte
	headLen   int    // bytes of head
	packet    []byte // the packet at hand, with its head
	remaining int    // bytes of it that have not come
	oversized bool   // it is too long, and dropped
}

var (
	errLength  = errors.New("the length of a packet is none")
	errTooLong = errors.New("a packet is too long")
)

// publish is the type of a packet that carries a message.
const publish = 3

// next takes p until a packet is whole, and tells how much of it was used. If none
// is, all of it was. A message that is too long is told of at once, since its end
// may never come; any other packet that is too long is an error. After one, the
// rest has no meaning.
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

// takeHead collects the type and the length of a packet.
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

// firstPiece is how much memory the head alone of a packet can ask for.
const initialCapacity = 4 << 10

// length is what a whole head says.
func length(head []byte) (n int) {
	for _, b := range slices.Backward(head[1:]) {
		n = n<<7 | int(b&0x7f)
	}
	return n
}

// take takes bytes of the packet at hand, and drops those that nobody needs.
func (f *framer) take(p []byte) (used int) {
	p = p[:min(len(p), f.remaining)]
	if !f.oversized {
		f.packet = append(f.packet, p...)
	}
	f.remaining -= len(p)
	return len(p)
}

// room is where bytes of the packet at hand can be read to, for came.
func (f *framer) space() []byte {
	if f.packet == nil {
		return nil
	}
	f.packet = slices.Grow(f.packet, min(f.remaining, initialCapacity))
	return f.packet[len(f.packet):min(cap(f.packet), len(f.packet)+f.remaining)]
}

// came tells how many bytes were read to room.
func (f *framer) advance(n int) {
	f.packet = f.packet[:len(f.packet)+n]
	f.remaining -= n
}
