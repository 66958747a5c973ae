package server

import (
	"fmt"
	"strings"

	"github.com/ferrulehq/ferrule/internal/agent/skills"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// At the address of one device, its resources have their own URIs, unless these look like
// URIs of the gateway: a device must not pretend to be another one. At the address of
// the fleet, and then, that URI follows the device's ID, with only those characters
// escaped that are not allowed in a URI:
//
//	ferrule://devices/robot/resources/file:///log/{day}
//
// A URI of a view keeps its scheme: see ui.go.
//
// So a client expands a template to the same URI at both addresses.
const resourcesPart = "/resources/"

// scoped returns the URI by which agents of this view know a resource of a device.
func (v *view) scoped(device string, r *ferrule.Resource) string {
	if v.device != "" && !isGatewayURI(r.URI) {
		return r.URI
	}
	if uri := scopedView(device, r); uri != "" && v.device == "" {
		return uri
	}
	return devicesURI + "/" + device + resourcesPart + escapeURI(r.URI, r.Template)
}

// scopedURI does the same for a URI in a result of a device. A URI of the web stays.
func (v *view) scopedURI(device, uri string) string {
	if device == ferrule.GatewayID || uri == "" || strings.HasPrefix(uri, "https://") || strings.HasPrefix(uri, "http://") {
		return uri
	}
	return v.scoped(device, &ferrule.Resource{URI: uri})
}

// located returns the device and its own URI of a resource. Ok is false for the
// gateway's own resources.
func (v *view) located(uri string) (device, own string, ok bool) {
	if v.device != "" && !isGatewayURI(uri) {
		return v.device, uri, true
	}
	if v.device == "" && ferrule.IsView(uri) {
		return v.locatedView(uri)
	}
	path, below := strings.CutPrefix(uri, devicesURI+"/")
	id, rest, _ := strings.Cut(path, "/")
	tail, ok := strings.CutPrefix("/"+rest, resourcesPart)
	if v.device != "" && (id != v.device || !isGatewayURI(tail)) {
		return "", "", false
	}
	return id, v.ownURI(id, tail), below && ok
}

// gatewayScheme is the scheme of the gateway's own resources.
const gatewayScheme = "ferrule:"

// isGatewayURI reports whether a URI has the scheme of the gateway or is one of its skills,
// in any case.
func isGatewayURI(uri string) bool {
	return hasPrefixFold(uri, gatewayScheme) || hasPrefixFold(uri, skills.Root)
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// ownURI returns a device's own URI, given its escaped form. If no listed resource
// has that form, it is returned unchanged: it may be an expanded template.
func (v *view) ownURI(device, tail string) string {
	_, manifest, ok := v.server.parts.Catalog.Lookup(device)
	if !ok || manifest == nil || !strings.Contains(tail, "%") {
		return tail
	}
	own := tail
	for i := range manifest.Resources {
		switch r := &manifest.Resources[i]; {
		case r.URI == tail:
			return tail
		case own == tail && escapeURI(r.URI, r.Template) == tail:
			own = r.URI
		}
	}
	return own
}

// escapeURI escapes the characters that RFC 3986 does not allow in a URI. The names in
// the braces of a template stay.
func escapeURI(uri string, template bool) string {
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

// validTemplate reports whether the braces of a template are valid by RFC 6570.
func validTemplate(template string) bool {
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
