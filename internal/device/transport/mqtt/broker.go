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

// broker speaks MQTT with the devices. It uses the packet handling of mochi's server.
// It does not use its listeners, publishing and storage: they would cost two goroutines
// per device, and 28 KB instead of 8.
type broker struct {
	mochi.HookBase
	server *mochi.Server
}

// The limits of one device.
const (
	// maxConnect is the length of the longest CONNECT packet.
	maxConnect = 4 << 10
	// maxUnfinished is the number of QoS 2 messages in flight.
	maxUnfinished = 16
)

func newBroker(cfg Config) *broker {
	can := mochi.NewDefaultServerCapabilities()
	can.MaximumPacketSize = uint32(cfg.MaxPacket)
	can.MaximumClientWritesPending = 1 // not used
	can.MaximumSessionExpiryInterval = 0
	can.ReceiveMaximum = maxUnfinished
	can.MaximumInflight = maxUnfinished
	can.TopicAliasMaximum = 0
	can.SharedSubAvailable = 0
	can.Compatibilities.NoInheritedPropertiesOnAck = true // unfinished messages are kept, and properties may be long
	b := &broker{server: mochi.New(&mochi.Options{
		Capabilities: can, ClientNetReadBufferSize: 1, // packets are complete before they are read
		Logger: slog.New(slog.DiscardHandler), // the gateway logs what matters
	})}
	if err := b.server.AddHook(b, nil); err != nil {
		panic(err) // fails only if Init does
	}
	return b
}

// newLink returns a link on a connection before its CONNECT.
func (b *broker) newLink(conn net.Conn, timeout time.Duration, maxPacket int, release func()) *link {
	l := &link{broker: b, framer: framer{limit: maxPacket}}
	l.client = b.server.NewClient(&socket{Conn: conn, link: l}, Name, "", false)
	l.Socket = inbound.NewSocket(conn, timeout, func() {
		l.client.Stop(nil)
		release()
	})
	return l
}

// serve accepts one device, until it waits to be opened. It returns why the device was
// refused.
func (c *Connector) serve(ctx context.Context, conn net.Conn, host netip.Addr, entry *inbound.Conn) (address string, err error) {
	l := c.broker.newLink(conn, c.cfg.Send, maxConnect, entry.Release)
	defer func() {
		if r := recover(); r != nil { // a bug in the broker must end this connection only
			err = fmt.Errorf("internal error: %v", r)
			c.log.Error("the broker panicked on a packet\n"+string(debug.Stack()), "device", l.address, "err", err)
		}
		if err != nil {
			l.End(err)
		}
	}()
	stop := context.AfterFunc(ctx, func() { l.End(inbound.ErrClosed) })
	defer stop()
	if err := inbound.Handshake(ctx, conn, c.cfg.Connect); err != nil {
		return "", err
	}
	connect, err := c.readConnect(ctx, l)
	if err != nil {
		return "", err
	}
	if code, err := c.authenticate(ctx, l, connect, host, entry); err != nil {
		c.broker.server.SendConnack(l.client, code, false, nil) // best effort: the device is refused anyway
		return l.address, err
	}
	c.broker.resetSession(l, connect)
	if err := c.broker.server.SendConnack(l.client, packets.CodeSuccess, false, nil); err != nil {
		return l.address, err
	}
	l.framer.limit = c.cfg.MaxPacket
	setKeepAlive(conn)
	stop() // first: once it is registered, it may be opened, and then it outlives ctx
	return l.address, entry.Register(l, l.End)
}

// readConnect waits for the CONNECT of the device.
func (c *Connector) readConnect(ctx context.Context, l *link) (packets.Packet, error) {
	l.deadline = time.Now().Add(c.cfg.Connect)
	packet, err := l.packet(ctx)
	if err != nil {
		return packets.Packet{}, fmt.Errorf("no valid CONNECT: %w", err)
	}
	connect, err := decode(l, packet)
	if err == nil && connect.FixedHeader.Type != packets.Connect {
		err = errors.New("the first packet is of another type")
	}
	if err != nil {
		return packets.Packet{}, fmt.Errorf("no valid CONNECT: %w", err)
	}
	l.client.ParseConnect(Name, connect)
	if code := connect.ConnectValidate(); code != packets.CodeSuccess {
		c.broker.server.SendConnack(l.client, code, false, nil) // best effort: the device is refused anyway
		return packets.Packet{}, fmt.Errorf("no valid CONNECT: %s", code.Reason)
	}
	return connect, nil
}

