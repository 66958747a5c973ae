package mqtt

import (
	"errors"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// addressOf returns the MAC in a client ID such as GID_board@@@98_a3_16_f9_d9_34@@@uuid,
// where the last part may be missing. It returns an empty string for any other.
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

// topicOf returns the topic of messages to a device.
func topicOf(prefix, address string) string {
	return prefix + strings.Map(func(r rune) rune {
		switch r {
		case ':':
			return '_'
		case '+', '#', 0: // not allowed in a topic
			return '-'
		}
		return r
	}, address)
}

func checkTopic(prefix string) error {
	if prefix == "" || strings.ContainsAny(prefix, "+#\x00") || len(prefix) > 256 {
		return errors.New("topic: must be a topic prefix such as devices/p2p/")
	}
	return nil
}
