package oauth

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxRedirect is the length of the longest redirect address.
const maxRedirect = 2000

// cursorRedirect is the only address with a scheme of its own: that program has no other.
const cursorRedirect = "cursor://anysphere.cursor-mcp/oauth/callback"

// answerParameters are what is added to a redirect address.
var answerParameters = []string{"code", "state", "iss", "error", "error_description", "error_uri"}

// checkRedirect returns why an address cannot be one that codes are sent to.
func checkRedirect(uri string) error { return checkRedirectTo(uri, isLoopback) }

// checkOwnRedirect does the same for a program that the owner registered. It may be reached
// without TLS in a private network, as Home Assistant is in most homes: a code that is seen
// there is worth nothing without the secret.
func checkOwnRedirect(uri string) error {
	return checkRedirectTo(uri, func(host string) bool { return isLoopback(host) || isPrivate(host) })
}

// checkRedirectTo does the same, with hosts that may do without TLS.
func checkRedirectTo(uri string, plain func(host string) bool) error {
	if uri == cursorRedirect {
		return nil
	}
	bad := func(why string) error {
		return fmt.Errorf("cannot send people back to %q: %s", ferrule.Clean(uri, ferrule.MaxWord), why)
	}
	if len(uri) > maxRedirect {
		return bad(fmt.Sprintf("it has %d characters; limit is %d", len(uri), maxRedirect))
	}
	for _, c := range []byte(uri) {
		// Browsers and libraries disagree on where the host ends if one of these is in it.
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\\\"<>^`{|}*#", c) >= 0 {
			return bad("it must not contain spaces, fragments, wildcards, or characters that must be escaped")
		}
	}
	u, err := url.Parse(uri)
	if err != nil {
		return bad("it is not a URL")
	}
	host := u.Hostname()
	switch {
	case u.Opaque != "" || host == "" || strings.HasSuffix(u.Host, ":"):
		return bad("it must have a host")
	case u.User != nil || strings.Contains(u.Host, "@"):
		return bad("it must not contain a user name")
	case strings.HasSuffix(host, ".") || strings.Contains(host, "%"):
		return bad("its host must be a plain name")
	case dotSegments(u):
		return bad("its path must not contain . or ..")
	case u.ForceQuery:
		return bad("it ends with a question mark")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return bad("its query is malformed")
	}
	for _, name := range answerParameters {
		if query.Has(name) {
			return bad("its query must not contain " + name)
		}
	}
	switch {
	case strings.HasPrefix(uri, "https://"):
		return nil
	case strings.HasPrefix(uri, "http://") && plain(host):
		return nil
	}
	return bad("it must begin with https://, or with http:// and be localhost, 127.0.0.1 or [::1]")
}

// isLoopback reports whether a host of a URL is this machine. Other spellings are refused:
// not everybody reads them alike.
func isLoopback(host string) bool {
	return slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, host)
}

// isPrivate reports whether a host of a URL is certainly in a private network: by its address,
// or by a name that the public DNS does not have.
func isPrivate(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Zone() == "" && (ip.IsPrivate() || ip.IsLinkLocalUnicast())
	}
	host = strings.ToLower(host)
	if !strings.Contains(host, ".") {
		return host != "" && host[0] >= 'a' // a number can be an address
	}
	return slices.ContainsFunc([]string{".local", ".lan", ".internal", ".home.arpa"}, func(end string) bool { return strings.HasSuffix(host, end) })
}

// dotSegments reports whether a path has segments that are removed on the way.
func dotSegments(u *url.URL) bool {
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

var errRedirect = errors.New("the address to send you back to is not one that the program registered")

// matchRedirect returns an error unless an address is one of those registered. On this
// machine the port may differ, because programs take any free one.
func (c *client) matchRedirect(uri string) error {
	if c.confidential && slices.Contains(c.Redirects, uri) { // it was checked with the config
		return nil
	}
	return matchRedirect(c.Redirects, uri)
}

func matchRedirect(registered []string, uri string) error {
	if err := checkRedirect(uri); err != nil {
		return err
	}
	if slices.Contains(registered, uri) {
		return nil
	}
	for _, r := range registered {
		if checkRedirect(r) == nil && withoutPort(r) == withoutPort(uri) && withoutPort(uri) != "" {
			return nil
		}
	}
	return errRedirect
}

// withoutPort returns an address on this machine without its port, or "" for others.
func withoutPort(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "http" || !isLoopback(u.Hostname()) {
		return ""
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	return u.Hostname() + path + "?" + u.RawQuery
}

// onThisMachine reports whether a redirect address leads to a program on the machine of the
// browser.
func onThisMachine(uri string) bool { return withoutPort(uri) != "" || uri == cursorRedirect }

// withAnswer adds parameters to a redirect address, which keeps its own.
func withAnswer(uri string, add url.Values) string {
	separator := "?"
	if strings.Contains(uri, "?") {
		separator = "&"
	}
	return uri + separator + add.Encode()
}
