package oauth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Limits of the documents that programs are known by. Their addresses come from anybody who
// can make a person open a link, so a document must not be read from a private network.
const (
	fetchTime    = 5 * time.Second
	maxDocument  = 5120
	maxFetches   = 4
	maxDocuments = 128
	maxURL       = 500
	minCache     = 5 * time.Minute
	maxCache     = 24 * time.Hour
)

// fetcher fetches the documents of programs (client ID metadata documents).
type fetcher struct {
	// resolve and dial are those of this machine; tests have others.
	resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	dial    func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	roots   *x509.CertPool // nil for those of this machine
	slots   chan struct{}

	mu    sync.Mutex
	known map[string]*document
	under map[string]*fetching // by URL
}

// document is one that was fetched.
type document struct {
	client *client
	until  time.Time
}

// fetching is a fetch under way.
type fetching struct {
	done   chan struct{}
	client *client
	err    error
}

func newFetcher() *fetcher {
	return &fetcher{
		resolve: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
		dial: dialPublic, slots: make(chan struct{}, maxFetches), known: make(map[string]*document), under: make(map[string]*fetching),
	}
}

// dialPublic connects to an address, and looks at it again at the last moment.
func dialPublic(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	dialer := net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return checkPublic(at.Addr())
	}}
	return dialer.DialContext(ctx, "tcp", to.String())
}

