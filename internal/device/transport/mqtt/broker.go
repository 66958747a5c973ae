package mqtt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"strings"
	"time"

	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/ferrulehq/ferrule/internal/device/transport/inbound"
)

// broker speaks MQTT with the devices. Of mochi's server, what understands packets
// and answers them is used. What would listen, publish and store is not: it would
// be two goroutines a device, and 28 KB instead of 8.
type broker struct {
	mochi.HookBase
	server *mochi.Server
}

// What one device may take of the gateway.
const (
	// maxConnect is the length of the longest CONNECT that is looked at.
	maxConnect = 4 << 10
	// maxUnfinished is how many messages it may publish with QoS 2 before it
	// has finished one.
	maxUnfinished = 16
)

func newBroker(cfg Config) *broker {
	can := mochi.NewDefaultServerCapabilities()
	can.MaximumPacketSize = uint32(cfg.MaxPacket)
	can.MaximumClientWritesPending = 1 // nothing goes that way
	can.MaximumSessionExpiryInterval = 0
	can.ReceiveMaximum = maxUnfinished
	can.MaximumInflight = maxUnfinished
	can.TopicAliasMaximum = 0
	can.SharedSubAvailable = 0
	can.Compatibilities.NoInheritedPropertiesOnAck = true // what is unfinished is kept, and they may be long
	b := &broker{server: mochi.New(&mochi.Options{
		Capabilities: can, ClientNetReadBufferSize: 1, // packets are whole before they are read
		Logger: slog.New(slog.DiscardHandler), // what matters is said by us
	})}
	if err := b.server.AddHook(b, nil); err != nil {
		panic(err) // it fails only if Init does
	}
	return b
}

// connect makes a link of a connection whose device has said nothing yet.
func (b *broker) newLink(conn net.Conn, limit time.Duration, packet int, leave func()) *link {
	l := &link{broker: b, framer: framer{limit: packet}}
	l.client = b.server.NewClient(&socket{Conn: conn, link: l}, Name, "", false)
	l.Socket = inbound.NewSocket(conn, limit, func() {
		l.client.Stop(nil)
		leave()
	})
	return l
}

// serve takes in one device, up to where it waits to be opened. The error is why
// it was not taken.
func (c *Connector) serve(ctx context.Context, conn net.Conn, host netip.Addr, place *inbound.Conn) (address string, err error) {
	l := c.broker.newLink(conn, c.cfg.Send, maxConnect, place.Release)
	defer func() {
		if r := recover(); r != nil { // it costs the device that has found it, and nobody else
			err = fmt.Errorf("the gateway failed at it: %v", r)
			c.log.Error("a device made the broker panic\n"+string(debug.Stack()), "device", l.address, "err", err)
		}
		if err != nil {
			l.End(err)
		}
	}()
	stop := context.AfterFunc(ctx, func() { l.End(inbound.ErrClosed) })
	defer stop()
	hello, err := c.readConnect(ctx, l)
	if err != nil {
		return "", err
	}
	if code, err := c.authenticate(ctx, l, hello, host, place); err != nil {
		c.broker.server.SendConnack(l.client, code, false, nil) // it may be gone; it is refused anyway
		return l.address, err
	}
	c.broker.resetSession(l, hello)
	if err := c.broker.server.SendConnack(l.client, packets.CodeSuccess, false, nil); err != nil {
		return l.address, err
	}
	l.framer.limit = c.cfg.MaxPacket
	setKeepAlive(conn)
	return l.address, place.Register(l, l.End)
}

// hear waits for the device to say who it is.
func (c *Connector) readConnect(ctx context.Context, l *link) (packets.Packet, error) {
	l.deadline = time.Now().Add(c.cfg.Connect)
	packet, err := l.packet(ctx)
	if err != nil {
		return packets.Packet{}, fmt.Errorf("it does not connect: %w", err)
	}
	hello, err := decode(l, packet)
	if err == nil && hello.FixedHeader.Type != packets.Connect {
		err = errors.New("it began with something else")
	}
	if err != nil {
		return packets.Packet{}, fmt.Errorf("it does not connect: %w", err)
	}
	l.client.ParseConnect(Name, hello)
	if code := hello.ConnectValidate(); code != packets.CodeSuccess {
		c.broker.server.SendConnack(l.client, code, false, nil) // it may be gone; it is refused anyway
		return packets.Packet{}, fmt.Errorf("it does not connect: %s", code.Reason)
	}
	return hello, nil
}

// checkTime bounds a check of a credential.
const checkTimeout = 5 * time.Second

