package mqttclient

import (
	"bytes"
	"errors"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"
)

// codec4 is MQTT 3.1.1.
type codec4 struct{}

func (codec4) version() byte { return version4 }

func (codec4) connect(cfg *Config, password string, keepAlive time.Duration) []byte {
	p := packets.NewControlPacket(packets.Connect).(*packets.ConnectPacket)
	p.ProtocolName, p.ProtocolVersion, p.ClientIdentifier, p.CleanSession = "MQTT", version4, cfg.ClientID, true
	p.Keepalive = uint16(keepAlive / time.Second)
	// A password without a user is forbidden in 3.1.1.
	p.Username, p.UsernameFlag = cfg.User, cfg.User != "" || password != ""
	p.Password, p.PasswordFlag = []byte(password), password != ""
	if w := cfg.Will; w != nil {
		p.WillFlag, p.WillTopic, p.WillMessage, p.WillQos, p.WillRetain = true, w.Topic, w.Payload, w.QoS, w.Retain
	}
	return encode4(p)
}

func (codec4) publish(p *Publication, id uint16) []byte {
	out := packets.NewControlPacket(packets.Publish).(*packets.PublishPacket)
	out.TopicName, out.Payload, out.Qos, out.Retain, out.MessageID = p.Topic, p.Payload, p.QoS, p.Retain, id
	return encode4(out)
}

func (codec4) subscribe(id uint16, _ int, filters []Filter) []byte {
	p := packets.NewControlPacket(packets.Subscribe).(*packets.SubscribePacket)
	p.MessageID = id
	for _, f := range filters {
		p.Topics, p.Qoss = append(p.Topics, f.Topic), append(p.Qoss, f.QoS)
	}
	return encode4(p)
}

func (codec4) unsubscribe(id uint16, topics []string) []byte {
	p := packets.NewControlPacket(packets.Unsubscribe).(*packets.UnsubscribePacket)
	p.MessageID, p.Topics = id, topics
	return encode4(p)
}

func (codec4) puback(id uint16) []byte { return []byte{puback << 4, 2, byte(id >> 8), byte(id)} }

func (codec4) decode(first byte, body []byte) (packet, error) {
	p := packet{kind: first >> 4}
	header := packets.FixedHeader{MessageType: p.kind, Qos: first >> 1 & 3, RemainingLength: len(body)}
	in, err := packets.NewControlPacketWithHeader(header)
	if err != nil {
		return p, err
	}
	if err := in.Unpack(bytes.NewReader(body)); err != nil && p.kind != disconnect {
		return p, err
	}
	switch in := in.(type) {
	case *packets.ConnackPacket:
		p.codes, p.limits = []byte{in.ReturnCode}, defaultLimits()
		p.limits.noSubIDs = true
	case *packets.PublishPacket:
		p.id, p.qos = in.MessageID, in.Qos
		p.msg = Message{Topic: in.TopicName, Payload: in.Payload, Retained: first&1 != 0}
	case *packets.PubackPacket:
		p.id = in.MessageID
	case *packets.SubackPacket:
		p.id, p.codes = in.MessageID, in.ReturnCodes
	case *packets.UnsubackPacket:
		p.id = in.MessageID
	case *packets.DisconnectPacket:
		return p, errors.New("only a client may send DISCONNECT in MQTT 3.1.1")
	}
	return p, nil
}

func encode4(p packets.ControlPacket) []byte {
	var buf bytes.Buffer
	p.Write(&buf)
	return buf.Bytes()
}
