package hardware

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ferrulehq/ferrule/internal/kernelfs"
	"github.com/ferrulehq/ferrule/thing"
)

// WiFiConfig configures the tool about Wi-Fi. A field that is not set has the default that its
// comment names.
type WiFiConfig struct {
	// Name is the prefix of the tool. Default: wifi.
	Name string
	// Interface is the network interface, such as wlan0. Default: the first that has Wi-Fi.
	Interface string
	// Poll is the interval at which the gateway records the signal. Default: never.
	Poll time.Duration
}

// WiFiInfo describes the connection of a Wi-Fi interface.
type WiFiInfo struct {
	Interface string `json:"interface"`
	Connected bool   `json:"connected"`
	MAC       string `json:"mac,omitempty"`
	// Addresses are its IP addresses with the length of their network.
	Addresses []string `json:"addresses,omitempty"`
	// SSID, Frequency and Signal are missing if the driver does not report them.
	SSID      string   `json:"ssid,omitempty" jsonschema:"the name of the network"`
	Frequency float64  `json:"frequency_mhz,omitempty"`
	Signal    *float64 `json:"signal_dbm,omitempty" jsonschema:"nearer to 0 is better"`
	Link      *float64 `json:"link_quality,omitempty" jsonschema:"often from 0 to 70"`
}

// WiFi adds the tool NAME_status to a device. It returns a [WiFiInfo].
func WiFi(d *thing.Device, config WiFiConfig) error {
	if _, err := ReadWiFi(config); err != nil {
		return err
	}
	t := naming(config.Name, "", "wifi", "")
	thing.Tool(d, t.tool("status"), "Get the state of the Wi-Fi connection: network, signal, addresses", func(context.Context, struct{}) (WiFiInfo, error) {
		return ReadWiFi(config)
	}, thing.Reads(), thing.Polled(config.Poll))
	return nil
}

// ReadWiFi describes the connection of a Wi-Fi interface.
func ReadWiFi(config WiFiConfig) (WiFiInfo, error) {
	if !supported {
		return WiFiInfo{}, ErrSystem
	}
	dir, err := findWiFi(config)
	if err != nil {
		return WiFiInfo{}, err
	}
	info := WiFiInfo{Interface: filepath.Base(dir)}
	state, err := kernelfs.Text(filepath.Join(dir, "operstate"))
	if err != nil {
		return info, fmt.Errorf("reading the state of %s: %w", info.Interface, err)
	}
	info.Connected = state == "up"
	if mac, err := kernelfs.Text(filepath.Join(dir, "address")); err == nil {
		info.MAC = shortened(mac)
	}
	if text, err := kernelfs.Text(kernelfs.Path("proc/net/wireless")); err == nil { // kernels may lack it
		info.Link, info.Signal = parseWireless(text, info.Interface)
	}
	if kernelfs.Root != "/" {
		return info, nil // the rest is about this computer
	}
	ssid, frequency := currentNetwork(info.Interface)
	info.SSID, info.Frequency = cleanSSID(ssid), frequency
	if i, err := net.InterfaceByName(info.Interface); err == nil {
		addresses, _ := i.Addrs() // an interface without any is not an error
		for _, a := range addresses {
			info.Addresses = append(info.Addresses, a.String())
		}
	}
	return info, nil
}

// findWiFi returns the folder of the interface in sysfs.
func findWiFi(config WiFiConfig) (dir string, err error) {
	folder := kernelfs.Path("sys/class/net")
	entries, err := os.ReadDir(folder)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if config.Interface != "" && e.Name() != config.Interface {
			continue
		}
		dir := filepath.Join(folder, e.Name())
		for _, mark := range []string{"phy80211", "wireless"} {
			if _, err := os.Stat(filepath.Join(dir, mark)); err == nil {
				return dir, nil
			}
		}
	}
	if config.Interface != "" {
		return "", fmt.Errorf("%s is not a Wi-Fi interface", config.Interface)
	}
	return "", errors.New("this computer has no Wi-Fi interface")
}

// parseWireless returns the quality of the link and the signal in dBm from /proc/net/wireless;
// nil for what the driver does not report.
func parseWireless(text, name string) (link, signal *float64) {
	for _, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 5 || fields[0] != name+":" {
			continue
		}
		// A trailing dot marks a value that is new.
		if n, err := strconv.ParseFloat(strings.TrimSuffix(fields[2], "."), 64); err == nil && n >= 0 && n <= 255 {
			link = &n
		}
		if n, err := strconv.ParseFloat(strings.TrimSuffix(fields[3], "."), 64); err == nil && n < 0 && n > -256 {
			signal = &n
		}
	}
	return link, signal
}

// cleanSSID returns a network's name for people. Strangers choose its bytes.
func cleanSSID(ssid []byte) string {
	if len(ssid) > 32 || !utf8.Valid(ssid) {
		return fmt.Sprintf("%q", ssid[:min(len(ssid), 32)])
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, string(ssid))
}
