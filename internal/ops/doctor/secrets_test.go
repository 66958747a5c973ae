package doctor

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/ops/localca"
)

// TestCertificates: certificates that end soon, or are not for the names under which the
// gateway is reached, are problems.
func TestCertificates(t *testing.T) {
	made, err := localca.Init(t.TempDir(), []string{"ferrule.home.arpa"})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	files := config.TLS{Cert: made.Cert, Key: made.Key}
	ends := made.Expires.Format(time.DateOnly)
	for name, test := range map[string]struct {
		days  int
		cfg   config.Config
		wants []string
	}{
		"none": {0, config.Config{}, nil},
		"fine": {0, config.Config{TLS: files, Auth: config.Auth{URL: "https://ferrule.home.arpa:3377"}, Agents: config.Agents{Hosts: []string{"localhost"}}},
			[]string{"fine certificate: tls: the certificate is valid until " + ends}},
		"behind a proxy": {0, config.Config{Auth: config.Auth{URL: "https://elsewhere.example.com"}}, nil},
		"other URL": {0, config.Config{TLS: files, Auth: config.Auth{URL: "https://elsewhere.example.com"}},
			[]string{"wrong certificate: tls: the certificate is not for elsewhere.example.com; agents"}},
		"other host": {0, config.Config{TLS: files, Agents: config.Agents{Hosts: []string{"localhost", "other.example.com"}}},
			[]string{"wrong certificate: tls: the certificate is not for other.example.com; agents"}},
		"devices": {0, config.Config{TLS: files, DialIn: config.DialIn{TLS: files, URL: "https://toys.example.com:3380"}},
			[]string{"fine certificate: tls: ", "wrong certificate: dial_in.tls: the certificate is not for toys.example.com"}},
		"soon":   {390, config.Config{TLS: files}, []string{"wrong certificate: tls: the certificate ends on " + ends}},
		"ended":  {398, config.Config{TLS: files}, []string{"wrong certificate: tls: the certificate ended on " + ends + "; nobody can connect → renew it"}},
		"early":  {-2, config.Config{TLS: files}, []string{"wrong certificate: tls: the certificate is valid only from "}},
		"no key": {0, config.Config{TLS: config.TLS{Cert: made.Cert, Key: made.CA}}, []string{"wrong certificate: tls: "}},
	} {
		d := &Doctor{now: func() time.Time { return now.AddDate(0, 0, test.days) }}
		wantLines(t, name, d.certificates(test.cfg), test.wants...)
	}
}

// TestExposedSecrets: a file with a token that every user can read is a problem. The group
// of the service may read it.
func TestExposedSecrets(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no file modes")
	}
	quietConfig(t)
	dir := t.TempDir()
	token, key := filepath.Join(dir, "claude.token"), filepath.Join(dir, "server.key")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "ferrule.yaml")
	write(token, "0123456789abcdef0123456789abcdef")
	write(key, "a key")
	write(file, "auth: {tokens: [{name: claude, file: claude.token}]}\n")
	d := &Doctor{file: file, system: runtime.GOOS, now: time.Now}
	for mode, exposed := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true, 0o602: true} {
		if err := os.Chmod(token, mode); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, f := range d.config(t.Context()) {
			found = found || f.Check == "secrets" && f.State == Wrong && f.About == token && f.Next != ""
		}
		if found != exposed {
			t.Errorf("mode %v: found is %t", mode, found)
		}
	}
	if err := os.Chmod(key, 0o604); err != nil {
		t.Fatal(err)
	}
	var cfg config.Config
	for name, one := range map[string]config.Config{
		"hook": {Hooks: []config.Hook{{File: key}}},
		"home": {Devices: config.Devices{HomeAssistant: []config.Home{{File: key}}}},
		"key":  {DialIn: config.DialIn{TLS: config.TLS{Key: key}}},
	} {
		cfg = one
		wantLines(t, name, d.exposedSecrets(cfg), "wrong secrets: other users of this machine can read or change files with secrets: "+key+" → run `chmod o= "+key+"`")
	}
	d.system = "windows"
	wantLines(t, "windows", d.exposedSecrets(cfg))
}
