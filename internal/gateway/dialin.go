package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/xiaozhi"
	"github.com/ferrulehq/ferrule/internal/device/protocol/xiaozhi/provision"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/inbound"
	"github.com/ferrulehq/ferrule/internal/device/transport/mqtt"
	"github.com/ferrulehq/ferrule/internal/device/transport/websocket"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// DialIn is the listener for devices that connect to the gateway: voice toys with
// xiaozhi firmware.
//
//	POST /xiaozhi/ota/     tells a device where to connect, and its credential
//	GET  /xiaozhi/v1/      WebSocket
//	POST /xiaozhi/vision   receives a picture while a call waits for it
//	MQTT                   on a port of its own
type DialIn struct {
	log         *slog.Logger
	credentials *provision.CredentialStore
	activation  *provision.Activation // nil unless new devices show a code
	vision      *provision.Vision
	ws          *websocket.Connector
	mqtt        *mqtt.Connector // nil if MQTT is off
	web         net.Listener
	broker      net.Listener // for MQTT; nil if MQTT is off
	certificate *certificate // of both listeners; nil without TLS
	handler     http.Handler
	hosts       *hostLimit
	ota         string // URL that devices are configured with
}

const (
	otaPath    = "/xiaozhi/ota/"
	socketPath = "/xiaozhi/v1/"
	visionPath = "/xiaozhi/vision"
)

// listenDialIn opens the listeners. The result must be closed.
func listenDialIn(cfg config.DialIn, data string, log *slog.Logger) (d *DialIn, err error) {
	d = &DialIn{log: log}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("listening for devices: %w", err), d.close())
		}
	}()
	if d.credentials, err = provision.OpenCredentialStore(data); err != nil {
		return d, err
	}
	if d.web, err = net.Listen("tcp", cfg.Listen); err != nil {
		return d, err
	}
	protocols := []string{xiaozhi.Name}
	d.ws = websocket.New(cfg.WebSocket(protocols), deviceTokens{d.credentials.Credentials}, log)
	d.hosts = &hostLimit{inbound: inbound.New("http", cfg.Visits(), log)}
	base, err := baseURL(cfg.URL, d.web.Addr())
	if err != nil {
		return d, err
	}
	if cfg.TLS != (config.TLS{}) {
		if d.certificate, err = openCertificate(cfg.TLS, log); err != nil {
			return d, err
		}
		if cfg.URL == "" {
			base = "https" + strings.TrimPrefix(base, "http")
		}
		d.certificate.warnUnlessFor(base)
	}
	answer := provision.OTAConfig{WebSocket: "ws" + strings.TrimPrefix(base, "http") + socketPath}
	if at := cfg.MQTTListen(); at != "" {
		if d.broker, err = net.Listen("tcp", at); err != nil {
			return d, err
		}
		answer.MQTT = mqttAddress(cfg.MQTTAddress, base, d.broker.Addr())
		if err := cfg.CheckMQTT(answer.MQTT); err != nil {
			log.Warn(err.Error())
		}
		if d.certificate != nil {
			d.broker = tls.NewListener(d.broker, d.certificate.config())
		}
		d.mqtt = mqtt.New(cfg.Broker(protocols), d.broker, passwords{d.credentials.Credentials}, log)
	}
	parts := provision.OTAParts{Config: answer, Issuer: d.credentials, Refused: d.hosts.refused}
	if cfg.Activation {
		d.activation = provision.NewActivation(d.credentials.Credentials, log)
		parts.Admission = d.activation
	}
	ota, err := provision.NewOTA(parts)
	if err != nil {
		return d, err
	}
	if d.vision, err = provision.NewVision(provision.VisionConfig{URL: base + visionPath}); err != nil {
		return d, err
	}
	mux := http.NewServeMux()
	mux.Handle(otaPath, ota)
	mux.Handle(socketPath, d.ws)
	mux.Handle(visionPath, d.vision)
	d.handler, d.ota = mux, base+otaPath
	return d, nil
}

// baseURL returns the URL at which devices reach a listener: the configured one, or one
// with the address of this machine.
func baseURL(configured string, at net.Addr) (string, error) {
	if configured != "" {
		return strings.TrimSuffix(configured, "/"), nil
	}
	to := at.(*net.TCPAddr).AddrPort()
	host := to.Addr().Unmap()
	if host.IsUnspecified() {
		var err error
		if host, err = ownAddress(); err != nil {
			return "", err
		}
	}
	return "http://" + netip.AddrPortFrom(host, to.Port()).String(), nil
}

