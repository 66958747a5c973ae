package check

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

const (
	firstMAC = "02:00:00:00:00:01"
	otherMAC = "02:00:00:00:00:02"
)

// startToys runs a server for toys until the test ends.
func startToys(t *testing.T) *toyServer {
	t.Helper()
	target, err := ParseTarget("ws://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s, wait, err := serveToys(ctx, target)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); wait() })
	return s
}

// connect sends the handshake of a WebSocket and returns the status of the answer.
func (s *toyServer) connect(t *testing.T, mac, header string) int {
	t.Helper()
	conn, err := net.Dial("tcp", s.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET /xiaozhi/v1/ HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nDevice-Id: %s\r\n%s\r\n", mac, header)
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	return r.StatusCode
}

// visit sends a check-in from an address and returns the status of the answer.
func (s *toyServer) visit(host, mac, body string) int {
	r := httptest.NewRequest(http.MethodPost, "/xiaozhi/ota/", strings.NewReader(body))
	r.RemoteAddr = net.JoinHostPort(host, "1234")
	r.Header.Set("Device-Id", mac)
	w := httptest.NewRecorder()
	s.checkIn(w, r)
	return w.Code
}

// TestWebPages checks that web pages can neither connect as a toy nor check in.
func TestWebPages(t *testing.T) {
	s := startToys(t)
	const origin = "Origin: https://web.example\r\n"
	for _, header := range []string{origin, "Origin: null\r\n", "Origin:\r\n"} {
		if status := s.connect(t, firstMAC, header); status != http.StatusForbidden {
			t.Errorf("a web page with %q got the status %d", header, status)
		}
	}
	req, err := http.NewRequest(http.MethodPost, "http://"+s.ln.Addr().String()+"/xiaozhi/ota/", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Origin", "https://web.example")
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusForbidden {
		t.Errorf("the check-in of a web page got the status %d", r.StatusCode)
	}
	if status := s.connect(t, firstMAC, ""); status != http.StatusSwitchingProtocols {
		t.Errorf("the toy got the status %d", status)
	}
}

// TestOtherToys checks that nobody but the first toy can connect, and that another computer can
// neither connect under its ID nor check in.
func TestOtherToys(t *testing.T) {
	s := startToys(t)
	if status := s.visit("192.0.2.7", otherMAC, "{}"); status != http.StatusOK {
		t.Errorf("before a toy has connected, a check-in got the status %d", status)
	}
	for i, test := range []struct {
		mac  string
		want int
	}{{firstMAC, http.StatusSwitchingProtocols}, {otherMAC, http.StatusForbidden}, {firstMAC, http.StatusSwitchingProtocols}} {
		if status := s.connect(t, test.mac, "Authorization: Bearer check\r\n"); status != test.want {
			t.Errorf("connection %d got the status %d", i+1, status)
		}
	}
	own, neighbor := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.7")
	if _, _, err := s.Check(t.Context(), neighbor, firstMAC, "", ""); err == nil {
		t.Error("a neighbor connects as the toy")
	}
	if _, _, _, err := (mqttLogins{s}).Check(t.Context(), neighbor, firstMAC, "", "", ""); err == nil {
		t.Error("a neighbor connects as the toy with MQTT")
	}
	if _, _, _, err := (mqttLogins{s}).Check(t.Context(), own, firstMAC, "", "", ""); err != nil {
		t.Error(err)
	}
	if status := s.visit("192.0.2.7", firstMAC, "{}"); status != http.StatusForbidden {
		t.Errorf("the check-in of a neighbor got the status %d", status)
	}
	if status := s.visit("127.0.0.1", firstMAC, "{}"); status != http.StatusOK {
		t.Errorf("the check-in of the toy got the status %d", status)
	}
}

// TestOddCheckIns checks that only the check-in of the toy is judged, and that the check-ins of
// strangers are not kept.
func TestOddCheckIns(t *testing.T) {
	const neighbor = "192.0.2.7"
	for name, test := range map[string]struct {
		visits [][2]string // host and Device-Id
		want   bool
	}{
		"the toy":                     {[][2]string{{"127.0.0.1", firstMAC}}, true},
		"the toy, after strangers":    {[][2]string{{neighbor, otherMAC}, {neighbor, firstMAC}, {"127.0.0.1", strings.ReplaceAll(firstMAC, ":", "-")}}, true},
		"the toy, without Device-Id":  {[][2]string{{"127.0.0.1", ""}}, true},
		"another toy":                 {[][2]string{{"127.0.0.1", otherMAC}}, false},
		"a neighbor with the same ID": {[][2]string{{neighbor, firstMAC}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := startToys(t)
			for _, v := range test.visits {
				s.visit(v[0], v[1], "{}")
			}
			s.connect(t, firstMAC, "")
			for range 3 {
				s.visit("127.0.0.1", otherMAC, `{"later":true}`)
			}
			odd := s.oddCheckIn()
			if (odd != nil) != test.want || odd != nil && odd.body != "{}" {
				t.Errorf("got %+v", odd)
			}
		})
	}
}
