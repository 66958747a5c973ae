package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

const lampHTML = "<!doctype html><p>lamp"

// lampDevice is a device with a view. Allowed is what its owner allows.
func lampDevice(allowed map[string]ferrule.AllowedView) *ferrule.Manifest {
	return &ferrule.Manifest{
		Operations: []ferrule.Operation{ferrule.ReadResource}, Views: allowed,
		Tools:     []ferrule.Tool{{Name: "lamp", View: &ferrule.ToolView{URI: "ui://lamp/a b.html", Visibility: []string{"app"}}}},
		Resources: []ferrule.Resource{{URI: "ui://lamp/a b.html", MIME: uiType}, {URI: "ui://lamp/{x}", Template: true}},
	}
}

// lampHandler reads the view, which wants more than it gets.
func lampHandler(document string) ferrule.Handler {
	border := true
	return func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		c := ferrule.Content{Type: ferrule.ResourceContent, URI: "ui://lamp/a b.html", MIME: uiType, Text: document, View: &ferrule.ViewHints{
			Border: &border, Origins: map[string][]string{"connectDomains": {"https://a.example", "https://evil.example"}, "frameDomains": {"https://evil.example; script-src *"}},
		}}
		if call.Operation == ferrule.ReadResource {
			return &ferrule.Result{Content: []ferrule.Content{c}}, nil
		}
		return &ferrule.Result{Content: []ferrule.Content{c, {Type: ferrule.LinkContent, Link: &ferrule.Resource{URI: "ui://lamp/c", Name: "c"}}}}, nil
	}
}

// metaOf returns the _meta of the only tool with that name.
func metaOf(t *testing.T, session *mcp.ClientSession, name string) string {
	t.Helper()
	list, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list.Tools, func(tool *mcp.Tool) bool { return tool.Name == name })
	if i < 0 {
		t.Fatalf("there is no tool %s", name)
	}
	data, err := json.Marshal(list.Tools[i].Meta)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestPanels lists and reads the gateway's own views, for every client.
func TestPanels(t *testing.T) {
	own := &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "show_device", Effect: ferrule.Reads}, {Name: "status", Effect: ferrule.Reads}}}
	c := catalog.New(catalog.DefaultConfig())
	c.Put(&ferrule.Device{ID: ferrule.GatewayID, Kind: "g", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, own)
	c.Put(&ferrule.Device{ID: "robot", Kind: "k", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, lampDevice(nil))
	s := New(Parts{Config: DefaultConfig(), Catalog: c, Handle: lampHandler(lampHTML), Version: "1", Log: slog.New(slog.DiscardHandler), Panels: []Panel{{Name: "device", Title: "Device", HTML: "<p>panel", Tools: []string{"show_device"}}}})
	for _, version := range versions {
		session := connect(t, s, version, nil)
		if got := session.InitializeResult(); got != nil && got.Capabilities.Extensions[uiExtension] == nil {
			t.Errorf("%s: got the capabilities %+v", version, got.Capabilities)
		}
		if got := metaOf(t, session, "gateway__show_device"); got != `{"ui":{"resourceUri":"ui://ferrule/device"},"ui/resourceUri":"ui://ferrule/device"}` {
			t.Errorf("%s: got %s", version, got)
		}
		if got := metaOf(t, session, "gateway__status"); got != "null" {
			t.Errorf("%s: got %s", version, got)
		}
		got, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "ui://ferrule/device"})
		if err != nil || len(got.Contents) != 1 || got.Contents[0].MIMEType != uiType || got.Contents[0].Text != "<p>panel" {
			t.Fatalf("%s: got %+v, %v", version, got, err)
		}
		if meta := fmt.Sprint(got.Contents[0].Meta); !strings.Contains(meta, "connectDomains:[]") || strings.Contains(meta, "permissions") {
			t.Errorf("%s: got %s", version, meta)
		}
		at := connectAt(t, s.viewAt("robot"), version, nil)
		if got, err := at.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "ui://ferrule/device"}); err == nil && got.Contents[0].Text == "<p>panel" {
			t.Errorf("%s: the address of a device has the panels of the gateway", version)
		}
	}
}

