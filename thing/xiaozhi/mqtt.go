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

// Defaults of the firmware. It uses TLS on this port only.
const (
	defaultPort      = "8883"
	defaultKeepAlive = 240
)

// DialMQTT connects by MQTT 3.1.1, as firmware does after its check-in. The connection never
// subscribes, because servers push messages; it uses QoS 0 without retained messages, and
// closes without DISCONNECT.
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
		return c.readConnack()
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", s.Endpoint, err)
	}
	return c, nil
}

// connectPacket returns the CONNECT packet of the firmware.
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

// connackErrors are the reasons of a refused CONNECT, by code.
var connackErrors = map[byte]string{
	1: "unsupported MQTT version", 2: "client ID rejected", 3: "server unavailable",
	4: "wrong user name or password", 5: "not authorized",
}

// mqttConn is an MQTT connection. It has no buffer while it is idle: data is read directly to
// its destination.
type mqttConn struct {
	conn      net.Conn
	topic     string
	keepAlive time.Duration

	// The fields below belong to Recv.

	one     [1]byte
	pinging bool // a ping is not answered yet

	mu   sync.Mutex // held while a packet is written
	sent time.Time  // when the last packet was written
}

func (c *mqttConn) Close() error { return c.conn.Close() }

// readConnack waits for the answer to CONNECT.
func (c *mqttConn) readConnack() error {
	head, body, err := c.packet()
	if err != nil {
		return err
	}
	var ack packets.Packet
	if head.Type != packets.Connack || ack.ConnackDecode(body) != nil {
		return errors.New("the server does not speak MQTT")
	}
	if ack.ReasonCode != 0 {
		return fmt.Errorf("the server refused: %s", cmp.Or(connackErrors[ack.ReasonCode], fmt.Sprintf("code %d", ack.ReasonCode)))
	}
	return nil
}

// Recv returns the next message of any topic. It ignores ctx; closing ends it. A message that is
// too long is dropped. Pings are driven by the read deadline, which needs no goroutine.
func (c *mqttConn) Recv(context.Context) (Message, error) {
	for {
		c.conn.SetReadDeadline(c.nextPing())
		head, body, err := c.packet()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if err := c.ping(); err != nil {
				return Message{}, asEOF(err)
			}
			continue
		}
		if err != nil {
			return Message{}, asEOF(err)
		}
		switch {
		case head.Type == packets.Pingresp:
			c.pinging = false
		case head.Type == packets.Publish && body != nil:
			return decodePublish(head, body)
		}
	}
}

// decodePublish returns the message of a packet. All have QoS 0. It is a separate function to
// keep the stack of the waiting Recv small.
func decodePublish(head packets.FixedHeader, body []byte) (Message, error) {
	m := packets.Packet{ProtocolVersion: 4, FixedHeader: head}
	if err := m.PublishDecode(body); err != nil {
		return Message{}, err
	}
	return Message{Data: m.Payload}, nil
}

// nextPing returns when a ping, or the answer to one, is due. Like esp-mqtt, the device pings
// after half the keep-alive time without a packet, and waits for the answer until the whole.
func (c *mqttConn) nextPing() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pinging {
		return c.sent.Add(c.keepAlive)
	}
	return c.sent.Add(c.keepAlive / 2)
}

// errSilent is returned if a ping is not answered.
var errSilent = errors.New("the server does not answer pings")

// ping sends a ping if it is due.
func (c *mqttConn) ping() error {
	switch {
	case time.Now().Before(c.nextPing()): // another packet was sent meanwhile
		return nil
	case c.pinging:
		return errSilent
	}
	c.pinging = true
	return c.write([]byte{packets.Pingreq << 4, 0})
}

// packet reads a packet; its body is nil if it is too long. The read deadline applies to the
// first byte, and dialTimeout to the rest.
func (c *mqttConn) packet() (head packets.FixedHeader, body []byte, err error) {
	first, err := c.ReadByte()
	if err != nil {
		return head, nil, err
	}
	c.conn.SetReadDeadline(time.Now().Add(dialTimeout))
	if err := head.Decode(first); err != nil {
		return head, nil, fmt.Errorf("invalid packet: %w", err)
	}
	head.Remaining, _, err = packets.DecodeLength(&lengthReader{conn: c})
	switch {
	case err != nil:
		return head, nil, incomplete(err)
	case head.Remaining > maxMessage:
		_, err = io.CopyN(io.Discard, c.conn, int64(head.Remaining))
		return head, nil, incomplete(err)
	}
	body = make([]byte, head.Remaining)
	_, err = io.ReadFull(c.conn, body)
	return head, body, incomplete(err)
}

// incomplete replaces a timeout within a packet, which is not silence.
func incomplete(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("timeout within a packet")
	}
	return err
}

func (c *mqttConn) ReadByte() (byte, error) {
	_, err := io.ReadFull(c.conn, c.one[:])
	return c.one[0], err
}

// lengthReader limits the bytes of a packet length.
type lengthReader struct {
	conn  *mqttConn
	count int
}

func (l *lengthReader) ReadByte() (byte, error) {
	if l.count++; l.count > 4 {
		return 0, errors.New("invalid packet length")
	}
	return l.conn.ReadByte()
}

// Send publishes a text. Audio is dropped; it does not use MQTT.
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
	c.conn.SetWriteDeadline(c.sent.Add(sendTimeout)) // if it fails, so does Write
	_, err := c.conn.Write(packet)
	return err
}
