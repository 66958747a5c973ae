package mqttclient

import (
	"bytes"
	"encoding/binary"
	"math"
	"time"

	"github.com/eclipse/paho.golang/packets"
)

// codec5 is MQTT 5.
type codec5 struct{}

func (codec5) version() byte { return version5 }

func (codec5) connect(cfg *Config, password string, keepAlive time.Duration) []byte {
	p := &packets.Connect{
		ProtocolName: "MQTT", ProtocolVersion: version5, ClientID: cfg.ClientID, CleanStart: true,
		KeepAlive: uint16(keepAlive / time.Second),
		Username:  cfg.User, UsernameFlag: cfg.User != "",
		Password: []byte(password), PasswordFlag: password != "",
		// No session expiry means 0: the session ends with the connection.
		Properties: &packets.Properties{MaximumPacketSize: ptr(uint32(maxPacket)), User: users(cfg.Properties)},
	}
	if w := cfg.Will; w != nil {
		p.WillFlag, p.WillTopic, p.WillMessage, p.WillQOS, p.WillRetain = true, w.Topic, w.Payload, w.QoS, w.Retain
		p.WillProperties = &packets.Properties{User: users(w.Properties)}
	}
	return encode5(p)
}

func (codec5) publish(p *Publication, id uint16) []byte {
	properties := &packets.Properties{User: users(p.Properties)}
	if p.Expiry > 0 {
		// Rounded up: the broker counts whole seconds, and 0 would be gone at once.
		seconds := min((p.Expiry+time.Second-1)/time.Second, math.MaxUint32)
		properties.MessageExpiry = ptr(uint32(seconds))
	}
	return encode5(&packets.Publish{
		Topic: p.Topic, Payload: p.Payload, QoS: p.QoS, Retain: p.Retain, PacketID: id, Properties: properties,
	})
}

func (codec5) subscribe(id uint16, subID int, filters []Filter) []byte {
	p := &packets.Subscribe{PacketID: id, Properties: &packets.Properties{}}
	if subID != 0 {
		p.Properties.SubscriptionIdentifier = &subID
	}
	for _, f := range filters {
		p.Subscriptions = append(p.Subscriptions, packets.SubOptions{Topic: f.Topic, QoS: f.QoS, NoLocal: f.NoLocal})
	}
	return encode5(p)
}

func (codec5) unsubscribe(id uint16, topics []string) []byte {
	return encode5(&packets.Unsubscribe{PacketID: id, Topics: topics, Properties: &packets.Properties{}})
}

func (codec5) puback(id uint16) []byte { return []byte{puback << 4, 2, byte(id >> 8), byte(id)} }

func (codec5) decode(first byte, body []byte) (packet, error) {
	p := packet{kind: first >> 4}
	buf := bytes.NewBuffer(body)
	switch p.kind {
	case connack:
		return decodeConnack5(body)
	case publish:
		in := packets.Publish{QoS: first >> 1 & 3, Properties: &packets.Properties{}}
		if err := in.Unpack(buf); err != nil {
			return p, err
		}
		p.id, p.qos, p.subIDs = in.PacketID, in.QoS, subIDs(body, in.QoS)
		p.msg = Message{Topic: in.Topic, Payload: in.Payload, Retained: first&1 != 0}
		for _, u := range in.Properties.User {
			p.msg.Properties = append(p.msg.Properties, Property{u.Key, u.Value})
		}
	case puback:
		in := packets.Puback{Properties: &packets.Properties{}}
		err := in.Unpack(buf)
		p.id, p.codes, p.reason = in.PacketID, []byte{in.ReasonCode}, in.Properties.ReasonString
		return p, err
	case suback:
		in := packets.Suback{Properties: &packets.Properties{}}
		err := in.Unpack(buf)
		p.id, p.codes, p.reason = in.PacketID, in.Reasons, in.Properties.ReasonString
		return p, err
	case unsuback:
		in := packets.Unsuback{Properties: &packets.Properties{}}
		err := in.Unpack(buf)
		p.id, p.codes = in.PacketID, in.Reasons
		return p, err
	case disconnect:
		if len(body) == 0 {
			return p, nil
		}
		in := packets.Disconnect{Properties: &packets.Properties{}}
		err := in.Unpack(buf)
		p.codes, p.reason, p.server = []byte{in.ReasonCode}, in.Properties.ReasonString, in.Properties.ServerReference
		return p, err
	}
	return p, nil
}

// decodeConnack5 decodes the answer to CONNECT. A broker that does not know MQTT 5 answers
// with a packet of 3.1.1, which has no properties.
func decodeConnack5(body []byte) (packet, error) {
	p := packet{kind: connack, limits: defaultLimits()}
	if len(body) == 2 {
		p.codes = body[1:]
		return p, nil
	}
	in := packets.Connack{Properties: &packets.Properties{}}
	if err := in.Unpack(bytes.NewBuffer(body)); err != nil {
		return p, err
	}
	p.codes, p.reason, p.server = []byte{in.ReasonCode}, in.Properties.ReasonString, in.Properties.ServerReference
	for _, u := range in.Properties.User {
		p.properties = append(p.properties, Property{u.Key, u.Value})
	}
	if n := in.Properties.MaximumPacketSize; n != nil && *n > 0 {
		p.limits.packet = int(min(*n, maxPacket))
	}
	if n := in.Properties.ReceiveMaximum; n != nil && *n > 0 {
		p.limits.inFlight = min(int(*n), maxInFlight)
	}
	if n := in.Properties.ServerKeepAlive; n != nil {
		p.limits.keepAlive = time.Duration(*n) * time.Second
	}
	if n := in.Properties.MaximumQOS; n != nil {
		p.limits.qos = min(*n, 1)
	}
	p.limits.noSubIDs = in.Properties.SubIDAvailable != nil && *in.Properties.SubIDAvailable == 0
	p.limits.noRetain = in.Properties.RetainAvailable != nil && *in.Properties.RetainAvailable == 0
	return p, nil
}

// subIDs returns the subscription identifiers of a PUBLISH. There may be several, but the
// library keeps only the last one. It has checked the packet.
func subIDs(body []byte, qos byte) (ids []int) {
	start := 2 + int(binary.BigEndian.Uint16(body))
	if qos > 0 {
		start += 2
	}
	size, n := binary.Uvarint(body[start:])
	rest := body[start+n:]
	rest = rest[:min(uint64(len(rest)), size)]
	text := func(b []byte) int { return 2 + int(binary.BigEndian.Uint16(b)) }
	for len(rest) > 0 {
		kind := rest[0]
		rest = rest[1:]
		switch kind {
		case packets.PropPayloadFormat:
			rest = rest[1:]
		case packets.PropMessageExpiry:
			rest = rest[4:]
		case packets.PropTopicAlias:
			rest = rest[2:]
		case packets.PropSubscriptionIdentifier:
			id, n := binary.Uvarint(rest)
			ids = append(ids, int(id))
			rest = rest[n:]
		case packets.PropUser:
			rest = rest[text(rest):]
			rest = rest[text(rest):]
		default:
			rest = rest[text(rest):]
		}
	}
	return ids
}

func encode5(p packets.Packet) []byte {
	var buf bytes.Buffer
	p.WriteTo(&buf)
	return buf.Bytes()
}

func users(properties []Property) []packets.User {
	var out []packets.User
	for _, p := range properties {
		out = append(out, packets.User{Key: p.Name, Value: p.Value})
	}
	return out
}

func ptr[T any](v T) *T { return &v }
