package mqtt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/inbound"
)

// link is a device that has dialled in. Whoever calls Recv reads its packets, and
// has the broker answer them.
type link struct {
	*inbound.Socket
	broker *broker
	client *mochi.Client // what the broker knows about the connection

	// What follows is known once the device has said it.

	address   string
	clientID  string
	topic     string
	keepalive time.Duration

	// What follows is of whoever reads.

	framer    framer
	buffer    [256]byte // what was read
	pending   []byte    // what of it is not taken apart
	deadline  time.Time // when the device is given up; zero if never
	published *[]byte   // what it has just published
	err       error     // why nothing can be received any more
}

// Info implements wire.Link.
func (l *link) Info() transport.Info { return transport.Info{Transport: Name, Address: l.address} }

// ClientID is the client id that the device connected with.
func (l *link) ClientID() string { return l.clientID }

// Recv implements wire.Link.
func (l *link) Recv(ctx context.Context) (transport.Message, error) {
	defer l.InterruptOn(ctx)()
	l.resetDeadline()
	for l.err == nil {
		packet, err := l.packet(ctx)
		switch {
		case err == nil:
			l.err = l.broker.handle(l, packet)
		case errors.Is(err, transport.ErrTooLong):
			l.Note(fmt.Sprintf("dropped: %v: more than %d bytes", err, l.framer.limit))
			return transport.Message{}, err
		case err == ctx.Err():
			return transport.Message{}, l.Reason(err)
		default:
			l.err = err
		}
		if l.published != nil {
			m := transport.Message{Data: *l.published}
			l.published = nil
			l.Trace(transport.In, m, "")
			return m, nil
		}
	}
	return transport.Message{}, l.Reason(l.err)
}

// listen gives the device its time if nobody has listened for a while.
func (l *link) resetDeadline() {
	if now := time.Now(); l.keepalive > 0 && l.deadline.Before(now) {
		l.deadline = now.Add(l.maxSilence())
	}
}

// patience is how long the device may say nothing: as long as it has promised,
// and half of that.
func (l *link) maxSilence() time.Duration { return l.keepalive * 3 / 2 }

// packet waits for the next packet, or for a message that is too long.
func (l *link) packet(ctx context.Context) ([]byte, error) {
	for {
		used, packet, dropped, err := l.framer.next(l.pending)
		l.pending = l.pending[used:]
		switch {
		case err != nil:
			return nil, fmt.Errorf("the device does not keep to the protocol: %w", err)
		case dropped:
			return nil, transport.ErrTooLong
		case packet != nil:
			if l.keepalive > 0 {
				l.deadline = time.Now().Add(l.maxSilence())
			}
			return packet, nil
		}
		if err := l.read(ctx); err != nil {
			return nil, err
		}
	}
}

// read waits for more bytes. Those of a long packet go where they belong at once.
func (l *link) read(ctx context.Context) (err error) {
	l.pending = nil
	n := 0
	if room := l.framer.space(); len(room) > len(l.buffer) {
		n, err = l.Read(ctx, room, l.deadline)
		l.framer.advance(n)
	} else {
		n, err = l.Read(ctx, l.buffer[:], l.deadline)
		l.pending = l.buffer[:n]
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		l.End(inbound.ErrSilent)
		return inbound.ErrSilent
	}
	return err
}

// Send implements wire.Link. The device need not have subscribed to anything.
func (l *link) Send(ctx context.Context, m transport.Message) error {
	if m.Channel != "" {
		return fmt.Errorf("%w: there is no channel %q on MQTT", transport.ErrUnsent, m.Channel)
	}
	packet, err := l.encode(m.Data)
	if err != nil {
		return fmt.Errorf("%w: %w", transport.ErrUnsent, err)
	}
	return l.Socket.Send(ctx, m, packet)
}

// encode makes a PUBLISH of data, which nobody confirms.
func (l *link) encode(data []byte) ([]byte, error) {
	packet := packets.Packet{
		ProtocolVersion: l.client.Properties.ProtocolVersion, FixedHeader: packets.FixedHeader{Type: packets.Publish},
		TopicName: l.topic, Payload: data,
	}
	var out bytes.Buffer
	out.Grow(len(l.topic) + len(data) + 16)
	if err := packet.PublishEncode(&out); err != nil {
		return nil, err
	}
	if most := l.client.Properties.Props.MaximumPacketSize; most > 0 && out.Len() > int(most) {
		return nil, fmt.Errorf("the device takes no more than %d bytes", most)
	}
	return out.Bytes(), nil
}

// socket is the connection as the broker sees it: it reads the packet that is
// whole, and answers. Everything else is done by the link.
type socket struct {
	net.Conn
	link  *link
	whole []byte
}

// Read implements net.Conn.
func (s *socket) Read(p []byte) (int, error) {
	if len(s.whole) == 0 {
		return 0, errShort
	}
	n := copy(p, s.whole)
	s.whole = s.whole[n:]
	return n, nil
}

// errShort is why the broker cannot read on: the packet said that it is longer.
var errShort = errors.New("a packet is shorter than it says")

// Write implements net.Conn.
func (s *socket) Write(p []byte) (int, error) {
	if err := s.link.WriteControl(p); err != nil {
		return 0, err
	}
	return len(p), nil
}
