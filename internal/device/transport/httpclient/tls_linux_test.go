package httpclient_test

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/httpclient"
)

// TestMain makes the certificate of test servers one that this system trusts. It is for
// 127.0.0.1 and example.com.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	server := httptest.NewTLSServer(nil)
	trusted := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	server.Close()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "trusted.pem")
	if err := os.WriteFile(file, trusted, 0o600); err != nil {
		panic(err)
	}
	os.Setenv("SSL_CERT_FILE", file)
	return m.Run()
}

// TestTLS: requests go to the device that its certificate names, and share a connection.
func TestTLS(t *testing.T) {
	var conns, requests atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		body, _ := io.ReadAll(r.Body)
		w.Write(body)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	server.StartTLS()
	defer server.Close()
	link, url, client := open(t, httpclient.Device{URL: server.URL, Token: "secret"}, patient)
	long := strings.Repeat("x", 100<<10)
	for _, body := range []string{"{}", long, "{}"} {
		if status, answer, err := post(client, url, body); status != http.StatusOK || answer != body || err != nil {
			t.Errorf("%d, %d bytes, %v", status, len(answer), err)
		}
	}
	link.Close()
	if conns.Load() != 1 || requests.Load() != 3 {
		t.Errorf("%d requests on %d connections", requests.Load(), conns.Load())
	}

	other := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	_, url, client = open(t, httpclient.Device{URL: other}, patient)
	if _, _, err := post(client, url, "{}"); err == nil || !strings.Contains(err.Error(), "certificate") || !errors.Is(err, transport.ErrUnsent) || requests.Load() != 3 {
		t.Errorf("the certificate is for another name: %v, %d requests", err, requests.Load())
	}

	_, url, client = open(t, httpclient.Device{URL: plainServer(t)}, patient)
	if _, _, err := post(client, url, "{}"); err == nil || !errors.Is(err, transport.ErrUnsent) || !strings.Contains(err.Error(), "use http in its URL") {
		t.Errorf("a device without TLS: %v", err)
	}
}

// plainServer returns the https URL of a server that answers whatever it gets without TLS.
func plainServer(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	return strings.Replace(server.URL, "http:", "https:", 1)
}

// TestIdleNoiseTLS: TLS may have received what the socket no longer has.
func TestIdleNoiseTLS(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	idleNoise(t, 4, func(t testing.TB, answer func(conn net.Conn, n int) bool) *speaker {
		return speakerAt(t, "https", answer, func(ln net.Listener) net.Listener { return tls.NewListener(ln, server.TLS.Clone()) })
	})
}
