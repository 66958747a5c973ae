package server

import (
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Views are HTML documents that chat programs draw beside the results of tools (MCP Apps).
// The gateway has its own, called panels, at the address of the fleet: ui://ferrule/NAME.
//
// A device's view has its own URI at the address of the device. At the address of the
// fleet, the device's ID precedes the rest: ui://x/y is ui://robot/x/y. There, tools of a
// device lead to a view only if the owner allows exactly this document. A view calls tools
// by the device's own names, which only the address of the device has, and nothing in a
// call says which view made it.
const (
	uiExtension = "io.modelcontextprotocol/ui"
	uiType      = "text/html;profile=mcp-app"
	uiOwner     = "ferrule" // in place of a device's ID
)

// Panel is a document of the gateway for results of its own tools. It contains no data.
type Panel struct {
	Name, Title, Text string
	HTML              string
	// Tools are the built-in tools whose results it draws.
	Tools []string
}

func (p *Panel) uri() string { return ferrule.ViewScheme + uiOwner + "/" + p.Name }

// panelMeta is the _meta of all panels: they load nothing.
var panelMeta = mcp.Meta{"ui": map[string]any{"csp": originsOf(nil, nil), "prefersBorder": false}}

// panelResources returns the panels as resources.
func (v *view) panelResources() (all []*mcp.Resource) {
	if v.device != "" {
		return nil
	}
	for i := range v.server.parts.Panels {
		p := &v.server.parts.Panels[i]
		all = append(all, &mcp.Resource{URI: p.uri(), Name: p.Name, Title: p.Title, Description: p.Text, MIMEType: uiType, Meta: panelMeta})
	}
	return all
}

// panel returns the panel with a URI, or nil.
func (v *view) panel(uri string) *Panel {
	i := slices.IndexFunc(v.server.parts.Panels, func(p Panel) bool { return p.uri() == uri })
	if v.device != "" || i < 0 {
		return nil
	}
	return &v.server.parts.Panels[i]
}

// toolMeta returns the _meta of a tool: its view. It is the same for all programs, because
// a list must not depend on who asks; those that draw nothing ignore it.
func (v *view) toolMeta(o ferrule.Offer) mcp.Meta {
	if len(o.Devices) == 0 || o.Argument != "" {
		return nil
	}
	device := o.Devices[0]
	if device == ferrule.GatewayID {
		for i := range v.server.parts.Panels {
			if p := &v.server.parts.Panels[i]; slices.Contains(p.Tools, o.Tool.Name) {
				return viewMeta(p.uri(), nil)
			}
		}
		return nil
	}
	if o.Tool.View == nil {
		return nil
	}
	uri := v.scopedURI(device, o.Tool.View.URI)
	if _, allowed := v.allowedView(device, o.Tool.View.URI); v.device == "" && !allowed || !ferrule.IsView(uri) {
		return nil
	}
	return viewMeta(uri, o.Tool.View.Visibility)
}

// viewMeta returns the _meta that names a view, in the current and in the deprecated form.
func viewMeta(uri string, visibility []string) mcp.Meta {
	ui := map[string]any{"resourceUri": uri}
	if len(visibility) > 0 {
		ui["visibility"] = visibility
	}
	return mcp.Meta{"ui": ui, "ui/resourceUri": uri}
}

// allowedView returns what the owner of a device allows its view with that own URI.
func (v *view) allowedView(device, own string) (ferrule.AllowedView, bool) {
	_, manifest, ok := v.server.parts.Catalog.Lookup(device)
	if !ok || manifest == nil {
		return ferrule.AllowedView{}, false
	}
	allowed, ok := manifest.Views[own]
	return allowed, ok
}

// checkView returns an error for a view that must not be shown: one that is too large, or,
// at the address of the fleet, one that is not the document that the owner allowed.
func (v *view) checkView(device, own string, result *ferrule.Result) error {
	if !ferrule.IsView(own) {
		return nil
	}
	allowed, named := v.allowedView(device, own)
	for _, c := range result.Content {
		document := document(c)
		switch n := len(document); {
		case n > ferrule.MaxView:
			return ferrule.Errorf(ferrule.Failed, "the view %s of %s has %d bytes; limit is %d", own, device, n, ferrule.MaxView)
		case v.device == "" && named && !allowed.Allows(document):
			return ferrule.Errorf(ferrule.Denied, "the view %s of %s is not the document that its owner allowed; its SHA-256 is %s", own, device, ferrule.ViewHash(document)).
				WithHint("ask the owner to look at the view, and to put this hash into the overlay of the device")
		}
	}
	return nil
}

func document(c ferrule.Content) []byte {
	if len(c.Data) > 0 {
		return c.Data
	}
	return []byte(c.Text)
}

// documentMeta returns the _meta of the document of a device's view: what the owner allows
// of what the device wants.
func (v *view) documentMeta(device, own string, c ferrule.Content) mcp.Meta {
	if c.View == nil || !ferrule.IsView(own) {
		return nil
	}
	allowed, _ := v.allowedView(device, own)
	ui := map[string]any{"csp": originsOf(c.View.Origins, allowed.Origins)}
	if c.View.Border != nil {
		ui["prefersBorder"] = *c.View.Border
	}
	return mcp.Meta{"ui": ui}
}

// originsOf returns the wanted origins that are allowed, by use.
func originsOf(wanted map[string][]string, allowed []string) map[string]any {
	all := make(map[string]any)
	for _, use := range []string{"connectDomains", "resourceDomains", "frameDomains", "baseUriDomains"} {
		kept := []string{}
		for _, origin := range wanted[use] {
			if slices.Contains(allowed, origin) {
				kept = append(kept, origin)
			}
		}
		all[use] = kept
	}
	return all
}

// embeddedType returns the type of a view in a result. At the address of the fleet,
// programs must not draw it unless the owner allows it.
func (v *view) embeddedType(device string, c ferrule.Content) string {
	if v.device != "" || !ferrule.IsView(c.URI) {
		return c.MIME
	}
	if allowed, ok := v.allowedView(device, c.URI); ok && allowed.Allows(document(c)) {
		return c.MIME
	}
	return "text/plain"
}

// scopedView returns the URI of a device's view at the address of the fleet, or "" if it
// has none of this form: a device that is called as the gateway must not pretend to be it.
func scopedView(device string, r *ferrule.Resource) string {
	if !ferrule.IsView(r.URI) || strings.EqualFold(device, uiOwner) {
		return ""
	}
	return ferrule.ViewScheme + device + "/" + escapeURI(strings.TrimPrefix(r.URI, ferrule.ViewScheme), r.Template)
}

// locatedView is the reverse of scopedView.
func (v *view) locatedView(uri string) (device, own string, ok bool) {
	id, tail, found := strings.Cut(strings.TrimPrefix(uri, ferrule.ViewScheme), "/")
	if !ferrule.IsView(uri) || !found || strings.EqualFold(id, uiOwner) {
		return "", "", false
	}
	return id, v.ownURI(id, ferrule.ViewScheme+tail), true
}
