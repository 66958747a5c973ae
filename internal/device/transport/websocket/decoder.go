package websocket

import (
	"bytes"
	"slices"

	"github.com/gobwas/ws"
)

// decoder takes the bytes of a device apart. It holds no more than one message,
// and of that no more than the limit.
//
// gobwas/ws tells what a header says and whether it may; what is half read when
// a Recv ends has to be kept here.
type decoder struct {
	limit  int
	client bool // the device was dialled, and what it sends is not masked

	head      [ws.MaxHeaderSize]byte
	headLen   int       // bytes of head
	inFrame   bool      // there is a frame at hand
	header    ws.Header // of it
	remaining int64     // bytes of its payload that have not come
	received  int       // bytes that have, for the mask

	message   ws.OpCode // of the message at hand; zero if there is none
	data      []byte    // of it
	oversized bool      // it is too long, and dropped
	size      int64     // of it, if it is dropped
	control   []byte    // of the control frame at hand
}

// event is what a decoder has found.
type event struct {
	kind eventKind
	data []byte // of text, and of a control frame until the next is decoded
	size int64  // of a binary message
}

type eventKind byte

const (
	nothing eventKind = iota // more bytes are needed
	text
	binary
	tooLong
	ping
	pong
	closing
)

// next decodes p until something is found, and tells how much of it was used. If
// nothing is, all of it was. After an error the rest has no meaning.
func (d *decoder) next(p []byte) (used int, e event, err error) {
	for {
		if !d.inFrame {
			n, whole, err := d.takeHeader(p[used:])
			used += n
			if err != nil || !whole {
				return used, event{}, err
			}
			if e := d.beginFrame(); e.kind != nothing {
				return used, e, nil
			}
		}
		used += d.takePayload(p[used:])
		if d.remaining > 0 {
			return used, event{}, nil
		}
		d.inFrame = false
		if e := d.endFrame(); e.kind != nothing {
			return used, e, nil
		}
	}
}

// takeHeader collects the bytes of a header, and reads it once it is whole.
func (d *decoder) takeHeader(p []byte) (used int, whole bool, err error) {
	for need := headerSize(d.head[:d.headLen]); d.headLen < need; need = headerSize(d.head[:d.headLen]) {
		if used == len(p) {
			return used, false, nil
		}
		n := copy(d.head[d.headLen:need], p[used:])
		d.headLen += n
		used += n
	}
	header, err := ws.ReadHeader(bytes.NewReader(d.head[:d.headLen]))
	if err != nil {
		return used, false, err
	}
	state := ws.StateServerSide
	if d.client {
		state = ws.StateClientSide
	}
	if d.message != 0 {
		state = state.Set(ws.StateFragmented)
	}
	if err := ws.CheckHeader(header, state); err != nil {
		return used, false, err
	}
	d.headLen, d.inFrame, d.header, d.remaining, d.received = 0, true, header, header.Length, 0
	return used, true, nil
}

// headerSize is how long a header is, as far as its first bytes tell.
func headerSize(head []byte) int {
	if len(head) < ws.MinHeaderSize {
		return ws.MinHeaderSize
	}
	size := ws.MinHeaderSize
	switch head[1] & 0x7f {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	if head[1]&0x80 != 0 {
		size += 4 // the mask
	}
	return size
}

// begin looks at a header. A message that is too long is told of at once: its end
// may never come.
func (d *decoder) beginFrame() event {
	if d.header.OpCode.IsControl() {
		d.control = d.control[:0]
		return event{}
	}
	if d.message == 0 {
		d.message, d.data, d.oversized, d.size = d.header.OpCode, nil, false, 0
	}
	if d.message == ws.OpText && !d.oversized && d.remaining > int64(d.limit-len(d.data)) { // their sum may be no number
		d.oversized, d.data = true, nil
		return event{kind: tooLong}
	}
	return event{}
}

// firstPiece is how much memory the header alone of a message can ask for.
const initialCapacity = 4 << 10

// takePayload takes the bytes of the frame at hand, and drops those that nobody
// needs.
func (d *decoder) takePayload(p []byte) (used int) {
	p = p[:min(int64(len(p)), d.remaining)]
	switch {
	case d.header.OpCode.IsControl():
		d.control = d.unmask(d.control, p)
	case d.message == ws.OpText && !d.oversized:
		if d.data == nil {
			d.data = slices.Grow(d.data, int(min(d.remaining, initialCapacity)))
		}
		d.data = d.unmask(d.data, p)
	default:
		d.size += int64(len(p))
	}
	d.remaining -= int64(len(p))
	d.received += len(p)
	return len(p)
}

// unmask appends p to data.
func (d *decoder) unmask(data, p []byte) []byte {
	n := len(data)
	data = append(data, p...)
	ws.Cipher(data[n:], d.header.Mask, d.received%4)
	return data
}

// end tells what a whole frame was.
func (d *decoder) endFrame() event {
	switch d.header.OpCode {
	case ws.OpPing:
		return event{kind: ping, data: d.control}
	case ws.OpPong:
		return event{kind: pong}
	case ws.OpClose:
		return event{kind: closing, data: d.control}
	}
	if !d.header.Fin {
		return event{}
	}
	message, data, over := d.message, d.data, d.oversized
	d.message, d.data, d.oversized = 0, nil, false
	switch {
	case message == ws.OpBinary:
		return event{kind: binary, size: d.size}
	case over:
		return event{}
	}
	return event{kind: text, data: data}
}