// TestDeviceViews: a device's view has its own URI at the device's address, and one with its
// ID at the address of the fleet. There, tools lead to it only if the owner allows it.
func TestDeviceViews(t *testing.T) {
	const own, scoped = "ui://lamp/a b.html", "ui://robot/lamp/a%20b.html"
	allowed := map[string]ferrule.AllowedView{own: {SHA256: ferrule.ViewHash([]byte(lampHTML)), Origins: []string{"https://a.example"}}}
	for name, test := range map[string]struct {
		allowed    map[string]ferrule.AllowedView
		document   string
		fleet, one string // _meta of the tool
		refused    bool   // to agents of the fleet
	}{
		"not allowed": {nil, lampHTML, "null", own, false},
		"allowed":     {allowed, lampHTML, scoped, own, false},
		"changed":     {allowed, lampHTML + "x", scoped, own, true},
	} {
		s := newServerOf(t, lampHandler(test.document), lampDevice(test.allowed))
		fleet, one := connect(t, s, versions[0], nil), connectAt(t, s.viewAt("robot"), versions[0], nil)
		meta := func(uri string) string {
			if uri == "null" {
				return uri
			}
			return fmt.Sprintf(`{"ui":{"resourceUri":%q,"visibility":["app"]},"ui/resourceUri":%q}`, uri, uri)
		}
		if got := metaOf(t, fleet, "robot__lamp"); got != meta(test.fleet) {
			t.Errorf("%s: the fleet has %s", name, got)
		}
		if got := metaOf(t, one, "lamp"); got != meta(test.one) {
			t.Errorf("%s: the device has %s", name, got)
		}
		var listed []string
		for r, err := range fleet.Resources(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			listed = append(listed, r.URI)
		}
		if !slices.Contains(listed, scoped) {
			t.Errorf("%s: the fleet lists %q", name, listed)
		}
		got, err := fleet.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: scoped})
		switch {
		case test.refused:
			if err == nil || !strings.Contains(err.Error(), ferrule.ViewHash([]byte(test.document))) {
				t.Errorf("%s: got %+v, %v", name, got, err)
			}
		case err != nil || got.Contents[0].URI != scoped || got.Contents[0].Text != lampHTML:
			t.Errorf("%s: got %+v, %v", name, got, err)
		default:
			if said := fmt.Sprint(got.Contents[0].Meta); strings.Contains(said, "evil") || strings.Contains(said, "a.example") != (test.allowed != nil) || !strings.Contains(said, "prefersBorder:true") {
				t.Errorf("%s: the view gets %s", name, said)
			}
		}
		if got, err := one.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: own}); err != nil || got.Contents[0].Text != test.document {
			t.Errorf("%s: the device has %+v, %v", name, got, err)
		}
	}
}

// TestEmbeddedViews: a view in a result of a device gets the device's ID, and is not drawn
// unless the owner allows it.
func TestEmbeddedViews(t *testing.T) {
	for name, mime := range map[string]string{"": "text/plain", ferrule.ViewHash([]byte(lampHTML)): uiType} {
		s := newServerOf(t, lampHandler(lampHTML), lampDevice(map[string]ferrule.AllowedView{"ui://lamp/a b.html": {SHA256: name}}))
		result, err := connect(t, s, versions[1], nil).CallTool(t.Context(), &mcp.CallToolParams{Name: "robot__lamp"})
		if err != nil {
			t.Fatal(err)
		}
		if got := result.Content[0].(*mcp.EmbeddedResource).Resource; got.URI != "ui://robot/lamp/a%20b.html" || got.MIMEType != mime {
			t.Errorf("%q: got %+v", name, got)
		}
		if got := result.Content[1].(*mcp.ResourceLink); got.URI != "ui://robot/lamp/c" {
			t.Errorf("got %+v", got)
		}
	}
}

// TestViewBounds: a view that is too large is refused, and a device that is called as the
// gateway does not get the gateway's URIs.
func TestViewBounds(t *testing.T) {
	s := newServerOf(t, lampHandler(strings.Repeat("x", ferrule.MaxView+1)), lampDevice(nil))
	for _, v := range []*view{s.viewAt(""), s.viewAt("robot")} {
		uri := v.scoped("robot", &ferrule.Resource{URI: "ui://lamp/a b.html"})
		if got, err := connectAt(t, v, versions[0], nil).ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err == nil || !strings.Contains(err.Error(), "limit is 262144") {
			t.Errorf("%s: got %+v, %v", uri, got, err)
		}
	}
	for _, id := range []string{"ferrule", "Ferrule"} {
		if got := s.viewAt("").scoped(id, &ferrule.Resource{URI: "ui://device"}); !strings.HasPrefix(got, devicesURI) {
			t.Errorf("%s gets %s", id, got)
		}
		if device, _, ok := s.viewAt("").located("ui://" + id + "/device"); ok {
			t.Errorf("it leads to %s", device)
		}
	}
}
