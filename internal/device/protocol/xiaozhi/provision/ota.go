package provision

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

// OTAConfig is where devices connect. Firmware stores it, and prefers MQTT if it has
// both.
type OTAConfig struct {
	// MQTT is HOST:PORT of the broker, or empty. Firmware uses TLS only on port 8883.
	MQTT string
	// WebSocket is the URL of the server, or empty.
	WebSocket string
}

// Check returns an error if the configuration is invalid.
func (c OTAConfig) Check() error {
	if c.MQTT == "" && c.WebSocket == "" {
		return errors.New("an MQTT address or a WebSocket URL is required")
	}
	if c.MQTT != "" {
		host, port, err := net.SplitHostPort(c.MQTT)
		if n, bad := strconv.Atoi(port); err != nil || bad != nil || n < 1 || n > 65535 || host == "" {
			return fmt.Errorf("the MQTT address must be HOST:PORT, got %q", c.MQTT)
		}
		if strings.Contains(host, ":") {
			return fmt.Errorf("the MQTT host must not be an IPv6 address, which devices do not support, got %q", host)
		}
	}
	if c.WebSocket != "" {
		u, err := url.Parse(c.WebSocket)
		if err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Hostname() == "" {
			return fmt.Errorf("the WebSocket URL must start with ws:// or wss://, got %q", c.WebSocket)
		}
		if strings.Contains(u.Hostname(), ":") {
			return fmt.Errorf("the WebSocket host must not be an IPv6 address, which devices do not support, got %q", u.Hostname())
		}
	}
	return nil
}

// Credential is what a device connects with.
type Credential struct {
	ClientID, Username, Password string // on MQTT
	Token                        string // on a WebSocket
}

// Issuer gives each device its own credential. *Credentials implements it.
type Issuer interface {
	// Issue returns the credential of a device, or an error if it gets none. Anyone
	// can ask, and claim any identity.
	Issue(ctx context.Context, id Identity) (Credential, error)
}

// Admission decides which devices may connect. *Activation implements it.
type Admission interface {
	// Code returns "" for an admitted device. For any other it returns the digits
	// that the device shows and speaks until it is admitted.
	Code(ctx context.Context, id Identity) (code string)
}

// OTAParts is what NewOTA needs.
type OTAParts struct {
	Config OTAConfig
	Issuer Issuer
	// Admission may be nil: then every device is admitted.
	Admission Admission
	// Refused is called for each request that gets no credential. It may be nil.
	Refused func(r *http.Request, address string, why error)
}

// OTA is the HTTP handler that a device calls when it starts. It returns where to
// connect, the credential and the time. The user enters its URL on the Wi-Fi setup page
// of the device; any path works. A device waits for its admission at PATH/activate.
type OTA struct{ parts OTAParts }

// NewOTA returns the handler.
func NewOTA(p OTAParts) (*OTA, error) {
	if err := p.Config.Check(); err != nil {
		return nil, err
	}
	if p.Refused == nil {
		p.Refused = func(*http.Request, string, error) {}
	}
	return &OTA{p}, nil
}

// maxRequest is the longest request in bytes. Firmware sends about two thousand.
const maxRequest = 32 << 10

const otaHelp = "Devices with xiaozhi-esp32 firmware get their settings here.\nEnter this address in the OTA field of the device's Wi-Fi setup page.\n"

// ServeHTTP implements http.Handler.
func (o *OTA) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprint(w, otaHelp)
		return
	}
	id, err := readIdentity(w, r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	code := ""
	if o.parts.Admission != nil {
		code = digits(o.parts.Admission.Code(r.Context(), id))
	}
	switch {
	case !strings.HasSuffix(strings.TrimSuffix(r.URL.Path, "/"), "/activate"):
		o.configure(w, r, id, code)
	case code == "":
		w.WriteHeader(http.StatusOK)
	default:
		w.WriteHeader(http.StatusAccepted) // the device asks again in three seconds
	}
}

// digits returns the digits of a code: the device can speak nothing else.
func digits(code string) string {
	return strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, code)
}

// configure answers with the settings of the device. Only an admitted device learns
// where to connect.
func (o *OTA) configure(w http.ResponseWriter, r *http.Request, id Identity, code string) {
	now := time.Now()
	_, offset := now.Zone()
	reply := map[string]any{
		"server_time": map[string]any{"timestamp": now.UnixMilli(), "timezone_offset": offset / 60},
		"firmware":    map[string]any{"version": plainVersion(id.Version), "url": ""},
	}
	if code != "" {
		reply["activation"] = map[string]any{"code": code, "message": "ferrule\n" + code, "timeout_ms": 30000}
	} else if err := o.connect(r.Context(), id, reply); err != nil {
		o.parts.Refused(r, id.Address, err)
		http.Error(w, "this device is not admitted", http.StatusForbidden)
		return
	}
	data, err := json.Marshal(reply)
	if err != nil { // only strings and numbers
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Write(data)
}

// connect adds where to connect, and the credential.
func (o *OTA) connect(ctx context.Context, id Identity, reply map[string]any) error {
	c, err := o.parts.Issuer.Issue(ctx, id)
	if err != nil {
		return err
	}
	if endpoint := o.parts.Config.MQTT; endpoint != "" {
		reply["mqtt"] = map[string]any{
			"endpoint": endpoint, "client_id": c.ClientID, "username": c.Username, "password": c.Password,
			"publish_topic": "device-server", "keepalive": 240,
			"subscribe_topic": "null", // not used, but old firmware requires it
		}
	}
	if url := o.parts.Config.WebSocket; url != "" {
		reply["websocket"] = map[string]any{"url": url, "token": c.Token, "version": 1}
	}
	for _, section := range []string{"mqtt", "websocket"} {
		if settings, ok := reply[section].(map[string]any); ok {
			if err := checkSize(settings); err != nil {
				return fmt.Errorf("%s: %w", section, err)
			}
		}
	}
	return nil
}

// The limits of what a device can store. Beyond them it restarts in a loop.
const (
	maxKey   = 15
	maxValue = 3999
)

func checkSize(settings map[string]any) error {
	for key, value := range settings {
		text, _ := value.(string)
		if len(key) > maxKey || len(text) > maxValue {
			return fmt.Errorf("%s has %d bytes, limit of a device is %d", key, len(text), maxValue)
		}
	}
	return nil
}

var number = regexp.MustCompile(`[0-9]{1,6}`)

// plainVersion returns a version with digits and dots only: firmware crashes on any
// other.
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
