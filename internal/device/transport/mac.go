package transport

import (
	"errors"
	"net"
	"strings"
)

// ParseMAC returns the MAC address of a device in lower case with colons. It accepts
// dashes and, as in MQTT topics, underscores.
func ParseMAC(s string) (string, error) {
	mac, err := net.ParseMAC(strings.ReplaceAll(s, "_", ":"))
	if err != nil || len(mac) != 6 {
		return "", errors.New("must be a MAC address such as 98:a3:16:f9:d9:34")
	}
	if group := mac[0]&1 != 0; group || [6]byte(mac) == [6]byte{} {
		return "", errors.New("must be the MAC address of one device, not a group or zero")
	}
	return mac.String(), nil
}
