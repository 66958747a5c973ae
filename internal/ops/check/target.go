package check

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Target is the device to test.
type Target struct {
	kind string // serial, tcp, http, ws or mqtt
	text string // a path, HOST:PORT or a URL
	url  *url.URL
}

// String returns the target as the user wrote it, without a password.
func (t Target) String() string { return ferrule.MaskURLs(t.text) }

// ParseTarget reads a target from the command line.
func ParseTarget(text string) (Target, error) {
	scheme, rest, isURL := strings.Cut(text, "://")
	if !isURL {
		if _, port, err := net.SplitHostPort(text); err == nil && port != "" && !strings.ContainsAny(text, `/\`) {
			return Target{kind: "tcp", text: text}, nil
		}
		if strings.ContainsAny(text, `/\`) || strings.HasPrefix(strings.ToUpper(text), "COM") {
			return Target{kind: "serial", text: text}, nil
		}
		return Target{}, errTarget(text)
	}
	switch scheme {
	case "tcp":
		return ParseTarget(strings.TrimSuffix(rest, "/"))
	case "serial":
		return Target{kind: "serial", text: rest}, nil
	}
	u, err := url.Parse(text)
	if err != nil {
		return Target{}, errTarget(ferrule.MaskURLs(text))
	}
	kinds := map[string]string{"http": "http", "https": "http", "ws": "ws", "wss": "ws", "mqtt": "mqtt", "mqtts": "mqtt"}
	if kinds[u.Scheme] == "" || u.Host == "" {
		return Target{}, errTarget(ferrule.MaskURLs(text))
	}
	return Target{kind: kinds[u.Scheme], text: text, url: u}, nil
}

// listens reports whether the device connects to this computer.
func (t Target) listens() bool {
	host := t.url.Hostname()
	return host == "" || host == "0.0.0.0"
}

func errTarget(text string) error {
	err := fmt.Errorf("target must be a serial port such as /dev/ttyACM0, HOST:PORT, or a URL with http, https, ws, wss, mqtt or mqtts, got %q", text)
	if ferrule.CheckID(text) == nil {
		err = fmt.Errorf("%w. To check a device of a running gateway, see its address with `ferrule describe %s`, then run `ferrule release %s -- ferrule check TARGET`", err, text, text)
	}
	return err
}

// Run tests a device. It returns an error if there is nothing to report: the target cannot
// be opened, or ctx has ended.
func Run(ctx context.Context, target Target, o Options) (*Report, error) {
	switch target.kind {
	case "serial", "tcp":
		return checkMCPU(ctx, target, o)
	case "http":
		return checkHTTP(ctx, target, o)
	case "ws":
		if !target.listens() {
			return checkSocket(ctx, target, o)
		}
	case "mqtt":
		if !target.listens() {
			return checkBroker(ctx, target, o)
		}
	}
	return checkToy(ctx, target, o)
}

// Help is the help text of the command.
const Help = `Test whether the firmware of a device follows its protocol, and how it copes with cut
lines, long requests, several requests at once and clients that come back. TARGET is:

  /dev/ttyACM0, COM3      a serial port with a board that speaks MCP/U
  HOST:PORT               a board that speaks MCP/U over TCP
  http://HOST/PATH        an MCP server over HTTP, or https
  ws://HOST/PATH          an MCP server or a voice toy that listens, or wss
  mqtt://BROKER/SERVER    an MCP server on an MQTT broker, or mqtts
  ws://:PORT, mqtt://:PORT  wait for a voice toy whose OTA URL is this computer

Every finding has an ID that does not change, what was sent and received, how to fix it,
and the paragraph of the protocol page. The score begins at 100: a fatal finding costs
100, a fault 15, a weakness 5, a note nothing. The exit code is 1 if the score is below
100.

The check talks to the device itself, so the port must be free: see the last example. It
calls only tools that are known to read, and tools that ask to be polled. On an MCP/U
board, --actuate also inverts each digital output and sets it back, and sets PWM outputs
to 0; on other devices it changes nothing. Opening a port restarts most boards, and a
restart switches outputs off. A check takes less than a minute. Nobody else should use
the device meanwhile.`
