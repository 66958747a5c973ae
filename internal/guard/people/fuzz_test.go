package people

import (
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// FuzzRecord checks that a record of another node, whatever it has, is one that can be
// stored and read again, or none.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"name":"anna","role":"operator","version":1}`))
	f.Add([]byte(`{"name":"company:a%2Fb","version":9223372036854775807}`))
	f.Add([]byte(`{"name":"anna","role":"king","version":-1}`))
	f.Add([]byte(`{"name":"anna","role":"owner","version":9223372036854775807}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Open(Parts{File: filepath.Join(t.TempDir(), "people"), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		r, ok := parseRecord(data)
		p.hear(personPrefix+r.key(), data)
		if r.Role != "" && p.known[r.Name].Version > time.Now().Add(25*time.Hour).UnixMicro() {
			t.Errorf("%+v cannot be removed", r)
		}
		if _, known := p.known[r.Name]; known != (ok && !r.ahead(time.Now())) {
			t.Errorf("%+v: known %t, valid %t", r, known, ok)
		}
		for _, one := range p.List() {
			if one.Role.Rank() == 0 {
				t.Errorf("%+v", one)
			}
		}
	})
}

// FuzzVisit checks that only cookies of this gateway are visits, and that they lead to
// pages of this gateway.
func FuzzVisit(f *testing.F) {
	for _, back := range []string{"/oauth/authorize?a=b", "//evil.example", `/\evil.example`, "/\t/evil.example", "https://evil.example"} {
		f.Add(back)
	}
	p := &People{key: []byte("key")}
	here, _ := url.Parse("https://here.example/login/link/x")
	f.Fuzz(func(t *testing.T, text string) {
		if _, ok := p.parseVisit(text, time.Now()); ok {
			t.Errorf("%q is a visit", text)
		}
		back := localPath(text)
		if back == "" {
			return
		}
		// Browsers drop tabs and line breaks, and read \ as /.
		seen, err := here.Parse(strings.NewReplacer("\t", "", "\n", "", "\r", "", `\`, "/").Replace(back))
		if err != nil || seen.Host != here.Host || seen.Scheme != "https" {
			t.Errorf("%q leads to %v, %v", back, seen, err)
		}
	})
}
