package oauth

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

const documentURL = "https://claude.example.com/oauth/client"

func documentFor(id string) string {
	return `{"client_id":"` + id + `","client_name":"Claude","redirect_uris":["http://localhost/callback","app://private"],"token_endpoint_auth_method":"none"}`
}

var public = netip.MustParseAddr("93.184.215.14")

// web is a site on the Internet, as far as the fetcher can see.
type web struct {
	addrs []netip.Addr
	serve http.HandlerFunc
	hits  atomic.Int32
	to    atomic.Value // netip.AddrPort that was dialed
}

// serveWeb lets a fetcher see a site.
func serveWeb(t *testing.T, f *fetcher, serve http.HandlerFunc) *web {
	w := &web{addrs: []netip.Addr{public}, serve: serve}
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.hits.Add(1)
		w.serve(rw, r)
	}))
	t.Cleanup(server.Close)
	f.roots = x509.NewCertPool()
	f.roots.AddCert(server.Certificate())
	f.resolve = func(context.Context, string) ([]netip.Addr, error) { return w.addrs, nil }
	f.dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		w.to.Store(to)
		return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}
	return w
}

func sendDocument(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, text)
}

// the certificate of httptest is for example.com and its subdomains
const testHost = "claude.example.com"

// TestDocument checks a login by a program with a document, and what is refused of one.
func TestDocument(t *testing.T) {
	r := newTestServer(t, nil)
	site := serveWeb(t, r.fetch, func(w http.ResponseWriter, _ *http.Request) { sendDocument(w, documentFor(documentURL)) })
	r.people.who = ferrule.Principal{}
	r.send("GET", authorizePath+"?"+asking(documentURL).Encode(), "")
	if site.hits.Load() != 0 {
		t.Error("a document is fetched for somebody who is not logged in")
	}
	if out := r.token(exchanging(documentURL, "ferc_unknown")); out.Error != "invalid_grant" || site.hits.Load() != 0 {
		t.Errorf("%+v, %d fetches", out, site.hits.Load())
	}
	r.people.who = owner
	page := r.send("GET", authorizePath+"?"+asking(documentURL).Encode(), "").Body.String()
	host, name := strings.Index(page, testHost), strings.Index(page, "Claude")
	if host < 0 || name < host || strings.Contains(page, "nobody has verified") {
		t.Errorf("the page does not name the host first: %s", page)
	}
	out := r.login(documentURL)
	c, err := r.verify(out.Access)
	if err != nil || c.Who.Name != "oauth:maria/claude-example-com" {
		t.Errorf("%+v %v", c, err)
	}
	if to, _ := site.to.Load().(netip.AddrPort); site.hits.Load() != 1 || to != netip.AddrPortFrom(public, 443) {
		t.Errorf("%d fetches from %v", site.hits.Load(), to)
	}
	// A refresh needs no document.
	site.serve = http.NotFound
	r = r.restart()
	if again := r.token(refreshing(documentURL, out.Refresh)); again.Status != http.StatusOK {
		t.Errorf("%+v", again)
	}
	r.parts.Config.Documents = false
	if w := r.send("GET", authorizePath+"?"+asking(documentURL).Encode(), ""); w.Code != http.StatusBadRequest {
		t.Errorf("documents are off: %d", w.Code)
	}
	if w := r.send("GET", metadataPath, ""); strings.Contains(w.Body.String(), "client_id_metadata_document_supported") {
		t.Error("documents are off, but offered")
	}
}

