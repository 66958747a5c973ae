package xiaozhi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// OTAConfig tells devices where to connect. Firmware prefers MQTT if it is told
// both, and keeps what it was told once.
type OTAConfig struct {
	// MQTT is HOST:PORT of the broker; empty for none. Firmware uses TLS if the
	// port is 8883, and else not.
	MQTT string
	// WebSocket is the URL of the server; empty for none.
	WebSocket string
}

// Check tells what is wrong with the configuration.
func (c OTAConfig) Check() error {
	if c.MQTT == "" && c.WebSocket == "" {
		return errors.New("want an MQTT endpoint or a WebSocket URL")
	}
	if c.MQTT != "" {
		host, port, err := net.SplitHostPort(c.MQTT)
		if n, bad := strconv.Atoi(port); err != nil || bad != nil || n < 1 || n > 65535 || host == "" {
			return fmt.Errorf("want HOST:PORT for MQTT, got %q", c.MQTT)
		}
		if strings.Contains(host, ":") {
			return fmt.Errorf("devices have no IPv6; want another host than %q for MQTT", host)
		}
	}
	if c.WebSocket != "" {
		u, err := url.Parse(c.WebSocket)
		if err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Hostname() == "" {
			return fmt.Errorf("want ws://HOST:PORT/ or wss:// for the WebSocket, got %q", c.WebSocket)
		}
		if strings.Contains(u.Hostname(), ":") {
			return fmt.Errorf("devices have no IPv6; want another host than %q for the WebSocket", u.Hostname())
		}
	}
	return nil
}

// Credential is what a device shows when it connects.
type Credential struct {
	ClientID, Username, Password string // on MQTT
	Token                        string // on a WebSocket
}

// Issuer gives devices credentials of their own. *Credentials is one.
type Issuer interface {
	// Issue returns the credential of a device; an error if it is not to have
	// one. Anybody can ask, and say that they are any device.
	Issue(ctx context.Context, v Visitor) (Credential, error)
}

// Doorman decides which devices are let in at once.
type Doorman interface {
	// Admit returns nothing for a device that is let in. For another it returns
	// digits that the device shows and says, until it is let in.
	Admit(ctx context.Context, v Visitor) (code string)
}

// OTAParts is what an OTA is made of.
type OTAParts struct {
	Config OTAConfig
	Issuer Issuer
	// Doorman may be nil: then every device is let in.
	Doorman Doorman
	// Refused is told of who gets no credential, and why, each time that they ask. It
	// may be nil.
	Refused func(r *http.Request, address string, why error)
}

// OTA is the HTTP handler that a device asks after it has started: where to
// connect, with what, and what time it is. Its URL is put into the device on the
// page where its Wi-Fi is set up; any path will do. Below it, /activate is where a
// device waits to be let in.
type OTA struct{ parts OTAParts }

// NewOTA makes the handler.
func NewOTA(p OTAParts) (*OTA, error) {
	if err := p.Config.Check(); err != nil {
		return nil, err
	}
	if p.Refused == nil {
		p.Refused = func(*http.Request, string, error) {}
	}
	return &OTA{p}, nil
}

// maxVisit is the longest request in bytes. Firmware sends about two thousand.
const maxVisit = 32 << 10

const otaHelp = "Devices with xiaozhi-esp32 firmware ask here where to connect.\nPut this address into the OTA field of the page where the device's Wi-Fi is set up.\n"

// ServeHTTP implements http.Handler.
func (o *OTA) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprint(w, otaHelp)
		return
	}
	v, err := readVisitor(w, r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	code := ""
	if o.parts.Doorman != nil {
		code = digits(o.parts.Doorman.Admit(r.Context(), v))
	}
	switch {
	case !strings.HasSuffix(strings.TrimSuffix(r.URL.Path, "/"), "/activate"):
		o.configure(w, r, v, code)
	case code == "":
		w.WriteHeader(http.StatusOK)
	default:
		w.WriteHeader(http.StatusAccepted) // it asks again in three seconds
	}
}

// digits is what of a code can be shown and said.
func digits(code string) string {
	return strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, code)
}

// configure answers with all that the device is to know. Where to connect is told
// to those that are let in only.
func (o *OTA) configure(w http.ResponseWriter, r *http.Request, v Visitor, code string) {
	now := time.Now()
	_, offset := now.Zone()
	reply := map[string]any{
		"server_time": map[string]any{"timestamp": now.UnixMilli(), "timezone_offset": offset / 60},
		"firmware":    map[string]any{"version": plainVersion(v.Version), "url": ""},
	}
	if code != "" {
		reply["activation"] = map[string]any{"code": code, "message": "ferrule\n" + code, "timeout_ms": 30000}
	} else if err := o.connect(r.Context(), v, reply); err != nil {
		o.parts.Refused(r, v.Address, err)
		http.Error(w, "this device is not let in", http.StatusForbidden)
		return
	}
	data, err := json.Marshal(reply)
	if err != nil { // it is made of texts and numbers
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Write(data)
}

// connect adds where to connect, and with what.
func (o *OTA) connect(ctx context.Context, v Visitor, reply map[string]any) error {
	c, err := o.parts.Issuer.Issue(ctx, v)
	if err != nil {
		return err
	}
	if endpoint := o.parts.Config.MQTT; endpoint != "" {
		reply["mqtt"] = map[string]any{
			"endpoint": endpoint, "client_id": c.ClientID, "username": c.Username, "password": c.Password,
			"publish_topic": "device-server", "keepalive": 240,
			"subscribe_topic": "null", // firmware subscribes to nothing; old one fails without it
		}
	}
	if url := o.parts.Config.WebSocket; url != "" {
		reply["websocket"] = map[string]any{"url": url, "token": c.Token, "version": 1}
	}
	for _, section := range []string{"mqtt", "websocket"} {
		if settings, ok := reply[section].(map[string]any); ok {
			if err := keepable(settings); err != nil {
				return fmt.Errorf("%s: %w", section, err)
			}
		}
	}
	return nil
}

// The bounds of what a device can keep: beyond them it starts anew, again and
// again.
const (
	maxKey   = 15
	maxValue = 3999
)

func keepable(settings map[string]any) error {
	for key, value := range settings {
		text, _ := value.(string)
		if len(key) > maxKey || len(text) > maxValue {
			return fmt.Errorf("%s has %d bytes; a device can keep %d", key, len(text), maxValue)
		}
	}
	return nil
}

var number = regexp.MustCompile(`[0-9]{1,6}`)

// plainVersion is a version in digits and dots: firmware crashes on any other. It
// is the device's own, as there is no other for it.
func plainVersion(version string) string {
	var parts []string
	for _, part := range strings.SplitN(version, ".", 4) {
		if n := number.FindString(part); n != "" && len(parts) < 3 {
			parts = append(parts, n)
		}
	}
	if len(parts) == 0 {
		return "0.0.0"
	}
	return strings.Join(parts, ".")
}
