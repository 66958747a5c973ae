package mqtt

import (
	"errors"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// addressIn is the MAC that a client id tells: GID_board@@@98_a3_16_f9_d9_34@@@uuid,
// or the same without the last part. It is empty if the client id is another.
func addressOf(clientID string) string {
	parts := strings.Split(clientID, "@@@")
	if len(parts) != 2 && len(parts) != 3 {
		return ""
	}
	address, err := transport.ParseMAC(parts[1])
	if err != nil {
		return ""
	}
	return address
}

// topicOf is the topic of what is sent to a device.
func topicOf(prefix, address string) string {
	return prefix + strings.Map(func(r rune) rune {
		switch r {
		case ':':
			return '_'
		case '+', '#', 0: // not in a topic
			return '-'
		}
		return r
	}, address)
}

func checkTopic(prefix string) error {
	if prefix == "" || strings.ContainsAny(prefix, "+#\x00") || len(prefix) > 256 {
		return errors.New("topic: want the beginning of a topic, such as devices/p2p/")
	}
	return nil
}
