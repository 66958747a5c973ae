package xiaozhi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

// What firmware uses if it is told nothing else. It uses TLS at this port, and at
// no other.
const (
	defaultPort      = "8883"
	defaultKeepAlive = 240
)

// DialMQTT connects over MQTT 3.1.1, as firmware does once it has its settings. The
// connection never subscribes, since servers push what they have to say; it asks
// for nothing to be kept or confirmed, and ends without a farewell.
func (d *Device) DialMQTT(ctx context.Context, s MQTTSettings) (Conn, error) {
	host, port, err := net.SplitHostPort(s.Endpoint)
	if err != nil {
		host, port = s.Endpoint, defaultPort
	}
	if s.KeepAlive < 1 || s.KeepAlive > 65535 {
		s.KeepAlive = defaultKeepAlive
	}
	hello, err := connectPacket(s)
	if err != nil {
		return nil, err
	}
	c := &mqttConn{topic: s.PublishTopic, keepAlive: time.Duration(s.KeepAlive) * time.Second}
	c.conn, err = d.open(ctx, net.JoinHostPort(host, port), port == defaultPort, func(conn net.Conn) error {
		c.conn = conn
		if err := c.write(hello); err != nil {
			return err
		}
		return c.accepted()
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", s.Endpoint, err)
	}
	return c, nil
}

// connectPacket is what firmware begins with.
func connectPacket(s MQTTSettings) ([]byte, error) {
	hello := packets.Packet{
		ProtocolVersion: 4, FixedHeader: packets.FixedHeader{Type: packets.Connect},
		Connect: packets.ConnectParams{
			ProtocolName: []byte("MQTT"), Clean: true, Keepalive: uint16(s.KeepAlive), ClientIdentifier: s.ClientID,
			UsernameFlag: s.Username != "", Username: []byte(s.Username),
			PasswordFlag: s.Password != "", Password: []byte(s.Password),
		},
	}
	var out bytes.Buffer
	err := hello.ConnectEncode(&out)
	return out.Bytes(), err
}

// refusals are why a server did not accept, by its code.
var refusals = map[byte]string{
	1: "it does not speak this version of MQTT", 2: "it does not take this client id", 3: "it is not available",
	4: "the user name or the password is wrong", 5: "it does not let this device in",
}

// mqttConn is a connection over MQTT. An idle one holds no buffer: what it reads
// goes where it belongs at once.
type mqttConn struct {
	conn      net.Conn
	topic     string
	keepAlive time.Duration

	// What follows is Recv's own.

	one   [1]byte
	asked bool // the server was asked whether it is there, and has not answered

	mu   sync.Mutex // held while a packet is written
	sent time.Time  // when the last one was
}

func (c *mqttConn) Close() error { return c.conn.Close() }

// accepted waits to be let in.
func (c *mqttConn) accepted() error {
	head, body, err := c.packet()
	if err != nil {
		return err
	}
	var ack packets.Packet
	if head.Type != packets.Connack || ack.ConnackDecode(body) != nil {
		return errors.New("the server does not speak MQTT")
	}
	if ack.ReasonCode != 0 {
		return fmt.Errorf("the server refused: %s", cmp.Or(refusals[ack.ReasonCode], fmt.Sprintf("code %d", ack.ReasonCode)))
	}
	return nil
}

// Recv returns the next message, whatever its topic. A context does not end it;
// closing does. Whatever is too long is dropped. Silence is measured by the
// deadline of reading, and costs nothing else.
func (c *mqttConn) Recv(context.Context) (Message, error) {
	for {
		c.conn.SetReadDeadline(c.due())
		head, body, err := c.packet()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if err := c.ask(); err != nil {
				return Message{}, endOf(err)
			}
			continue
		}
		if err != nil {
			return Message{}, endOf(err)
		}
		switch {
		case head.Type == packets.Pingresp:
			c.asked = false
		case head.Type == packets.Publish && body != nil:
			return published(head, body)
		}
	}
}

// published is the message in a packet. Nothing comes that has to be confirmed. It
// is no part of Recv, which waits with as little of a stack as can be.
func published(head packets.FixedHeader, body []byte) (Message, error) {
	m := packets.Packet{ProtocolVersion: 4, FixedHeader: head}
	if err := m.PublishDecode(body); err != nil {
		return Message{}, err
	}
	return Message{Data: m.Payload}, nil
}

// due is when there is something to do beside reading: esp-mqtt asks when it has
// sent nothing for half of the time that it has promised, and waits for the answer
// for all of it.
func (c *mqttConn) due() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked {
		return c.sent.Add(c.keepAlive)
	}
	return c.sent.Add(c.keepAlive / 2)
}

// errSilent is why a connection is given up.
var errSilent = errors.New("the server does not answer any more")

// ask asks whether the server is there, if it is time.
func (c *mqttConn) ask() error {
	switch {
	case time.Now().Before(c.due()): // something was sent meanwhile
		return nil
	case c.asked:
		return errSilent
	}
	c.asked = true
	return c.write([]byte{packets.Pingreq << 4, 0})
}

// packet reads a packet; its body is nil if it is too long. Its deadline is that of
// the first byte; what follows has a time of its own.
func (c *mqttConn) packet() (head packets.FixedHeader, body []byte, err error) {
	first, err := c.ReadByte()
	if err != nil {
		return head, nil, err
	}
	c.conn.SetReadDeadline(time.Now().Add(dialTime))
	if err := head.Decode(first); err != nil {
		return head, nil, fmt.Errorf("the server does not keep to the protocol: %w", err)
	}
	head.Remaining, _, err = packets.DecodeLength(&length{of: c})
	switch {
	case err != nil:
		return head, nil, unfinished(err)
	case head.Remaining > maxMessage:
		_, err = io.CopyN(io.Discard, c.conn, int64(head.Remaining))
		return head, nil, unfinished(err)
	}
	body = make([]byte, head.Remaining)
	_, err = io.ReadFull(c.conn, body)
	return head, body, unfinished(err)
}

// unfinished is why a packet ended before its end. It is not silence.
func unfinished(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("the server began a packet and did not end it")
	}
	return err
}

// ReadByte implements io.ByteReader.
func (c *mqttConn) ReadByte() (byte, error) {
	_, err := io.ReadFull(c.conn, c.one[:])
	return c.one[0], err
}

// length reads no more bytes than a length has.
type length struct {
	of   *mqttConn
	have int
}

// ReadByte implements io.ByteReader.
func (l *length) ReadByte() (byte, error) {
	if l.have++; l.have > 4 {
		return 0, errors.New("the length of a packet is none")
	}
	return l.of.ReadByte()
}

// Send publishes a text. Sound goes another way beside MQTT, and is dropped.
func (c *mqttConn) Send(_ context.Context, m Message) error {
	if m.Binary {
		return nil
	}
	packet := packets.Packet{
		ProtocolVersion: 4, FixedHeader: packets.FixedHeader{Type: packets.Publish}, TopicName: c.topic, Payload: m.Data,
	}
	var out bytes.Buffer
	if err := packet.PublishEncode(&out); err != nil {
		return err
	}
	return c.write(out.Bytes())
}

func (c *mqttConn) write(packet []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = time.Now()
	c.conn.SetWriteDeadline(c.sent.Add(sendTime)) // fails only on a closed conn, and then Write does
	_, err := c.conn.Write(packet)
	return err
}
