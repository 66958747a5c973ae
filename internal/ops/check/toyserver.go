package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/inbound"
	"github.com/ferrulehq/ferrule/internal/device/transport/mqtt"
	"github.com/ferrulehq/ferrule/internal/device/transport/websocket"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// toyServer is what a voice toy connects to: the check-in, and a WebSocket or MQTT.
type toyServer struct {
	overMQTT bool
	mqttPort int
	ln       net.Listener
	arrivals chan transport.Sighting

	mu   sync.Mutex
	odd  *oddVisit  // the last unusual check-in before the toy connected
	toy  string     // address of the first toy that connected
	host netip.Addr // that it connected from
}

// oddVisit is an unusual check-in.
type oddVisit struct {
	host   netip.Addr
	device string // its Device-Id; empty if that is not a MAC
	what   string
	body   string
}

// oddCheckIn returns what was unusual in the check-in of the toy; nil if nothing was. Check-ins
// of strangers do not count.
func (s *toyServer) oddCheckIn() *oddVisit {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.odd; v != nil && v.host == s.host && (v.device == "" || v.device == s.toy) {
		return v
	}
	return nil
}

var errOtherToy = errors.New("the check is about the device that connected first")

// admit makes the first toy the one that is tested, and refuses all others: a neighbor in
// the network could pose as the toy.
func (s *toyServer) admit(host netip.Addr, address string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.toy == "" {
		s.toy, s.host = address, host
	}
	if s.toy != address || s.host != host {
		return errOtherToy
	}
	return nil
}

// Check accepts the first toy with any token: this server exists for a minute, and the owner
// watches it.
func (s *toyServer) Check(_ context.Context, host netip.Addr, address, _, _ string) (string, bool, error) {
	return address, true, s.admit(host, address)
}

// mqttLogins accepts the first toy on MQTT.
type mqttLogins struct{ *toyServer }

func (l mqttLogins) Check(_ context.Context, host netip.Addr, address, clientID, _, _ string) (string, string, bool, error) {
	if address == "" {
		address = clientID
	}
	return address, address, true, l.admit(host, address)
}

// refuseWebPages refuses requests of web pages, which could pose as a toy. Toys send no Origin.
func refuseWebPages(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header.Values("Origin")) > 0 {
			http.Error(w, "this server is for devices, not for web pages", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// serveToys listens for a toy until ctx ends. Wait returns when everything has ended.
func serveToys(ctx context.Context, target Target) (s *toyServer, wait func(), err error) {
	s = &toyServer{overMQTT: target.kind == "mqtt", arrivals: make(chan transport.Sighting, 64)}
	if s.ln, err = net.Listen("tcp", target.url.Host); err != nil {
		return nil, nil, ferrule.Errorf(ferrule.Busy, "listening for the device: %w", err).WithHint("Choose a port that is free. If a gateway uses it, use another one and set the OTA URL of the device to it.")
	}
	quiet := slog.New(slog.DiscardHandler)
	var connector transport.Connector
	mux := http.NewServeMux()
	if s.overMQTT {
		host, _, _ := net.SplitHostPort(target.url.Host)
		ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			s.ln.Close()
			return nil, nil, err
		}
		s.mqttPort = ln.Addr().(*net.TCPAddr).Port
		cfg := mqtt.DefaultConfig()
		cfg.Inbound.Address.Burst = 1000
		connector = mqtt.New(cfg, ln, mqttLogins{s}, quiet)
	} else {
		cfg := websocket.DefaultConfig()
		cfg.Inbound.Address.Burst = 1000
		ws := websocket.New(cfg, s, quiet)
		connector = ws
		mux.Handle("/xiaozhi/v1/", ws) // the check-in may have any other path
	}
	mux.HandleFunc("/", s.checkIn)
	server := &http.Server{Handler: refuseWebPages(mux), ReadTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	var wg sync.WaitGroup
	wg.Go(func() { server.Serve(s.ln) })
	wg.Go(func() { connector.Watch(ctx, s.update) })
	stop := context.AfterFunc(ctx, func() { server.Close() })
	return s, func() { stop(); server.Close(); wg.Wait() }, nil
}

// update takes the connections of the toy; admit has refused all others.
func (s *toyServer) update(_ string, all []transport.Sighting) {
	for _, seen := range all {
		select {
		case s.arrivals <- seen:
		default: // it connects faster than anybody can look
		}
	}
}

// link returns the newest connection of the toy, or waits for one.
func (s *toyServer) link(ctx context.Context, limit time.Duration) (transport.Link, error) {
	timeout := time.After(limit)
	for {
		select {
		case seen := <-s.arrivals:
			if link, err := seen.Open(ctx); err == nil {
				return link, nil
			}
		case <-timeout:
			return nil, fmt.Errorf("no device connected within %v", limit)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// maxCheckIn is the size of the longest check-in.
const maxCheckIn = 64 << 10

// checkIn answers the first request of a toy: where to connect.
func (s *toyServer) checkIn(w http.ResponseWriter, r *http.Request) {
	host := inbound.HostOf(r.RemoteAddr)
	s.mu.Lock()
	other := s.toy != "" && s.host != host
	s.mu.Unlock()
	if other {
		http.Error(w, errOtherToy.Error(), http.StatusForbidden)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCheckIn))
	if err != nil {
		http.Error(w, "too long", http.StatusRequestEntityTooLarge)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/activate") {
		fmt.Fprintln(w, "{}")
		return
	}
	if what := judgeCheckIn(body, r.Header); what != "" {
		device, _ := transport.ParseMAC(r.Header.Get("Device-Id"))
		s.mu.Lock()
		if s.toy == "" {
			s.odd = &oddVisit{host, device, what, string(body)}
		}
		s.mu.Unlock()
	}
	own, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		own = r.Host
	}
	reply := map[string]any{
		"server_time": map[string]any{"timestamp": time.Now().UnixMilli(), "timezone_offset": 0},
		"firmware":    map[string]any{"version": "0.0.0", "url": ""},
	}
	if s.overMQTT {
		mac := strings.ReplaceAll(strings.ToLower(r.Header.Get("Device-Id")), ":", "_")
		reply["mqtt"] = map[string]any{
			"endpoint": net.JoinHostPort(own, strconv.Itoa(s.mqttPort)), "client_id": "GID_check@@@" + mac + "@@@" + r.Header.Get("Client-Id"),
			"username": "check", "password": "check", "publish_topic": "device-server", "subscribe_topic": "null", "keepalive": 240,
		}
	} else {
		reply["websocket"] = map[string]any{"url": "ws://" + r.Host + "/xiaozhi/v1/", "token": "check", "version": 1}
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(reply) // a device that has left asks again
}

// judgeCheckIn returns what is unusual in a check-in; "" if nothing is.
func judgeCheckIn(body []byte, h http.Header) string {
	var in struct {
		Version     *float64 `json:"version"`
		MAC         *string  `json:"mac_address"`
		UUID        *string  `json:"uuid"`
		Application *struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"application"`
		Board *struct {
			Type string `json:"type"`
		} `json:"board"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return jsonrpc.Reason(err)
	}
	switch {
	case in.MAC == nil || !strings.EqualFold(*in.MAC, h.Get("Device-Id")):
		return "mac_address is not the Device-Id of the header"
	case in.UUID == nil || in.Application == nil || in.Board == nil || in.Version == nil:
		return "version, uuid, application or board is missing"
	}
	return ""
}