// TestDocumentAddresses checks that no document is read from a network that is not public.
func TestDocumentAddresses(t *testing.T) {
	r := newTestServer(t, nil)
	site := serveWeb(t, r.fetch, func(w http.ResponseWriter, _ *http.Request) { sendDocument(w, documentFor(documentURL)) })
	for name, addrs := range map[string][]string{
		"loopback":         {"127.0.0.1"},
		"loopback 6":       {"::1"},
		"metadata address": {"169.254.169.254"},
		"private 10":       {"10.0.0.1"},
		"private 172":      {"172.16.5.5"},
		"private 192":      {"192.168.1.1"},
		"CGNAT":            {"100.64.0.1"},
		"this network":     {"0.0.0.0"},
		"unspecified":      {"::"},
		"broadcast":        {"255.255.255.255"},
		"multicast":        {"224.0.0.1"},
		"multicast 6":      {"ff02::1"},
		"benchmarks":       {"198.18.0.1"},
		"documentation":    {"203.0.113.1"},
		"documentation 6":  {"2001:db8::1"},
		"link-local 6":     {"fe80::1"},
		"zone":             {"fe80::1%eth0"},
		"ULA":              {"fd00::1"},
		"metadata ULA":     {"fd00:ec2::254"},
		"mapped":           {"::ffff:127.0.0.1"},
		"mapped private":   {"::ffff:10.0.0.1"},
		"compatible":       {"::127.0.0.1"},
		"NAT64":            {"64:ff9b::7f00:1"},
		"6to4":             {"2002:7f00:1::1"},
		"Teredo":           {"2001::1"},
		"mixed":            {"93.184.215.14", "127.0.0.1"},
		"mixed first":      {"10.0.0.1", "93.184.215.14"},
		"mixed 6":          {"2606:2800:21f::1", "fd00::1"},
		"none":             {},
	} {
		t.Run(name, func(t *testing.T) {
			site.addrs = nil
			for _, addr := range addrs {
				site.addrs = append(site.addrs, netip.MustParseAddr(addr))
			}
			w := r.send("GET", authorizePath+"?"+asking(documentURL).Encode(), "")
			if w.Code != http.StatusBadRequest || site.to.Load() != nil || site.hits.Load() != 0 {
				t.Errorf("%d, dialed %v", w.Code, site.to.Load())
			}
		})
	}
	if !r.recorded(ferrule.AccessConsent, true, "not an address on the Internet") {
		t.Error("not recorded")
	}
	for _, good := range []string{"93.184.215.14", "2606:2800:21f::1", "::ffff:8.8.8.8"} {
		if err := checkPublic(netip.MustParseAddr(good)); err != nil {
			t.Error(err)
		}
	}
	// The last check is at the socket.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if conn, err := dialPublic(t.Context(), netip.MustParseAddrPort(ln.Addr().String())); err == nil {
		conn.Close()
		t.Error("the gateway connects to itself")
	}
	r.fetch = newFetcher() // the real one
	for _, id := range []string{"https://127.0.0.1/x", "https://localhost/x", "https://[::1]/x", "https://169.254.169.254/latest/meta-data", "https://0x7f000001/x"} {
		if _, err := r.fetch.get(t.Context(), id); err == nil {
			t.Errorf("%s was fetched", id)
		}
	}
}

// TestDocumentURL checks which URLs are IDs.
func TestDocumentURL(t *testing.T) {
	for _, good := range []string{documentURL, "https://a.example:8443/x/y.json", "https://claude.ai/oauth/claude-code-client-metadata"} {
		if err := checkDocumentURL(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"http://a.example/x", "https://a.example", "https://a.example/", "https://u:p@a.example/x", "https://u@a.example/x", "https://a.example/x#f", "https://a.example/x#",
		"https://a.example/x?q=1", "https://a.example/a/../x", "https://a.example/./x", "https://a.example/%2e%2e/x", "HTTPS://a.example/x", "https:///x", "https://a.example:/x",
		"file:///etc/passwd", "gopher://a.example/x", "https://a.example\\x/y", "https://a.example/" + strings.Repeat("x", 600), "urn:x", ":", "https://a b/x",
	} {
		if err := checkDocumentURL(bad); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

// TestDocumentContent checks the bounds of a document and of its transfer.
func TestDocumentContent(t *testing.T) {
	good := documentFor(documentURL)
	text := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { sendDocument(w, s) }
	}
	for name, serve := range map[string]http.HandlerFunc{
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/other" {
				sendDocument(w, good)
				return
			}
			http.Redirect(w, r, "/other", http.StatusFound)
		},
		"status": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprint(w, good)
		},
		"not found": http.NotFound,
		"HTML": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, good)
		},
		"too long":       text(good[:len(good)-1] + `,"x":"` + strings.Repeat("x", maxDocument) + `"}`),
		"long and valid": text(good + strings.Repeat(" ", maxDocument)),
		"endless":        func(w http.ResponseWriter, _ *http.Request) { sendDocument(w, strings.Repeat(" ", 1<<20)) },
		"other ID":       text(documentFor("https://claude.example.com/oauth/other")),
		"slash":          text(documentFor(documentURL + "/")),
		"case":           text(documentFor(strings.Replace(documentURL, "claude", "Claude", 1))),
		"no ID":          text(`{"redirect_uris":["http://localhost/callback"]}`),
		"ID by case":     text(strings.Replace(good, `"client_id"`, `"Client_ID"`, 1)),
		"array":          text("[" + good + "]"),
		"null":           text("null"),
		"two documents":  text(good + good),
		"secret":         text(good[:len(good)-1] + `,"client_secret":"x"}`),
		"shared secret":  text(strings.Replace(good, `"none"`, `"client_secret_post"`, 1)),
		"no redirects":   text(strings.Replace(good, `["http://localhost/callback","app://private"]`, `[]`, 1)),
		"bad redirects":  text(strings.Replace(good, `"http://localhost/callback",`, ``, 1)),
		"redirect type":  text(strings.Replace(good, `["http://localhost/callback","app://private"]`, `"http://localhost/callback"`, 1)),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFetcher()
			site := serveWeb(t, f, serve)
			if c, err := f.get(t.Context(), documentURL); err == nil {
				t.Errorf("accepted: %+v", c)
			}
			if site.hits.Load() != 1 {
				t.Errorf("%d requests", site.hits.Load())
			}
			// A failure is not remembered.
			site.serve = text(good)
			if _, err := f.get(t.Context(), documentURL); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("other certificate", func(t *testing.T) {
		f := newFetcher()
		serveWeb(t, f, text(documentFor("https://claude.ai/x")))
		if _, err := f.get(t.Context(), "https://claude.ai/x"); err == nil {
			t.Error("a certificate of another host is accepted")
		}
	})
	t.Run("proxy", func(t *testing.T) {
		t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
		f := newFetcher()
		serveWeb(t, f, text(good))
		if _, err := f.get(t.Context(), documentURL); err != nil {
			t.Errorf("a proxy is used: %v", err)
		}
	})
}

