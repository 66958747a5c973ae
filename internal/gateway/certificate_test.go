package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// TestCertificate: a certificate is read again when its files change. While they do not
// belong together, the previous one stays in use.
func TestCertificate(t *testing.T) {
	dir := t.TempDir()
	files := config.TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	write := func(path string, data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := openCertificate(files, nil); err == nil || !strings.Contains(err.Error(), files.Cert) {
		t.Errorf("got %v", err)
	}
	oldCert, oldKey := newCertificate(t, 1)
	newCert, newKey := newCertificate(t, 2)
	write(files.Cert, oldCert)
	write(files.Key, oldKey)
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		c, err := openCertificate(files, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		serial := func() int64 {
			t.Helper()
			time.Sleep(lookEvery)
			got, err := c.get(nil)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := x509.ParseCertificate(got.Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			return parsed.SerialNumber.Int64()
		}
		if n := serial(); n != 1 {
			t.Errorf("got certificate %d", n)
		}
		write(files.Cert, append(newCert, '\n')) // another size: the clock of the file system may be coarse
		for range 2 {
			if n := serial(); n != 1 || strings.Count(log.String(), "the previous one stays in use") != 1 {
				t.Errorf("got certificate %d, and the log says %s", n, &log)
			}
		}
		if err := os.Remove(files.Key); err != nil {
			t.Fatal(err)
		}
		if n := serial(); n != 1 {
			t.Errorf("got certificate %d", n)
		}
		write(files.Key, newKey)
		if n := serial(); n != 2 {
			t.Errorf("got certificate %d, and the log says %s", n, &log)
		}
	})
}

// newCertificate returns a certificate with a serial number, and its key.
func newCertificate(t *testing.T, serial int64) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs})
}
