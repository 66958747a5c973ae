package websocket

import (
	"bytes"
	"slices"

	"github.com/gobwas/ws"
)

// decoder decodes the frames of a device. It holds at most one message, up to the
// limit.
//
// gobwas/ws parses and checks headers. The decoder keeps the state between reads,
// because a Recv can end in the middle of a frame.
type decoder struct {
	limit  int
	client bool // the device was dialed, so its frames are not masked

	head      [ws.MaxHeaderSize]byte
	headLen   int       // bytes in head
	inFrame   bool      // the header of a frame was read
	header    ws.Header // of the current frame
	remaining int64     // payload bytes of the frame that are missing
	received  int       // payload bytes of the frame that came, for the mask

	message   ws.OpCode // of the current message; zero if there is none
	data      []byte    // of the current message
	oversized bool      // the current message is too long and dropped
	size      int64     // of the current message, if it is dropped
	control   []byte    // payload of the current control frame
}

// event is a decoded message or control frame.
type event struct {
	kind eventKind
	data []byte // of a text; of a control frame it is valid until the next event
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

// next decodes p up to the next event and returns how many bytes it used. If the event
// is nothing, it used all of p. After an error the decoder must not be used again.
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

// takeHeader collects the bytes of a header and parses it once it is complete.
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

// headerSize returns the length of a header, as far as its first bytes determine it.
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

// beginFrame starts a frame. It reports a message that is too long at once, because its
// end may never come.
func (d *decoder) beginFrame() event {
	if d.header.OpCode.IsControl() {
		d.control = d.control[:0]
		return event{}
	}
	if d.message == 0 {
		d.message, d.data, d.oversized, d.size = d.header.OpCode, nil, false, 0
	}
	if d.message == ws.OpText && !d.oversized && d.remaining > int64(d.limit-len(d.data)) { // their sum could overflow
		d.oversized, d.data = true, nil
		return event{kind: tooLong}
	}
	return event{}
}

// initialCapacity bounds the memory that a header alone can allocate.
const initialCapacity = 4 << 10

// takePayload consumes bytes of the current frame, and drops those of messages that are
// not kept.
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

// unmask appends p to data, unmasked.
func (d *decoder) unmask(data, p []byte) []byte {
	n := len(data)
	data = append(data, p...)
	if d.header.Masked {
		ws.Cipher(data[n:], d.header.Mask, d.received%4)
	}
	return data
}

// endFrame returns the event of a complete frame.
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
