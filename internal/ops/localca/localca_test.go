package localca

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"image"
	"image/color"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"
)

// workshop is a machine with addresses of all kinds.
func workshop(now time.Time) machine {
	var addresses []netip.Addr
	for _, a := range []string{"127.0.0.1", "192.168.1.10", "203.0.113.7", "fe80::1", "fd00::10", "2001:db8::1", "::1"} {
		addresses = append(addresses, netip.MustParseAddr(a))
	}
	return machine{host: "workshop", full: "workshop.example.com", addresses: addresses, now: now}
}

func mustInit(t *testing.T, m machine, dir string, names ...string) Made {
	t.Helper()
	made, err := m.init(dir, names)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func certificate(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	c, err := ReadCertificate(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestInit: the certificate is for the machine in its local network and for the names
// that were given, and its chain holds for Go and for OpenSSL. Keys are private.
func TestInit(t *testing.T) {
	now := time.Now()
	dir := filepath.Join(t.TempDir(), "data", "tls")
	made := mustInit(t, workshop(now), dir, "Ferrule.Home.Arpa", "198.51.100.9")
	if !made.NewCA || made.Files != In(dir) || made.Host != "ferrule.home.arpa" {
		t.Errorf("got %+v", made)
	}
	want := []string{"ferrule.home.arpa", "workshop.local", "workshop.example.com", "workshop", "localhost", "198.51.100.9", "192.168.1.10", "fd00::10", "127.0.0.1", "::1"}
	if !slices.Equal(made.Names, want) {
		t.Errorf("got names %q", made.Names)
	}
	root, leaf := certificate(t, made.CA), certificate(t, made.Cert)
	if made.Fingerprint != Fingerprint(root) || len(made.Fingerprint) != 95 {
		t.Errorf("got fingerprint %s", made.Fingerprint)
	}
	if life := root.NotAfter.Sub(now).Hours() / 24; !root.IsCA || life < 3649 || life > 3651 || root.PublicKey.(*ecdsa.PublicKey).Curve != elliptic.P256() {
		t.Errorf("the root is valid for %.0f days", life)
	}
	if life := leaf.NotAfter.Sub(leaf.NotBefore).Hours() / 24; leaf.IsCA || life < 396 || life > 398 {
		t.Errorf("the certificate is valid for %.0f days", life)
	}
	roots := x509.NewCertPool()
	roots.AddCert(root)
	for _, name := range want {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: strings.Trim(name, "[]")}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		openssl(t, made, name)
	}
	if err := leaf.VerifyHostname("203.0.113.7"); err == nil {
		t.Error("the certificate is for a public address that nobody named")
	}
	if _, err := tls.LoadX509KeyPair(made.Cert, made.Key); err != nil {
		t.Error(err)
	}
	for _, path := range []string{made.CAKey, made.Key} {
		if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

// openssl checks the chain with OpenSSL, if it is installed.
func openssl(t *testing.T, made Made, name string) {
	t.Helper()
	program, err := exec.LookPath("openssl")
	if err != nil {
		return
	}
	match := "-verify_hostname"
	if net.ParseIP(name) != nil {
		match = "-verify_ip"
	}
	out, err := exec.Command(program, "verify", "-x509_strict", "-purpose", "sslserver", match, name, "-CAfile", made.CA, made.Cert).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %s", name, out)
	}
}

// TestInitAgain: the CA and the key of the gateway stay, and so do names. The certificate
// is another one.
func TestInitAgain(t *testing.T) {
	now, dir := time.Now(), t.TempDir()
	first := mustInit(t, workshop(now), dir, "ferrule.example.com")
	ca, caKey, key := read(t, first.CA), read(t, first.CAKey), read(t, first.Key)
	again := mustInit(t, workshop(now.AddDate(0, 6, 0)), dir, "attic.local")
	if again.NewCA || again.Fingerprint != first.Fingerprint || !again.Expires.After(first.Expires) {
		t.Errorf("got %+v", again)
	}
	if !bytes.Equal(read(t, first.CA), ca) || !bytes.Equal(read(t, first.CAKey), caKey) || !bytes.Equal(read(t, first.Key), key) {
		t.Error("the CA or a key changed")
	}
	for _, name := range []string{"ferrule.example.com", "attic.local"} {
		if !slices.Contains(again.Names, name) {
			t.Errorf("%s is missing: %q", name, again.Names)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 4 {
		t.Errorf("got files %q, %v", files, err)
	}

	// A key without its CA, as after a crash, is used; a CA without its key is an error.
	for _, path := range []string{first.CA, first.CAKey} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		_, err := workshop(now).init(dir, nil)
		if lost := path == first.CAKey; lost != (err != nil) || lost && !strings.Contains(err.Error(), "the key of the CA is missing") {
			t.Errorf("without %s: %v", path, err)
		}
	}
	other := mustInit(t, workshop(now), t.TempDir())
	if err := os.Rename(other.CAKey, first.CAKey); err != nil {
		t.Fatal(err)
	}
	if _, err := workshop(now).init(dir, nil); err == nil || !strings.Contains(err.Error(), "does not belong to") {
		t.Errorf("the key of another CA: %v", err)
	}
}

// TestLimits: the CA is limited to local networks and the names that it was made for,
// also if its key is stolen.
func TestLimits(t *testing.T) {
	dir := t.TempDir()
	made := mustInit(t, workshop(time.Now()), dir)
	for _, name := range []string{"bank.example", "notlocal", "8.8.8.8"} {
		if _, err := workshop(time.Now()).init(dir, []string{name}); err == nil || !strings.Contains(err.Error(), "cannot sign for "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "a b", "-x", "*.local", "0.0.0.0", "fe80::1%eth0", "http://x", strings.Repeat("a.", 130) + "a"} {
		if _, err := workshop(time.Now()).init(t.TempDir(), []string{name}); err == nil || !strings.Contains(err.Error(), "--name must be") {
			t.Errorf("%q: %v", name, err)
		}
	}
	root := certificate(t, made.CA)
	key, err := readKey(made.CAKey)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(root)
	for name, ok := range map[string]bool{"bank.example": false, "tv.local": true} {
		template := &x509.Certificate{DNSNames: []string{name}, NotBefore: root.NotBefore, NotAfter: root.NotAfter}
		der, err := x509.CreateCertificate(rand.Reader, template, root, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRenew: a certificate is renewed in its last month if Init made it. Certificates of
// others are left alone.
func TestRenew(t *testing.T) {
	now, dir := time.Now(), t.TempDir()
	made := mustInit(t, workshop(now), dir, "198.51.100.9")
	if _, ok := Root(made.Cert, made.Key); !ok {
		t.Error("the root is not found")
	}
	for _, step := range []struct {
		days    int
		renewed bool
	}{{366, false}, {368, true}, {369, false}, {380, false}, {368 + 397, true}} {
		moved := workshop(now.AddDate(0, 0, step.days))
		moved.addresses = []netip.Addr{netip.MustParseAddr("10.1.1.1")}
		renewed, err := moved.renew(made.Cert, made.Key)
		if err != nil || renewed != step.renewed {
			t.Errorf("after %d days: %t, %v", step.days, renewed, err)
		}
	}
	leaf := certificate(t, made.Cert)
	for _, ip := range []string{"198.51.100.9", "192.168.1.10", "10.1.1.1"} {
		if err := leaf.VerifyHostname(ip); err != nil {
			t.Error(err)
		}
	}
	late := workshop(now.AddDate(0, 0, 3649))
	if renewed, err := late.renew(made.Cert, made.Key); renewed || err == nil || !strings.Contains(err.Error(), "the CA in "+dir+" ends on") {
		t.Errorf("got %t, %v", renewed, err)
	}

	other := mustInit(t, workshop(now), t.TempDir())
	if err := os.WriteFile(made.Cert, read(t, other.Cert), 0o600); err != nil {
		t.Fatal(err)
	}
	if renewed, err := late.renew(made.Cert, made.Key); renewed || err != nil {
		t.Errorf("a certificate of another CA: %t, %v", renewed, err)
	}
	if _, ok := Root(made.Cert, made.Key); ok {
		t.Error("the root of another certificate was found")
	}
}

// TestPrint: the text names what to do, and its QR code is the URL of the root.
func TestPrint(t *testing.T) {
	made := mustInit(t, workshop(time.Now()), t.TempDir())
	for listen, url := range map[string]string{
		"127.0.0.1:3377": "https://192.168.1.10:3377/ca.crt", "0.0.0.0:443": "https://192.168.1.10:443/ca.crt", "": "https://192.168.1.10:3377/ca.crt",
	} {
		painted := 0
		text := printed(t, made, listen, func(line string) string { painted++; return line })
		for _, part := range []string{"cert: " + made.Cert, "key: " + made.Key, made.CA, url, "listen: 0.0.0.0:"} {
			if !strings.Contains(text, part) {
				t.Errorf("%q is missing in %s", part, text)
			}
		}
		for _, line := range strings.Split(text, "\n") {
			if n := len([]rune(line)); strings.ContainsAny(line, "█▀▄") && n > 80 {
				t.Errorf("the QR code is %d columns wide", n)
			}
		}
		if got := scan(t, text); got != url {
			t.Errorf("the QR code is %q", got)
		}
		if painted < 10 {
			t.Errorf("%d lines were painted", painted)
		}
	}
	again := made
	again.NewCA = false
	if text := printed(t, again, "", func(line string) string { return line }); !strings.Contains(text, "The certificate authority is the one that was there") {
		t.Errorf("got %s", text)
	}
}

func printed(t *testing.T, made Made, listen string, paint func(string) string) string {
	t.Helper()
	var b strings.Builder
	if err := made.Print(&b, listen, paint); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// scan reads the QR code in a text, as a phone does.
func scan(t *testing.T, text string) string {
	t.Helper()
	const scale = 4
	var rows [][]rune
	for _, line := range strings.Split(text, "\n") {
		if strings.ContainsAny(line, "█▀▄") {
			rows = append(rows, []rune(line))
		}
	}
	picture := image.NewGray(image.Rect(0, 0, scale*len(rows[0]), scale*2*len(rows)))
	for y, row := range rows {
		for x, r := range row {
			for half, light := range []bool{r == '█' || r == '▀', r == '█' || r == '▄'} {
				if !light {
					continue
				}
				for i := range scale * scale {
					picture.SetGray(scale*x+i%scale, scale*(2*y+half)+i/scale, color.Gray{Y: 255})
				}
			}
		}
	}
	bitmap, err := gozxing.NewBinaryBitmapFromImage(picture)
	if err != nil {
		t.Fatal(err)
	}
	result, err := qrcode.NewQRCodeReader().Decode(bitmap, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return result.GetText()
}

// FuzzReadCertificate: files that are not certificates are errors.
func FuzzReadCertificate(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := ReadCertificate(path); (c == nil) == (err == nil) {
			t.Errorf("got %v, %v", c, err)
		}
		if key, err := readKey(path); (key == nil) == (err == nil) {
			t.Errorf("got %v, %v", key, err)
		}
	})
}
