package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport/inbound"
	"github.com/ferrulehq/ferrule/internal/device/transport/mqtt"
	"github.com/ferrulehq/ferrule/internal/device/transport/websocket"
)

// check tells what is wrong with the section, by key.
func (d DialIn) check() error {
	for key, address := range map[string]string{"listen": d.Listen, "mqtt": d.MQTT, "mqtt_address": d.MQTTAddress} {
		if _, err := portOf(address); err != nil && address != "" && !(key == "mqtt" && address == mqttOff) {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	if d.Listen == "" && (d.MQTT != "" || d.URL != "" || d.MQTTAddress != "") {
		return errors.New("listen: want where devices dial in first, as they get their credentials there")
	}
	if u, err := url.Parse(d.URL); d.URL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.User != nil) {
		return fmt.Errorf("url: want what devices reach listen under, such as http://192.168.1.10:3380, got %q", d.URL)
	}
	if err := d.lobby(nil).Check(); err != nil {
		return fmt.Errorf("devices and per_host: %w", err)
	}
	return nil
}

func portOf(address string) (uint64, error) {
	_, port, err := net.SplitHostPort(address)
	n, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || perr != nil {
		return 0, fmt.Errorf("want HOST:PORT, got %q", address)
	}
	return n, nil
}

// MQTTListen is where devices are served over MQTT; empty for nowhere. Without an
// address of its own it is at the next port.
func (d DialIn) MQTTListen() string {
	switch d.MQTT {
	case mqttOff:
		return ""
	case "":
	default:
		return d.MQTT
	}
	host, _, _ := net.SplitHostPort(d.Listen) // it was checked
	port, _ := portOf(d.Listen)
	if port != 0 { // else any will do
		port++
	}
	return net.JoinHostPort(host, strconv.FormatUint(port, 10))
}

// lobby is the config of how devices are let in. Each may come anew about once a
// minute, and all of a host at once.
func (d DialIn) lobby(dialects []string) inbound.Config {
	out := inbound.DefaultConfig()
	out.Protocols, out.Max, out.PerHost = dialects, d.Devices, d.PerHost
	out.Host = inbound.Rate{Burst: d.PerHost, Every: time.Minute / time.Duration(max(1, d.PerHost))}
	return out
}

// Visits is the config of how devices come over HTTP, with one request a connection: each
// asks where to connect, perhaps shows a code meanwhile, comes with a WebSocket, and sends
// a picture now and then.
func (d DialIn) Visits() inbound.Config {
	out := d.lobby(nil)
	n := max(4*d.PerHost, 64)
	out.Host = inbound.Rate{Burst: n, Every: time.Minute / time.Duration(n)}
	return out
}

// WebSocket is the config of the medium, with the dialects to try.
func (d DialIn) WebSocket(dialects []string) websocket.Config {
	out := websocket.DefaultConfig()
	out.Inbound = d.lobby(dialects)
	return out
}

// Broker is the config of MQTT, with the dialects to try.
func (d DialIn) Broker(dialects []string) mqtt.Config {
	out := mqtt.DefaultConfig()
	out.Inbound = d.lobby(dialects)
	return out
}
