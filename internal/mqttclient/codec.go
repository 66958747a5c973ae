package mqttclient

import (
	"errors"
	"fmt"
	"time"
)

// The types of packets, which are the same in both versions.
const (
	connack    = 2
	publish    = 3
	puback     = 4
	suback     = 9
	unsuback   = 11
	pingresp   = 13
	disconnect = 14
)

// The versions of the protocol, as in CONNECT.
const (
	version4 = 4
	version5 = 5
)

// The packets without content.
var (
	pingPacket = []byte{0xC0, 0}
	byePacket  = []byte{0xE0, 0}
	// byeWithWill asks a broker with MQTT 5 to publish the will.
	byeWithWill = []byte{0xE0, 2, 4, 0}
)

// maxPacket is the size of the largest packet in either direction.
const maxPacket = 1 << 20

// codec encodes and decodes the packets of one version of MQTT.
type codec interface {
	version() byte
	connect(cfg *Config, password string, keepAlive time.Duration) []byte
	publish(p *Publication, id uint16) []byte
	// subscribe encodes a SUBSCRIBE. The messages come with subID if that is not 0.
	subscribe(id uint16, subID int, filters []Filter) []byte
	unsubscribe(id uint16, topics []string) []byte
	puback(id uint16) []byte
	// decode decodes a packet from its first byte and its body. It may panic.
	decode(first byte, body []byte) (packet, error)
}

// packet is a packet from the broker.
type packet struct {
	kind byte
	id   uint16
	// codes are the reason codes: one, or one for each filter of a SUBACK.
	codes  []byte
	reason string // in words, from the broker
	qos    byte
	msg    Message
	// subIDs are the subscriptions for which a message comes; none with 3.1.1.
	subIDs []int
	limits limits
	server string // where the broker sends its clients instead
	// properties are the user properties of CONNACK.
	properties []Property
}

// code returns the only reason code.
func (p packet) code() byte {
	if len(p.codes) == 0 {
		return 0
	}
	return p.codes[0]
}

// limits are what a broker takes, from its CONNACK.
type limits struct {
	packet    int // bytes
	inFlight  int // publications without PUBACK
	keepAlive time.Duration
	qos       byte
	noRetain  bool
	noSubIDs  bool
}

// defaultLimits hold for a broker that says nothing.
func defaultLimits() limits {
	return limits{packet: maxPacket, inFlight: maxInFlight, keepAlive: keepAlive, qos: 1}
}

// decode decodes a packet. A panic of the library is an error: the bytes are the broker's.
func decode(c codec, first byte, body []byte) (p packet, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("broken packet of type %d", first>>4)
		}
	}()
	switch first >> 4 {
	case connack, publish, puback, suback, unsuback, pingresp, disconnect:
	default:
		return packet{}, fmt.Errorf("unexpected packet of type %d", first>>4)
	}
	p, err = c.decode(first, body)
	if err != nil {
		return packet{}, fmt.Errorf("broken packet of type %d: %w", first>>4, err)
	}
	if p.kind == publish && p.qos > 1 {
		return packet{}, errors.New("a message came with QoS 2, which nobody asked for")
	}
	return p, nil
}
