package main

import (
	"context"
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

// door is where devices dial in.
//
//	POST /xiaozhi/ota/     where to connect, and with what credential
//	GET  /xiaozhi/v1/      a WebSocket
//	POST /xiaozhi/vision   a picture, while a call waits for it
//	MQTT                   at a port of its own
type door struct {
	log        *slog.Logger
	ledger     *provision.CredentialStore
	activation *provision.Activation // nil unless new devices show a code
	vision     *provision.Vision
	ws         *websocket.Connector
	mqtt       *mqtt.Connector // nil if there is none
	web        net.Listener
	broker     net.Listener // of MQTT; nil if there is none
	handler    http.Handler
	visits     *visits
	ota        string // what devices are told to ask
}

const (
	otaPath    = "/xiaozhi/ota/"
	socketPath = "/xiaozhi/v1/"
	visionPath = "/xiaozhi/vision"
)

// openDoor listens where the config says. It must be closed.
func openDoor(cfg config.DialIn, data string, log *slog.Logger) (d *door, err error) {
	d = &door{log: log}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("devices cannot dial in: %w", err), d.close())
		}
	}()
	if d.ledger, err = provision.OpenCredentialStore(data); err != nil {
		return d, err
	}
	if d.web, err = net.Listen("tcp", cfg.Listen); err != nil {
		return d, err
	}
	spoken := []string{xiaozhi.Name}
	d.ws = websocket.New(cfg.WebSocket(spoken), tokens{d.ledger.Credentials}, log)
	d.visits = &visits{lobby: inbound.New("http", cfg.Visits(), log)}
	base, err := baseURL(cfg.URL, d.web.Addr())
	if err != nil {
		return d, err
	}
	told := provision.OTAConfig{WebSocket: "ws" + strings.TrimPrefix(base, "http") + socketPath}
	if at := cfg.MQTTListen(); at != "" {
		if d.broker, err = net.Listen("tcp", at); err != nil {
			return d, err
		}
		d.mqtt = mqtt.New(cfg.Broker(spoken), d.broker, passwords{d.ledger.Credentials}, log)
		told.MQTT = mqttAddress(cfg.MQTTAddress, base, d.broker.Addr())
	}
	parts := provision.OTAParts{Config: told, Issuer: d.ledger, Refused: d.visits.refused}
	if cfg.Activation {
		d.activation = provision.NewActivation(d.ledger.Credentials, log)
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

// baseURL is what devices reach a listener under: what its owner says, or the
// address of this machine.
func baseURL(said string, at net.Addr) (string, error) {
	if said != "" {
		return strings.TrimSuffix(said, "/"), nil
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

// ownAddress is the address of this machine that others are most likely to reach.
// Nothing is sent to find it.
func ownAddress() (netip.Addr, error) {
	conn, err := net.Dial("udp4", "192.0.2.1:9") // an address for documents, beyond any network of one's own
	if err != nil {
		return netip.Addr{}, fmt.Errorf("this machine's address is not known; say in dial_in.url what devices reach it under: %w", err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

// mqttAddress is what devices reach the broker under.
func mqttAddress(said, base string, at net.Addr) string {
	if said != "" {
		return said
	}
	u, err := url.Parse(base)
	if err != nil { // it was checked, or made here
		panic(err)
	}
	_, port, _ := net.SplitHostPort(at.String()) // it is one
	return net.JoinHostPort(u.Hostname(), port)
}

// connectors are the media that devices dial in by.
func (d *door) connectors() []transport.Connector {
	if d.mqtt == nil {
		return []transport.Connector{d.ws}
	}
	return []transport.Connector{d.ws, d.mqtt}
}

// requestTime is how long a device may take to send a request, or to take an answer.
// A picture and a WebSocket have times of their own.
const requestTime = 10 * time.Second

// Run serves HTTP until ctx ends.
func (d *door) Run(ctx context.Context) error {
	d.log.Info("devices dial in: put " + d.ota + " into the OTA field of a device's Wi-Fi page")
	server := &http.Server{
		Handler:           d.handler,
		ReadHeaderTimeout: requestTime,
		ReadTimeout:       requestTime,
		WriteTimeout:      2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ConnState:         d.visits.state,
		ErrorLog:          slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
	}
	server.SetKeepAlivesEnabled(false) // connections are counted, so each is one request
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(d.web); ctx.Err() == nil {
		return fmt.Errorf("serving devices: %w", err)
	}
	return nil
}

// letIn lets in the device that shows a code, if one does. Whoever is there with its
// address is another.
func (d *door) letIn(code string) (ok bool, err error) {
	if d.activation == nil {
		return false, nil
	}
	address, ok, err := d.activation.Admit(code)
	if ok && err == nil {
		d.drop(address, errSuperseded)
	}
	return ok, err
}

// Why a connection ends whose credential is void.
var (
	errForgotten  = errors.New("the device was forgotten, and its credential with it")
	errSuperseded = errors.New("another device with its address was let in")
)

// forget makes the credential of a device void, if it has one, and ends its
// connection.
func (d *door) forget(address string) (void bool, err error) {
	if void, err = d.ledger.Forget(address); err != nil {
		return void, err
	}
	d.drop(address, errForgotten)
	return void, nil
}

// drop ends the connection of an address, if there is one.
func (d *door) drop(address string, why error) {
	d.ws.Drop(address, why)
	if d.mqtt != nil {
		d.mqtt.Drop(address, why)
	}
}

// close lets go of what openDoor opened.
func (d *door) close() error {
	for _, ln := range []net.Listener{d.web, d.broker} {
		if ln != nil {
			ln.Close() // it may be closed already
		}
	}
	if d.ledger != nil {
		return d.ledger.Close()
	}
	return nil
}

// errForeign is why a credential is refused that is another device's.
var errForeign = errors.New("its credential is another device's")

// tokens are what devices show on a WebSocket.
type tokens struct{ *provision.Credentials }

// Check implements ws.Credentials.
func (t tokens) Check(_ context.Context, _ netip.Addr, address, _, token string) (name string, adopted bool, err error) {
	whose, err := t.Credentials.Check(token)
	if err == nil && whose.Address != address {
		err = errForeign
	}
	return "", whose.Admitted, err
}

// passwords are what devices show on MQTT.
type passwords struct{ *provision.Credentials }

// Check implements mqtt.Credentials.
func (p passwords) Check(_ context.Context, _ netip.Addr, address, _, _, password string) (at, name string, adopted bool, err error) {
	whose, err := p.Credentials.Check(password)
	if err == nil && address != "" && whose.Address != address {
		err = errForeign
	}
	return whose.Address, "", whose.Admitted, err
}

// visits bounds the connections that have not become a WebSocket, by host: one that
// says nothing costs its own host.
type visits struct {
	lobby  *inbound.Registry
	places sync.Map // of lobby.Place, by connection
}

// state is the http.Server's ConnState.
func (v *visits) state(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		host := inbound.HostOf(conn.RemoteAddr().String())
		place, err := v.lobby.Accept(host)
		if err != nil {
			v.lobby.LogRefusal(host, "", err)
			conn.Close()
			return
		}
		v.places.Store(conn, place)
	case http.StateClosed, http.StateHijacked:
		if place, ok := v.places.LoadAndDelete(conn); ok {
			place.(*inbound.Conn).Release()
		}
	}
}

// refused notes that a device has got no credential.
func (v *visits) refused(r *http.Request, address string, why error) {
	v.lobby.LogRefusal(inbound.HostOf(r.RemoteAddr), address, why)
}