// ownAddress returns the address of this machine that others are most likely to reach.
// It sends nothing.
func ownAddress() (netip.Addr, error) {
	conn, err := net.Dial("udp4", "192.0.2.1:9") // a documentation address: outside every local network
	if err != nil {
		return netip.Addr{}, fmt.Errorf("the address of this machine is unknown; set dial_in.url to the URL that devices use: %w", err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

// mqttAddress returns the address at which devices reach the broker.
func mqttAddress(configured, base string, at net.Addr) string {
	if configured != "" {
		return configured
	}
	u, err := url.Parse(base)
	if err != nil { // baseURL or the configuration check would have failed
		panic(err)
	}
	_, port, _ := net.SplitHostPort(at.String())
	return net.JoinHostPort(u.Hostname(), port)
}

// URL returns the address that devices are configured with.
func (d *DialIn) URL() string { return d.ota }

// Addr returns the address of the HTTP listener.
func (d *DialIn) Addr() net.Addr { return d.web.Addr() }

// MQTTAddr returns the address of the MQTT listener. MQTT must be on.
func (d *DialIn) MQTTAddr() net.Addr { return d.broker.Addr() }

// connectors returns the transports of devices that dial in.
func (d *DialIn) connectors() []transport.Connector {
	if d.mqtt == nil {
		return []transport.Connector{d.ws}
	}
	return []transport.Connector{d.ws, d.mqtt}
}

// invitation says how devices reach this gateway.
func invitation(ota string) string {
	u, err := url.Parse(ota)
	if err != nil {
		u = &url.URL{}
	}
	if ip, err := netip.ParseAddr(u.Hostname()); u.Hostname() == "localhost" || err == nil && ip.IsLoopback() {
		return "programs on this machine can dial in at " + ota + "; devices on Wi-Fi cannot: for them, use --device-listen 0.0.0.0:" + u.Port()
	}
	return "devices can dial in: enter " + ota + " as the OTA URL on the device's Wi-Fi page"
}

// requestTime limits how long a device may take to send a request. Pictures and
// WebSockets have limits of their own.
const requestTime = 10 * time.Second

// Run serves HTTP until ctx ends.
func (d *DialIn) Run(ctx context.Context) error {
	d.log.Info(invitation(d.ota))
	server := &http.Server{
		Handler:           d.handler,
		ReadHeaderTimeout: requestTime,
		ReadTimeout:       requestTime,
		WriteTimeout:      2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ConnState:         d.hosts.state,
		ErrorLog:          slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
	}
	server.SetKeepAlivesEnabled(false) // the limit counts connections, so each carries one request
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := d.certificate.serve(server, d.web); ctx.Err() == nil {
		return fmt.Errorf("serving devices: %w", err)
	}
	return nil
}

// waiting returns the devices that show a code.
func (g *Gateway) waiting() []provision.Waiting {
	if g.DialIn == nil || g.DialIn.activation == nil {
		return nil
	}
	return g.DialIn.activation.Waiting()
}

// activate admits the device that shows a code, and ends the connection of any other
// device with its address. It reports whether a device shows the code.
func (d *DialIn) activate(code string) (ok bool, err error) {
	if d.activation == nil {
		return false, nil
	}
	address, ok, err := d.activation.Admit(code)
	if ok && err == nil {
		d.drop(address, errSuperseded)
	}
	return ok, err
}

// The reasons for ending a connection whose credential is no longer valid.
var (
	errForgotten  = errors.New("the device was forgotten; its credential is no longer valid")
	errSuperseded = errors.New("another device with its address was adopted")
)

// forget revokes the credential of a device and ends its connection. It reports whether
// the device had a credential.
func (d *DialIn) forget(address string) (revoked bool, err error) {
	if revoked, err = d.credentials.Forget(address); err != nil {
		return revoked, err
	}
	d.drop(address, errForgotten)
	return revoked, nil
}

// drop ends the connection of an address, if there is one.
func (d *DialIn) drop(address string, reason error) {
	d.ws.Drop(address, reason)
	if d.mqtt != nil {
		d.mqtt.Drop(address, reason)
	}
}

// close releases what listenDialIn opened.
func (d *DialIn) close() error {
	for _, ln := range []net.Listener{d.web, d.broker} {
		if ln != nil {
			ln.Close() // may be closed already
		}
	}
	if d.credentials != nil {
		return d.credentials.Close()
	}
	return nil
}

var errForeign = errors.New("its credential belongs to another device")

// deviceTokens checks the credentials of WebSocket devices.
type deviceTokens struct{ *provision.Credentials }

// Check implements websocket.Credentials.
func (t deviceTokens) Check(_ context.Context, _ netip.Addr, address, _, token string) (name string, adopted bool, err error) {
	owner, err := t.Credentials.Check(token)
	if err == nil && owner.Address != address {
		err = errForeign
	}
	return "", owner.Admitted, err
}

// passwords checks the credentials of MQTT devices.
type passwords struct{ *provision.Credentials }

// Check implements mqtt.Credentials.
func (p passwords) Check(_ context.Context, _ netip.Addr, address, _, _, password string) (at, name string, adopted bool, err error) {
	owner, err := p.Credentials.Check(password)
	if err == nil && address != "" && owner.Address != address {
		err = errForeign
	}
	return owner.Address, "", owner.Admitted, err
}

// hostLimit limits the HTTP connections of each host. An idle connection uses up the
// share of its own host only. A WebSocket no longer counts.
type hostLimit struct {
	inbound *inbound.Registry
	places  sync.Map // *inbound.Conn by net.Conn
}

// state is the ConnState of the http.Server.
func (h *hostLimit) state(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		host := inbound.HostOf(conn.RemoteAddr().String())
		place, err := h.inbound.Accept(host)
		if err != nil {
			h.inbound.LogRefusal(host, "", err)
			conn.Close()
			return
		}
		h.places.Store(conn, place)
	case http.StateClosed, http.StateHijacked:
		if err := inbound.FailedHandshake(conn); err != nil {
			h.inbound.LogRefusal(inbound.HostOf(conn.RemoteAddr().String()), "", err)
		}
		if place, ok := h.places.LoadAndDelete(conn); ok {
			place.(*inbound.Conn).Release()
		}
	}
}

// refused records that a device was refused a credential.
func (h *hostLimit) refused(r *http.Request, address string, why error) {
	h.inbound.LogRefusal(inbound.HostOf(r.RemoteAddr), address, why)
}