// admit asks whether a device may come in, and tells with what it is answered if
// not.
func (c *Connector) authenticate(ctx context.Context, l *link, hello packets.Packet, host netip.Addr, place *inbound.Conn) (packets.Code, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	l.clientID = strings.Clone(hello.Connect.ClientIdentifier)
	l.address = addressOf(l.clientID)
	at, name, adopted, err := c.creds.Check(ctx, host, l.address, l.clientID, string(hello.Connect.Username), string(hello.Connect.Password))
	switch {
	case err != nil && ctx.Err() != nil:
		return packets.ErrServerUnavailable, fmt.Errorf("the gateway could not check the credential in time: %w", err)
	case err != nil:
		return packets.ErrBadUsernameOrPassword, err
	case l.address == "" && at == "":
		return packets.ErrClientIdentifierNotValid, errors.New("neither its client id nor its credential tells which device it is")
	case l.address == "":
		l.address = at
	}
	l.topic = topicOf(c.cfg.Topic, l.address)
	err = place.Identify(inbound.Peer{Address: l.address, Name: name, Adopted: adopted})
	switch {
	case errors.Is(err, inbound.ErrAddressTaken):
		return packets.ErrBadUsernameOrPassword, err
	case err != nil:
		return packets.ErrServerUnavailable, err
	}
	return packets.CodeSuccess, nil
}

// begin makes what the broker knows about a device fit: nothing is kept for it, or
// of it, and nothing is done for it once it is gone.
func (b *broker) resetSession(l *link, hello packets.Packet) {
	cl := l.client
	cl.Properties.Clean = true
	cl.Properties.Will = mochi.Will{}
	cl.Properties.Username = nil
	cl.Properties.Props.SessionExpiryInterval = 0
	cl.Properties.Props.User = nil
	l.deadline, l.keepalive = time.Time{}, time.Duration(hello.Connect.Keepalive)*time.Second
}

// decode has the broker read a packet that is whole.
func decode(l *link, packet []byte) (packets.Packet, error) {
	from := l.client.Net.Conn.(*socket)
	from.whole = packet
	defer func() { from.whole = nil }() // not even its end is kept
	var head packets.FixedHeader
	if err := l.client.ReadFixedHeader(&head); err != nil {
		return packets.Packet{}, err
	}
	return l.client.ReadPacket(&head)
}

// handle has a packet answered. The error is why the link ends.
func (b *broker) handle(l *link, packet []byte) error {
	pk, err := decode(l, packet)
	if err != nil {
		return protocolError(err)
	}
	switch pk.FixedHeader.Type {
	case packets.Subscribe:
		err = b.subscribe(l, pk)
	case packets.Unsubscribe:
		err = b.unsubscribe(l, pk)
	default:
		err = b.server.InjectPacket(l.client, pk)
	}
	var code packets.Code
	if errors.As(err, &code) && pk.ProtocolVersion == 5 && code.Code >= packets.ErrUnspecifiedError.Code {
		b.server.DisconnectClient(l.client, code) // and says why
	}
	switch {
	case err == nil && l.client.Closed():
		return inbound.ErrPeerClosed
	case err == nil && pk.FixedHeader.Type == packets.Publish && l.published == nil:
		l.Note(fmt.Sprintf("dropped: a message on the topic %.100q, which is none or was sent twice", pk.TopicName))
	}
	return protocolError(err)
}

// refuse says that a device does not do as it should, unless the link has ended
// for another reason, which counts then.
func protocolError(err error) error {
	var code packets.Code
	switch {
	case err == nil:
		return nil
	case errors.As(err, &code):
		return fmt.Errorf("the device does not keep to the protocol: %s", code.Reason)
	}
	return fmt.Errorf("the device does not keep to the protocol: %w", err)
}

// subscribe grants whatever a device asks for, since there are programs that want
// it, and remembers nothing: what is sent to it comes anyway, and else nothing does.
func (b *broker) subscribe(l *link, pk packets.Packet) error {
	if code := pk.SubscribeValidate(); code != packets.CodeSuccess {
		return code
	}
	ack := packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Suback}, PacketID: pk.PacketID}
	for _, sub := range pk.Filters {
		code := packets.CodeGrantedQos0
		if !mochi.IsValidFilter(sub.Filter, false) {
			code = packets.ErrUnspecifiedError
		}
		ack.ReasonCodes = append(ack.ReasonCodes, code.Code)
	}
	return l.client.WritePacket(ack)
}

func (b *broker) unsubscribe(l *link, pk packets.Packet) error {
	if code := pk.UnsubscribeValidate(); code != packets.CodeSuccess {
		return code
	}
	return l.client.WritePacket(packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Unsuback}, PacketID: pk.PacketID, ReasonCodes: make([]byte, len(pk.Filters)),
	})
}

// The hooks of the server follow.

// ID implements mochi.Hook.
func (b *broker) ID() string { return Name }

// Provides implements mochi.Hook.
func (b *broker) Provides(hook byte) bool {
	return bytes.IndexByte([]byte{mochi.OnACLCheck, mochi.OnPublish}, hook) >= 0
}

// OnACLCheck lets a device publish to whatever topic it likes.
func (b *broker) OnACLCheck(_ *mochi.Client, _ string, write bool) bool { return write }

// OnPublish takes what a device says. It goes to its link, and nowhere else.
func (b *broker) OnPublish(cl *mochi.Client, pk packets.Packet) (packets.Packet, error) {
	said := pk.Payload
	cl.Net.Conn.(*socket).link.published = &said
	return pk, packets.CodeSuccessIgnore
}

// tune has the kernel find a device that lost power: the keep-alive of MQTT may be
// long, or none. It works without, only less well.
func setKeepAlive(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 60 * time.Second, Interval: 15 * time.Second, Count: 4})
	}
}