// get returns the client that a document describes. A failure is not remembered. There is
// one fetch for each URL at a time.
func (f *fetcher) get(ctx context.Context, id string) (*client, error) {
	if err := checkDocumentURL(id); err != nil {
		return nil, err
	}
	f.mu.Lock()
	if d := f.known[id]; d != nil && time.Now().Before(d.until) {
		f.mu.Unlock()
		return d.client, nil
	}
	under := f.under[id]
	if under == nil {
		under = &fetching{done: make(chan struct{})}
		f.under[id] = under
		go f.run(under, id)
	}
	f.mu.Unlock()
	select {
	case <-under.done:
		return under.client, under.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run fetches a document for all who wait for it.
func (f *fetcher) run(under *fetching, id string) {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTime)
	defer cancel()
	var keep time.Duration
	select {
	case f.slots <- struct{}{}:
		under.client, keep, under.err = f.read(ctx, id)
		<-f.slots
	case <-ctx.Done():
		under.err = errors.New("too many documents are being fetched; try again")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.under, id)
	if under.err == nil {
		f.makeRoom()
		f.known[id] = &document{under.client, time.Now().Add(keep)}
	}
	close(under.done)
}

// makeRoom removes the document that expires first, if there are too many. It is called with
// mu held.
func (f *fetcher) makeRoom() {
	if len(f.known) < maxDocuments {
		return
	}
	first := ""
	for id, d := range f.known {
		if first == "" || d.until.Before(f.known[first].until) {
			first = id
		}
	}
	delete(f.known, first)
}

// checkDocumentURL returns why a URL cannot be that of a document.
func checkDocumentURL(id string) error {
	u, err := url.Parse(id)
	switch {
	case err != nil || len(id) > maxURL || !strings.HasPrefix(id, "https://") || u.Hostname() == "":
		return errors.New("the program's ID must be an https:// URL of at most 500 characters")
	case u.User != nil || strings.ContainsAny(id, "#?@\\") || dotSegments(u) || strings.HasSuffix(u.Host, ":"):
		return errors.New("the program's ID must be a URL without a user name, query, fragment, or dots as segments of its path")
	case u.Path == "" || u.Path == "/":
		return errors.New("the program's ID must be a URL with a path")
	}
	return nil
}

// read fetches a document. It returns how long the document may be kept.
func (f *fetcher) read(ctx context.Context, id string) (c *client, keep time.Duration, err error) {
	u, err := url.Parse(id)
	if err != nil {
		return nil, 0, err
	}
	to, err := f.lookup(ctx, u)
	if err != nil {
		return nil, 0, fmt.Errorf("the program's document cannot be fetched: %w", err)
	}
	transport := &http.Transport{
		// Without a proxy, which would look up the host again.
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return f.dial(ctx, to) },
		TLSClientConfig: &tls.Config{RootCAs: f.roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true, DisableCompression: true,
		MaxResponseHeaderBytes: 16 << 10, Protocols: new(http.Protocols),
	}
	transport.Protocols.SetHTTP1(true)
	defer transport.CloseIdleConnections()
	web := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, id, nil)
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := web.Do(req)
	if err != nil {
		return nil, 0, fmt.Errorf("the program's document cannot be fetched: %w", ferrule.MaskError(err))
	}
	defer resp.Body.Close()
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode != http.StatusOK:
		return nil, 0, fmt.Errorf("the program's document cannot be fetched: %s answered %d", u.Hostname(), resp.StatusCode)
	case kind != "application/json" && !(strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")):
		return nil, 0, errors.New("the program's document is not JSON")
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err != nil {
		return nil, 0, fmt.Errorf("reading the program's document: %w", err)
	}
	if len(data) > maxDocument {
		return nil, 0, fmt.Errorf("the program's document has more than %d bytes", maxDocument)
	}
	c, err = parseDocument(id, u.Hostname(), data)
	return c, maxAge(resp.Header), err
}

// lookup resolves the host of a URL once. One address that is not public is enough to
// refuse all.
func (f *fetcher) lookup(ctx context.Context, u *url.URL) (to netip.AddrPort, err error) {
	port := uint64(443)
	if text := u.Port(); text != "" {
		if port, err = strconv.ParseUint(text, 10, 16); err != nil {
			return to, errors.New("invalid port")
		}
	}
	addrs, err := f.resolve(ctx, u.Hostname())
	if err != nil {
		return to, err
	}
	if len(addrs) == 0 {
		return to, fmt.Errorf("%s has no address", u.Hostname())
	}
	for _, addr := range addrs {
		if err := checkPublic(addr); err != nil {
			return to, err
		}
	}
	return netip.AddrPortFrom(addrs[0].Unmap(), uint16(port)), nil
}

// private are the networks of IPv4 that are not on the Internet, and global those of IPv6
// that are, without the reserved.
var (
	private = prefixes("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24",
		"192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4")
	global   = netip.MustParsePrefix("2000::/3")
	reserved = prefixes("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")
)

func prefixes(all ...string) (out []netip.Prefix) {
	for _, text := range all {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// checkPublic returns an error unless an address is on the Internet.
func checkPublic(addr netip.Addr) error {
	addr = addr.Unmap()
	in := func(p netip.Prefix) bool { return p.Contains(addr) }
	public := addr.Zone() == "" && addr.IsGlobalUnicast()
	if addr.Is4() {
		public = public && !slices.ContainsFunc(private, in)
	} else {
		public = public && global.Contains(addr) && !slices.ContainsFunc(reserved, in)
	}
	if !public {
		return fmt.Errorf("%s is not an address on the Internet", addr)
	}
	return nil
}

// parseDocument reads a document. It must be that of its URL, and of a program without a
// secret: everybody can read it.
func parseDocument(id, host string, data []byte) (*client, error) {
	members, err := object(data)
	if err != nil {
		return nil, errors.New("the program's document is not a JSON object")
	}
	var self, name, method string
	var redirects []string
	for key, to := range map[string]any{"client_id": &self, "client_name": &name, "token_endpoint_auth_method": &method, "redirect_uris": &redirects} {
		if value, ok := members[key]; ok && json.Unmarshal(value, to) != nil {
			return nil, fmt.Errorf("in the program's document, %s has the wrong type", key)
		}
	}
	_, secret := members["client_secret"]
	_, expires := members["client_secret_expires_at"]
	switch {
	case self != id:
		return nil, errors.New("the program's document belongs to another program: its client_id is not its URL")
	case secret || expires || strings.HasPrefix(method, "client_secret"):
		return nil, errors.New("the program's document speaks of a secret, but everybody can read it")
	}
	// Those that are never used, such as addresses of mobile programs, do no harm.
	redirects = slices.DeleteFunc(redirects, func(uri string) bool { return checkRedirect(uri) != nil })
	if len(redirects) == 0 || len(redirects) > 2*maxRedirects {
		return nil, errors.New("the program's document has no usable redirect_uris")
	}
	return &client{ID: id, Name: ferrule.Clean(name, maxName), Redirects: redirects, host: host}, nil
}

// maxAge returns how long a document may be kept.
func maxAge(head http.Header) time.Duration {
	for directive := range strings.SplitSeq(strings.Join(head.Values("Cache-Control"), ","), ",") {
		if text, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(directive)), "max-age="); ok {
			if seconds, err := strconv.ParseInt(strings.Trim(text, `"`), 10, 32); err == nil {
				return max(minCache, min(maxCache, time.Duration(seconds)*time.Second))
			}
		}
	}
	return minCache
}
