package ferrule

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// ViewScheme begins the URIs of views: HTML documents that chat programs draw beside the
// results of tools (MCP Apps).
const ViewScheme = "ui://"

// MaxView is the size limit of a device's view in bytes.
const MaxView = 256 << 10

// IsView reports whether a URI is that of a view.
func IsView(uri string) bool { return strings.HasPrefix(uri, ViewScheme) }

// ToolView names the view of a tool.
type ToolView struct {
	URI string `json:"uri"`
	// Visibility contains model, app or both; empty means both.
	Visibility []string `json:"visibility,omitempty"`
}

// bounded returns v if it is valid, or nil.
func (v *ToolView) bounded() *ToolView {
	if v == nil || !IsView(v.URI) || Clean(v.URI, MaxURI) != v.URI || strings.ContainsAny(v.URI, "\n\t") {
		return nil
	}
	kept := &ToolView{URI: v.URI}
	for _, who := range []string{"model", "app"} {
		if slices.Contains(v.Visibility, who) {
			kept.Visibility = append(kept.Visibility, who)
		}
	}
	return kept
}

// ViewHints is what a device wants a program to know about the content of a view.
type ViewHints struct {
	// Origins are the origins that the view loads from or connects to, by their names in
	// MCP: connectDomains, resourceDomains, frameDomains, baseUriDomains.
	Origins map[string][]string `json:"origins,omitempty"`
	Border  *bool               `json:"border,omitempty"`
}

// AllowedView is a view of a device that its owner allows beside those of other devices.
type AllowedView struct {
	// SHA256 is the hash of the document, in hexadecimal digits.
	SHA256 string `json:"sha256"`
	// Origins are the origins that the view may load from or connect to.
	Origins []string `json:"origins,omitempty"`
}

// Allows reports whether a document is the allowed one.
func (a AllowedView) Allows(document []byte) bool { return a.SHA256 == ViewHash(document) }

// ViewHash returns the hash of a document.
func ViewHash(document []byte) string {
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:])
}
