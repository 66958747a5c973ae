package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport/inbound"
	"github.com/ferrulehq/ferrule/internal/device/transport/mqtt"
	"github.com/ferrulehq/ferrule/internal/device/transport/websocket"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// check returns the first problem of the section, starting with the key.
func (d DialIn) check() error {
	for key, address := range map[string]string{"listen": d.Listen, "mqtt": d.MQTT, "mqtt_address": d.MQTTAddress} {
		if _, err := portOf(address); err != nil && address != "" && !(key == "mqtt" && address == mqttOff) {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	if err := d.TLS.check(); err != nil {
		return err
	}
	if d.Listen == "" && (d.MQTT != "" || d.URL != "" || d.MQTTAddress != "" || d.TLS != (TLS{})) {
		return errors.New("listen: must be set, because devices get their credentials there")
	}
	if u, err := url.Parse(d.URL); d.URL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.User != nil) {
		return fmt.Errorf("url: must be a URL such as http://192.168.1.10:3380, got %q", ferrule.MaskURL(d.URL))
	}
	if d.TLS != (TLS{}) && strings.HasPrefix(d.URL, "http:") {
		return fmt.Errorf("url: must start with https://, because dial_in.tls is set, got %q", d.URL)
	}
	if err := d.inbound(nil).Check(); err != nil {
		return fmt.Errorf("devices and per_host: %w", err)
	}
	return nil
}

func portOf(address string) (uint64, error) {
	_, port, err := net.SplitHostPort(address)
	n, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || perr != nil {
		return 0, fmt.Errorf("must be HOST:PORT, got %q", ferrule.MaskURL(address))
	}
	return n, nil
}

// mqttTLSPort is the port at which stock firmware uses TLS. It uses none at any other.
const mqttTLSPort = 8883

// MQTTListen returns the address for MQTT; empty for none. The default is the port after
// Listen, or the one for TLS.
func (d DialIn) MQTTListen() string {
	switch d.MQTT {
	case mqttOff:
		return ""
	case "":
	default:
		return d.MQTT
	}
	host, _, _ := net.SplitHostPort(d.Listen) // checked before
	port, _ := portOf(d.Listen)
	switch {
	case port == 0: // any free port
	case d.TLS != (TLS{}):
		port = mqttTLSPort
	default:
		port++
	}
	return net.JoinHostPort(host, strconv.FormatUint(port, 10))
}

// CheckMQTT returns why stock firmware cannot connect to the MQTT listener, which devices
// reach at an address, if so.
func (d DialIn) CheckMQTT(address string) error {
	port, _ := portOf(address) // checked before
	own, _ := portOf(d.MQTTListen())
	switch encrypted := d.TLS != (TLS{}); {
	case encrypted && port != mqttTLSPort:
		return fmt.Errorf("stock firmware uses TLS for MQTT only at port %d, so it cannot connect to %s; set dial_in.mqtt to HOST:%d, or to off", mqttTLSPort, address, mqttTLSPort)
	case !encrypted && port == mqttTLSPort && own == mqttTLSPort: // else a proxy has the certificate
		return fmt.Errorf("stock firmware uses TLS for MQTT at port %d, so it cannot connect to %s; set dial_in.tls, or another port", mqttTLSPort, address)
	}
	return nil
}

// inbound returns the limits of inbound connections. Each device may reconnect about once
// a minute, and all devices of a host at the same time.
func (d DialIn) inbound(protocols []string) inbound.Config {
	out := inbound.DefaultConfig()
	out.Protocols, out.Max, out.PerHost = protocols, d.Devices, d.PerHost
	out.Host = inbound.Rate{Burst: d.PerHost, Every: time.Minute / time.Duration(max(1, d.PerHost))}
	return out
}

// Visits returns the limits of HTTP requests by devices, one request per connection. Each
// device asks where to connect, may wait for activation, opens a WebSocket, and uploads a
// picture now and then.
func (d DialIn) Visits() inbound.Config {
	out := d.inbound(nil)
	n := max(4*d.PerHost, 64)
	out.Host = inbound.Rate{Burst: n, Every: time.Minute / time.Duration(n)}
	return out
}

// WebSocket returns the config of the WebSocket transport, with the protocols to try.
func (d DialIn) WebSocket(protocols []string) websocket.Config {
	out := websocket.DefaultConfig()
	out.Inbound = d.inbound(protocols)
	return out
}

// Broker returns the config of the MQTT broker, with the protocols to try.
func (d DialIn) Broker(protocols []string) mqtt.Config {
	out := mqtt.DefaultConfig()
	out.Inbound = d.inbound(protocols)
	return out
}
