package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/ops/localca"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// safeLog is a log that is read while it is written.
type safeLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *safeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *safeLog) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

func initTLS(t *testing.T, dir string) (localca.Made, *tls.Config) {
	t.Helper()
	made, err := localca.Init(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	root, err := localca.ReadCertificate(made.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(root)
	return made, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}
}

// TestDialInTLS: both listeners serve devices with TLS only. Devices get URLs with TLS, and
// another certificate is used while the gateway runs.
func TestDialInTLS(t *testing.T) {
	dir := t.TempDir()
	made, trusting := initTLS(t, dir)
	_, wrong := initTLS(t, t.TempDir())
	log := new(safeLog)
	cfg := config.DialIn{Listen: "127.0.0.1:0", Devices: 1000, PerHost: 1000, TLS: config.TLS{Cert: made.Cert, Key: made.Key}}
	d, err := listenDialIn(cfg, t.TempDir(), slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wg.Go(func() { d.Run(ctx) })
	for _, c := range d.connectors() {
		wg.Go(func() { c.Watch(ctx, func(string, []transport.Sighting) {}) })
	}
	if !strings.HasPrefix(d.URL(), "https://127.0.0.1:") {
		t.Errorf("devices are told %s", d.URL())
	}
	if log.count("only at port 8883") != 1 { // stock firmware could not use this port
		t.Errorf("the log says %s", &log.text)
	}
	addresses := map[string]string{"http": d.Addr().String(), "mqtt": d.MQTTAddr().String()}
	for name, address := range addresses {
		if err := handshake(address, trusting); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var unknown x509.UnknownAuthorityError
		if err := handshake(address, wrong); !errors.As(err, &unknown) {
			t.Errorf("%s: another CA: %v", name, err)
		}
		old := trusting.Clone()
		old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		if err := handshake(address, old); err == nil {
			t.Errorf("%s: TLS 1.1 was accepted", name)
		}
		before := log.count("it connected without TLS, and dial_in.tls is set")
		if said := plainly(t, address); strings.Contains(said, "Enter this address") || strings.HasPrefix(said, "\x20") {
			t.Errorf("%s: without TLS: %q", name, said)
		}
		wait.For(t, "the hint for "+name, func() bool {
			return log.count("it connected without TLS, and dial_in.tls is set") > before
		})
	}
	deviceTalks(t, d, trusting)

	// Another certificate of the same CA, while both listeners run.
	was := serialOf(t, addresses["http"], trusting)
	again, _ := initTLS(t, dir)
	if again.NewCA {
		t.Fatal("the CA was replaced")
	}
	for name, address := range addresses {
		wait.For(t, "another certificate for "+name, func() bool { return serialOf(t, address, trusting) != was })
	}
}

func handshake(address string, cfg *tls.Config) error {
	conn, err := tls.Dial("tcp", address, cfg)
	if err != nil {
		return err
	}
	defer conn.Close()
	if v := conn.ConnectionState().Version; v < tls.VersionTLS12 {
		return fmt.Errorf("version %x", v)
	}
	return nil
}

func serialOf(t *testing.T, address string, cfg *tls.Config) string {
	t.Helper()
	conn, err := tls.Dial("tcp", address, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// plainly sends an HTTP request without TLS, which MQTT does not understand either.
func plainly(t *testing.T, address string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(wait.Ample))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", otaPath, address)
	said, _ := io.ReadAll(conn)
	return string(said)
}

// deviceTalks asks for settings, and connects with them, as a device does.
func deviceTalks(t *testing.T, d *DialIn, trusting *tls.Config) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{TLSClientConfig: trusting, DisableKeepAlives: true}, Timeout: wait.Ample}
	answer, err := client.Post(d.URL(), "application/json", strings.NewReader(`{"mac_address":"02:00:00:00:00:01","uuid":"7b94d69a-9808-4c59-9c9b-704333b38aff"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var settings struct {
		WebSocket struct{ URL, Token string }
		MQTT      struct {
			Endpoint, Username, Password string
			ClientID                     string `json:"client_id"`
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&settings); err != nil {
		t.Fatal(err)
	}
	if settings.WebSocket.URL != "wss://"+d.Addr().String()+socketPath || settings.MQTT.Endpoint != d.MQTTAddr().String() {
		t.Errorf("the device gets %+v", settings)
	}

	conn, err := tls.Dial("tcp", d.Addr().String(), trusting)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(wait.Ample))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nDevice-Id: 02:00:00:00:00:01\r\nClient-Id: 7b94d69a-9808-4c59-9c9b-704333b38aff\r\nAuthorization: Bearer %s\r\n\r\n", socketPath, d.Addr(), settings.WebSocket.Token)
	if status, err := bufio.NewReader(conn).ReadString('\n'); !strings.Contains(status, "101") {
		t.Errorf("WebSocket: got %q, %v", status, err)
	}

	broker, err := tls.Dial("tcp", d.MQTTAddr().String(), trusting)
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	broker.SetDeadline(time.Now().Add(wait.Ample))
	body := []byte("\x00\x04MQTT\x04\xc2\x00\xf0")
	for _, text := range []string{settings.MQTT.ClientID, settings.MQTT.Username, settings.MQTT.Password} {
		body = append(append(body, byte(len(text)>>8), byte(len(text))), text...)
	}
	packet := []byte{0x10, byte(len(body)%128 | 128), byte(len(body) / 128)}
	if _, err := broker.Write(append(packet, body...)); err != nil {
		t.Fatal(err)
	}
	ack := make([]byte, 4)
	if _, err := io.ReadFull(broker, ack); err != nil || !bytes.Equal(ack, []byte{0x20, 2, 0, 0}) {
		t.Errorf("MQTT: got %v, %v", ack, err)
	}
}

// TestServeTLS: the HTTP server needs TLS 1.2, and serves the root certificate that was
// made for its own.
func TestServeTLS(t *testing.T) {
	made, trusting := initTLS(t, t.TempDir())
	c, err := openCertificate(config.TLS{Cert: made.Cert, Key: made.Key}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: http.HandlerFunc(c.serveRoot), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	var wg sync.WaitGroup
	wg.Go(func() { c.serve(web, ln) })
	defer wg.Wait()
	defer web.Close()
	client := http.Client{Transport: &http.Transport{TLSClientConfig: trusting, DisableKeepAlives: true}, Timeout: wait.Ample}
	answer, err := client.Get("https://" + ln.Addr().String() + localca.RootPath)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	want, _ := os.ReadFile(made.CA)
	if err != nil || !bytes.Equal(got, want) || answer.Header.Get("Content-Type") != "application/x-x509-ca-cert" {
		t.Errorf("got %s, %v", got, err)
	}
	old := trusting.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	if err := handshake(ln.Addr().String(), old); err == nil {
		t.Error("TLS 1.1 was accepted")
	}

	// A certificate of somebody else has no root here.
	dir := t.TempDir()
	cert, key := newCertificate(t, 1)
	files := config.TLS{Cert: filepath.Join(dir, "server.crt"), Key: filepath.Join(dir, "server.key")}
	if err := errors.Join(os.WriteFile(files.Cert, cert, 0o600), os.WriteFile(files.Key, key, 0o600)); err != nil {
		t.Fatal(err)
	}
	if c, err = openCertificate(files, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	c.serveRoot(w, httptest.NewRequest(http.MethodGet, localca.RootPath, nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("got %d", w.Code)
	}
}

// TestKeepCertificates: a gateway renews a certificate that `ferrule tls init` made, and uses
// it. It warns about others.
func TestKeepCertificates(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		made, err := localca.Init(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		c, err := openCertificate(config.TLS{Cert: made.Cert, Key: made.Key}, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		g := &Gateway{certificate: c, DialIn: &DialIn{certificate: c}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.keepCertificates(ctx) }()
		time.Sleep(800 * 24 * time.Hour)
		got, err := c.get(nil)
		if err != nil || time.Until(got.Leaf.NotAfter) < 30*24*time.Hour {
			t.Errorf("the certificate in use is valid until %v, %v", got.Leaf.NotAfter, err)
		}
		if n := strings.Count(log.String(), "the certificate was renewed"); n != 2 {
			t.Errorf("renewed %d times: %s", n, &log)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}

		// Without the key of the CA it cannot be renewed.
		log.Reset()
		if err := os.Rename(made.CAKey, filepath.Join(other, "ca.key")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(380 * 24 * time.Hour)
		c.maintain()
		if !strings.Contains(log.String(), "the certificate was not renewed") || !strings.Contains(log.String(), "the key of the CA is missing") {
			t.Errorf("the log says %s", &log)
		}
	})
}
