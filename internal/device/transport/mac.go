package transport

import (
	"errors"
	"net"
	"strings"
)

// ParseMAC puts the hardware address that a device gives as its own into lower
// case with colons. It may come with dashes or underscores, as in topics of MQTT.
func ParseMAC(s string) (string, error) {
	mac, err := net.ParseMAC(strings.ReplaceAll(s, "_", ":"))
	if err != nil || len(mac) != 6 {
		return "", errors.New("want the MAC address of the device, such as 98:a3:16:f9:d9:34")
	}
	if group := mac[0]&1 != 0; group || [6]byte(mac) == [6]byte{} {
		return "", errors.New("no device has this MAC address")
	}
	return mac.String(), nil
}