// TestDocumentCache checks how long documents are kept, and how many are fetched at a time.
func TestDocumentCache(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"": minCache, "max-age=10": minCache, "no-store": minCache, "public, max-age=3600": time.Hour, "max-age=99999999": maxCache, "max-age=-5": minCache, "max-age=x": minCache, `max-age="7200"`: 2 * time.Hour,
	} {
		if got := maxAge(http.Header{"Cache-Control": {value}}); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
	f := newFetcher()
	arrived, release := make(chan string, 100), make(chan struct{})
	var under, most atomic.Int32
	serveWeb(t, f, func(w http.ResponseWriter, r *http.Request) {
		n := under.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		arrived <- r.URL.Path
		<-release
		under.Add(-1)
		sendDocument(w, documentFor("https://"+r.Host+r.URL.Path))
	})
	var wg sync.WaitGroup
	for i := range 3 * maxFetches {
		for range 2 { // one fetch for each
			wg.Go(func() {
				if _, err := f.get(t.Context(), fmt.Sprintf("https://claude.example.com/%d", i)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	for range maxFetches {
		<-arrived
	}
	close(release)
	wg.Wait()
	if n := most.Load(); n != maxFetches || len(f.known) != 3*maxFetches || len(arrived) != 2*maxFetches {
		t.Errorf("%d fetches at a time, %d documents, %d requests", n, len(f.known), maxFetches+len(arrived))
	}
	for i := range 2 * maxDocuments {
		f.makeRoom()
		f.known[fmt.Sprint(i)] = &document{until: time.Now()}
	}
	if len(f.known) > maxDocuments {
		t.Errorf("%d documents are kept", len(f.known))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newFetcher().get(ctx, "https://claude.example.com/x"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestDocumentSlots checks how many documents are fetched at a time, and that the others do
// not wait without end.
func TestDocumentSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFetcher()
		var under atomic.Int32
		f.resolve = func(context.Context, string) ([]netip.Addr, error) {
			under.Add(1)
			time.Sleep(time.Hour)
			return nil, errors.New("no such host")
		}
		for i := range 3 * maxFetches {
			go f.get(t.Context(), fmt.Sprintf("https://claude.example.com/%d", i))
		}
		synctest.Wait()
		if n := under.Load(); n != maxFetches {
			t.Errorf("%d fetches at a time", n)
		}
		time.Sleep(fetchTime + time.Second)
		f.mu.Lock()
		if n := len(f.under); n != maxFetches {
			t.Errorf("%d wait", n)
		}
		f.mu.Unlock()
		time.Sleep(time.Hour)
	})
}

// FuzzDocument checks that any document is refused, or describes its own program.
func FuzzDocument(f *testing.F) {
	f.Add([]byte(documentFor(documentURL)))
	f.Add([]byte(`{"client_id":"` + documentURL + `","redirect_uris":["https://a/",1]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseDocument(documentURL, testHost, data)
		if err != nil {
			return
		}
		if c.ID != documentURL || c.confidential || len(c.Redirects) == 0 || len(c.Name) > maxName || ferrule.CheckID(c.label()) != nil {
			t.Errorf("%+v", c)
		}
		for _, uri := range c.Redirects {
			if checkRedirect(uri) != nil {
				t.Error(uri)
			}
		}
	})
}
