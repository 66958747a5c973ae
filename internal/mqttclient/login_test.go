//go:build unix

package mqttclient_test

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
	"github.com/ferrulehq/ferrule/internal/ops/localca"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestLogin: a wrong password is reported in plain words, the file is read again at each
// attempt, and neither log nor state contains a credential.
func TestLogin(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{Users: map[string]string{"anna": "right-one"}})
	file := filepath.Join(t.TempDir(), "password")
	cfg := config(broker.URL)
	cfg.User, cfg.PasswordFile = "anna", file
	if reason := failure(t, cfg); !strings.Contains(reason, "password_file: ") {
		t.Errorf("no file: %s", reason)
	}
	write(t, file, "wrong-one\n")
	var log lockedBuffer
	client := mqttclient.New(cfg, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	run(t, client)
	wait.For(t, "the refusal", func() bool { return strings.Contains(client.State().Reason, "wrong user or password") })
	write(t, file, "right-one\n")
	connection(t, client)
	text := log.String() + client.State().Reason
	if strings.Contains(text, "-one") || strings.Contains(text, "anna") {
		t.Errorf("a credential is in the log: %s", text)
	}
	if n := strings.Count(text, "no connection to the broker"); n != 1 {
		t.Errorf("the same reason was logged %d times", n)
	}
}

// TestTLS: the right CA connects; whatever is wrong is named.
func TestTLS(t *testing.T) {
	server, err := localca.Init(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := localca.Init(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := clientCertificate(t)
	broker := mosquitto.Start(t, mosquitto.Options{CA: cert, Cert: server.Cert, Key: server.Key})
	strict := mosquitto.Start(t, mosquitto.Options{CA: cert, Cert: server.Cert, Key: server.Key, Lines: []string{"require_certificate true"}})
	plain := mosquitto.Start(t, mosquitto.Options{})

	cfg := config(broker.URL)
	cfg.CA = server.CA
	_, conn := connect(t, cfg)
	if err := conn.Publish(t.Context(), mqttclient.Publication{Topic: "a", Payload: make([]byte, 100<<10)}); err != nil {
		t.Error(err)
	}
	cfg.URL, cfg.Cert, cfg.Key = strict.URL, cert, key
	connect(t, cfg)

	for name, test := range map[string]struct{ url, ca, want string }{
		"another CA":     {broker.URL, other.CA, "unknown authority: set ca"},
		"CA of system":   {broker.URL, "", "unknown authority: set ca"},
		"no certificate": {strict.URL, server.CA, "set cert and key"},
		"TLS to plain":   {strings.Replace(plain.URL, "mqtt:", "mqtts:", 1), server.CA, "TLS"},
		"plain to TLS":   {strings.Replace(broker.URL, "mqtts:", "mqtt:", 1), "", "use mqtts://"},
		"no such file":   {broker.URL, "/no/such/file", "ca: open"},
		"no PEM":         {broker.URL, server.CAKey, "no certificate in PEM"},
	} {
		cfg := config(test.url)
		cfg.CA = test.ca
		if reason := failure(t, cfg); !strings.Contains(reason, test.want) {
			t.Errorf("%s: want %q, got %q", name, test.want, reason)
		}
	}
}

// TestUnreachable: brokers that are not there are reported in plain words.
func TestUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := listener.Addr().String()
	listener.Close()
	web := fake(t, func(conn net.Conn) {
		readPacket(bufio.NewReader(conn))
		conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	})
	for url, want := range map[string]string{
		"mqtt://" + closed:            "nothing listens at " + closed,
		"mqtt://no-such-host.invalid": "host no-such-host.invalid is not known",
		"mqtt://" + web:               "not an MQTT broker",
	} {
		if reason := failure(t, config(url)); !strings.Contains(reason, want) {
			t.Errorf("%s: want %q, got %q", url, want, reason)
		}
	}
}

// TestConfig: each problem names its key, and no password is shown.
func TestConfig(t *testing.T) {
	good := config("mqtt://h")
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*mqttclient.Config){
		"url: must be mqtt://":             func(c *mqttclient.Config) { c.URL = "http://h" },
		"url: must be mqtt://HOST":         func(c *mqttclient.Config) { c.URL = "mqtt://" },
		"url: must not contain a user":     func(c *mqttclient.Config) { c.URL = "mqtt://anna:hidden@h" },
		"url: must be mqtt://HOST[":        func(c *mqttclient.Config) { c.URL = "mqtt://h/path" },
		"url: must be mqtt://HOST[:":       func(c *mqttclient.Config) { c.URL = "mqtt://anna:hidden@h:x" },
		"url: must start with mqtts":       func(c *mqttclient.Config) { c.CA = "f" },
		"user: must be set":                func(c *mqttclient.Config) { c.PasswordFile = "f" },
		"user: must be valid":              func(c *mqttclient.Config) { c.User = "a\x00" },
		"password: must not be set":        func(c *mqttclient.Config) { c.User, c.Password, c.PasswordFile = "a", ferrule.Secret("hidden"), "f" },
		"key: must be set":                 func(c *mqttclient.Config) { c.URL, c.Cert = "mqtts://h", "f" },
		"cert: must be set":                func(c *mqttclient.Config) { c.URL, c.Key = "mqtts://h", "f" },
		"retry_min: must be greater":       func(c *mqttclient.Config) { c.RetryMin = 0 },
		"retry_max: must not be":           func(c *mqttclient.Config) { c.RetryMax = 1 },
		"will: the topic has a wildcard":   func(c *mqttclient.Config) { c.Will = &mqttclient.Publication{Topic: "a/+"} },
		"client_id: must be valid text of": func(c *mqttclient.Config) { c.ClientID = strings.Repeat("x", 70000) },
	} {
		cfg := good
		change(&cfg)
		if err := cfg.Check(); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("want %s, got %v", want, err)
		}
	}
}

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// clientCertificate makes a certificate for a client, which signs itself.
func clientCertificate(t testing.TB) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true, IsCA: true,
	}
	template.Subject.CommonName = "client"
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key")
	write(t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
	return cert, key
}
