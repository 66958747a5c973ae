package server

import (
	"fmt"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// At the address of a device, its resources have its own URIs. Where all devices are,
// the URI stands behind the device's ID, as it is but for characters that no URI has:
//
//	ferrule://devices/robot/resources/file:///log/{day}
//
// So what a client makes of a template there is what it would have made of the
// device's own.
const resourcesPart = "/resources/"

// scoped is the URI by which agents here know a resource of a device.
func (v *view) scoped(device string, r *ferrule.Resource) string {
	if v.device != "" {
		return r.URI
	}
	return devicesURI + "/" + device + resourcesPart + legal(r.URI, r.Template)
}

// scopedURI does the same for a URI that a device has used, in a link or beside
// contents. What anybody can fetch stays as it is.
func (v *view) scopedURI(device, uri string) string {
	if device == ferrule.GatewayID || uri == "" || strings.HasPrefix(uri, "https://") || strings.HasPrefix(uri, "http://") {
		return uri
	}
	return v.scoped(device, &ferrule.Resource{URI: uri})
}

// located tells which resource of which device a URI means here; it is not ok for one
// of the gateway's own.
func (v *view) located(uri string) (device, own string, ok bool) {
	path, below := strings.CutPrefix(uri, devicesURI+"/")
	id, rest, _ := strings.Cut(path, "/")
	switch {
	case v.device == "":
		tail, ok := strings.CutPrefix("/"+rest, resourcesPart)
		return id, v.ownURI(id, tail), below && ok
	case below && id == v.device:
		return "", "", false
	}
	return v.device, uri, true
}

// ownURI is a device's own URI, by what stands for it behind its ID: that itself, unless
// only another one is written so. What is not known stays as it is: a template may have
// been filled in.
func (v *view) ownURI(device, tail string) string {
	_, manifest, ok := v.front.parts.Catalog.Lookup(device)
	if !ok || manifest == nil || !strings.Contains(tail, "%") {
		return tail
	}
	own := tail
	for i := range manifest.Resources {
		switch r := &manifest.Resources[i]; {
		case r.URI == tail:
			return tail
		case own == tail && legal(r.URI, r.Template) == tail:
			own = r.URI
		}
	}
	return own
}

// isOwn tells whether a URI is one of the gateway's here, whoever claims it.
func (v *view) isOwn(uri string) bool {
	_, _, ok := v.located(uri)
	return !ok
}

// legal is a URI in which every character is one of a URI's: RFC 3986 has them. What
// stands between the braces of a template stays.
func legal(uri string, template bool) string {
	const allowed = "-._~:/?#[]@!$&'()*+,;=%"
	var b strings.Builder
	inside := false
	for _, c := range []byte(uri) {
		switch {
		case template && (c == '{' || c == '}'):
			inside = c == '{'
			b.WriteByte(c)
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(allowed, c) >= 0 || inside:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// fillable tells whether a text is a template that clients can read: RFC 6570, as far
// as its braces go.
func fillable(template string) bool {
	const inBraces = "_.%,*:+#/;?&="
	inside, length := false, 0
	for _, c := range []byte(template) {
		switch {
		case c == '{' && !inside:
			inside, length = true, -1
		case c == '}' && inside && length > 0:
			inside = false
		case c == '{' || c == '}':
			return false
		case inside && !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(inBraces, c) >= 0):
			return false
		}
		length++
	}
	return !inside
}