// checkTimeout bounds the check of a credential.
const checkTimeout = 5 * time.Second

// authenticate checks the credential of a device and identifies it to the registry. If
// the device is refused, it returns the code of the answer.
func (c *Connector) authenticate(ctx context.Context, l *link, connect packets.Packet, host netip.Addr, entry *inbound.Conn) (packets.Code, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	l.clientID = strings.Clone(connect.Connect.ClientIdentifier)
	l.address = addressOf(l.clientID)
	at, name, adopted, err := c.creds.Check(ctx, host, l.address, l.clientID, string(connect.Connect.Username), string(connect.Connect.Password))
	switch {
	case err != nil && ctx.Err() != nil:
		return packets.ErrServerUnavailable, fmt.Errorf("the gateway could not check the credential in time: %w", err)
	case err != nil:
		return packets.ErrBadUsernameOrPassword, err
	case l.address == "" && at == "":
		return packets.ErrClientIdentifierNotValid, errors.New("neither the client ID nor the credential identifies the device")
	case l.address == "":
		l.address = at
	}
	l.topic = topicOf(c.cfg.Topic, l.address)
	err = entry.Identify(inbound.Peer{Address: l.address, Name: name, Adopted: adopted})
	switch {
	case errors.Is(err, inbound.ErrAddressTaken):
		return packets.ErrBadUsernameOrPassword, err
	case err != nil:
		return packets.ErrServerUnavailable, err
	}
	return packets.CodeSuccess, nil
}

// resetSession removes the session state that a device asked for: nothing is stored for
// it, and no will is published when it disconnects.
func (b *broker) resetSession(l *link, connect packets.Packet) {
	cl := l.client
	cl.Properties.Clean = true
	cl.Properties.Will = mochi.Will{}
	cl.Properties.Username = nil
	cl.Properties.Props.SessionExpiryInterval = 0
	cl.Properties.Props.User = nil
	l.deadline, l.keepalive = time.Time{}, time.Duration(connect.Connect.Keepalive)*time.Second
}

// decode decodes a complete packet.
func decode(l *link, packet []byte) (packets.Packet, error) {
	from := l.client.Net.Conn.(*socket)
	from.packet = packet
	defer func() { from.packet = nil }() // do not keep the packet in memory
	var head packets.FixedHeader
	if err := l.client.ReadFixedHeader(&head); err != nil {
		return packets.Packet{}, err
	}
	return l.client.ReadPacket(&head)
}

// handle answers a packet. It returns why the link ends.
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
		b.server.DisconnectClient(l.client, code) // sends the reason
	}
	switch {
	case err == nil && l.client.Closed():
		return inbound.ErrPeerClosed
	case err == nil && pk.FixedHeader.Type == packets.Publish && l.published == nil:
		l.Note(fmt.Sprintf("dropped: message with invalid topic %.100q, or a duplicate", pk.TopicName))
	}
	return protocolError(err)
}

// protocolError wraps an error of the broker.
func protocolError(err error) error {
	var code packets.Code
	switch {
	case err == nil:
		return nil
	case errors.As(err, &code):
		return fmt.Errorf("the device violates the MQTT protocol: %s", code.Reason)
	}
	return fmt.Errorf("the device violates the MQTT protocol: %w", err)
}

// subscribe grants every filter, because some programs require it, and stores nothing:
// a device gets the messages to it with and without a subscription, and no others.
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

// ID implements mochi.Hook.
func (b *broker) ID() string { return Name }

// Provides implements mochi.Hook.
func (b *broker) Provides(hook byte) bool {
	return bytes.IndexByte([]byte{mochi.OnACLCheck, mochi.OnPublish}, hook) >= 0
}

// OnACLCheck implements mochi.Hook. It lets a device publish to any topic.
func (b *broker) OnACLCheck(_ *mochi.Client, _ string, write bool) bool { return write }

// OnPublish implements mochi.Hook. It passes a message to the link and nowhere else.
func (b *broker) OnPublish(cl *mochi.Client, pk packets.Packet) (packets.Packet, error) {
	payload := pk.Payload
	cl.Net.Conn.(*socket).link.published = &payload
	return pk, packets.CodeSuccessIgnore
}

// setKeepAlive makes the kernel detect a device that lost power: the keep-alive of MQTT
// may be long or disabled.
func setKeepAlive(conn net.Conn) {
	if tcp := inbound.TCP(conn); tcp != nil {
		tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 60 * time.Second, Interval: 15 * time.Second, Count: 4})
	}
}
