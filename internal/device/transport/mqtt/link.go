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

// link is the Link to a connected device. Recv reads its packets and lets the broker
// answer them.
type link struct {
	*inbound.Socket
	broker *broker
	client *mochi.Client // the broker's state of the connection

	// The following fields are set by the CONNECT.

	address   string
	clientID  string
	topic     string
	keepalive time.Duration

	// The following fields belong to the reader.

	framer    framer
	buffer    [256]byte // small reads
	pending   []byte    // bytes that are read and not framed
	deadline  time.Time // when a silent device is given up; zero if never
	published *[]byte   // the message of the current packet
	err       error     // why nothing can be received anymore
}

// Info implements transport.Link.
func (l *link) Info() transport.Info { return transport.Info{Transport: Name, Address: l.address} }

// ClientID returns the client ID of the device.
func (l *link) ClientID() string { return l.clientID }

// Recv implements transport.Link.
func (l *link) Recv(ctx context.Context) (transport.Message, error) {
	defer l.InterruptOn(ctx)()
	l.resetDeadline()
	for l.err == nil {
		packet, err := l.packet(ctx)
		switch {
		case err == nil:
			l.err = l.broker.handle(l, packet)
		case errors.Is(err, transport.ErrTooLong):
			l.Note(fmt.Sprintf("dropped: %v: limit is %d bytes", err, l.framer.limit))
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

// resetDeadline restarts the keep-alive time if Recv was not called for a while.
func (l *link) resetDeadline() {
	if now := time.Now(); l.keepalive > 0 && l.deadline.Before(now) {
		l.deadline = now.Add(l.maxSilence())
	}
}

// maxSilence returns how long the device may be silent: 1.5 times its keep-alive, as
// MQTT demands.
func (l *link) maxSilence() time.Duration { return l.keepalive * 3 / 2 }

// packet returns the next packet, or ErrTooLong for a message that is too long.
func (l *link) packet(ctx context.Context) ([]byte, error) {
	for {
		used, packet, dropped, err := l.framer.next(l.pending)
		l.pending = l.pending[used:]
		switch {
		case err != nil:
			return nil, fmt.Errorf("the device violates the MQTT protocol: %w", err)
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

// read waits for more bytes. Those of a long packet are read directly into it.
func (l *link) read(ctx context.Context) (err error) {
	l.pending = nil
	n := 0
	if space := l.framer.space(); len(space) > len(l.buffer) {
		n, err = l.Read(ctx, space, l.deadline)
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

// Send implements transport.Link. The device needs no subscription.
func (l *link) Send(ctx context.Context, m transport.Message) error {
	if m.Channel != "" {
		return fmt.Errorf("%w: unknown MQTT channel %q", transport.ErrUnsent, m.Channel)
	}
	packet, err := l.encode(m.Data)
	if err != nil {
		return fmt.Errorf("%w: %w", transport.ErrUnsent, err)
	}
	return l.Socket.Send(ctx, m, packet)
}

// encode returns data as a PUBLISH with QoS 0.
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
	if limit := l.client.Properties.Props.MaximumPacketSize; limit > 0 && out.Len() > int(limit) {
		return nil, fmt.Errorf("packet too long: limit of the device is %d bytes", limit)
	}
	return out.Bytes(), nil
}

// socket is the connection as the broker sees it: it reads one complete packet and
// writes answers. The link does everything else.
type socket struct {
	net.Conn
	link   *link
	packet []byte
}

// Read implements net.Conn.
func (s *socket) Read(p []byte) (int, error) {
	if len(s.packet) == 0 {
		return 0, errShort
	}
	n := copy(p, s.packet)
	s.packet = s.packet[n:]
	return n, nil
}

// errShort means that the broker wants more bytes than the packet has.
var errShort = errors.New("packet is shorter than its fields")

// Write implements net.Conn.
func (s *socket) Write(p []byte) (int, error) {
	if err := s.link.WriteControl(p); err != nil {
		return 0, err
	}
	return len(p), nil
}
