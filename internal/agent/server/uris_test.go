package server

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// FuzzScope: the URI that agents see is valid, and leads back to the resource of the
// device.
func FuzzScope(f *testing.F) {
	for _, uri := range []string{"file:///log", "a b", "%", "%41", "{x}", "é", "ferrule://devices/robot/state", "ferrule://devices/robot/resources/x", "a%20b\x00a b", "", "\xff", "ui://x/y", "ui://a b", "UI://x", "ui://"} {
		f.Add(uri, "file:///other")
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		m := &ferrule.Manifest{Resources: []ferrule.Resource{{URI: one}, {URI: two}}, Operations: []ferrule.Operation{ferrule.ReadResource}}
		m.Bound()
		c := catalog.New(catalog.DefaultConfig())
		c.Put(&ferrule.Device{ID: "robot", Kind: "k", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, m)
		server := New(Parts{Config: DefaultConfig(), Catalog: c, Version: "1", Log: slog.New(slog.DiscardHandler)})
		for _, v := range []*view{server.viewAt(""), server.viewAt("robot")} {
			for i := range m.Resources {
				r, other := &m.Resources[i], &m.Resources[len(m.Resources)-1-i]
				uri := v.scoped("robot", r)
				device, own, ok := v.located(uri)
				switch {
				case device != "robot" || !ok || own != r.URI && (own != other.URI || uri != v.scoped("robot", other)):
					t.Errorf("%q resolves to %q of %s, want %q", uri, own, device, r.URI)
				case v.device == "" && (strings.ContainsFunc(uri, func(r rune) bool { return r <= ' ' || r > '~' }) || strings.ContainsAny(uri, `{}"<>\^`+"`|")):
					t.Errorf("%q is not a URI", uri)
				}
			}
		}
	})
}

// TestForeignURIs: at its own address, a device cannot publish resources that look like
// those of the gateway or of another device, neither in lists nor in results.
func TestForeignURIs(t *testing.T) {
	const state, scoped = "ferrule://devices/lock/state", "ferrule://devices/robot/resources/"
	foreign := []string{state, "FERRULE://devices/lock", "ferrule:x", "ferrule://devices", "ferrule://devices/robot/state"}
	var read []string
	m := &ferrule.Manifest{Operations: []ferrule.Operation{ferrule.ReadResource, ferrule.Subscribe}, Tools: []ferrule.Tool{{Name: "look"}}}
	for _, uri := range foreign {
		m.Resources = append(m.Resources, ferrule.Resource{URI: uri})
	}
	m.Resources = append(m.Resources, ferrule.Resource{URI: "ferrule://devices/{id}/state", Template: true}, ferrule.Resource{URI: "robot://log"})
	f := newServerOf(t, func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		if call.Device == ferrule.GatewayID {
			return &ferrule.Result{Value: json.RawMessage(`{"from":"gateway"}`)}, nil
		}
		read = append(read, call.Tool)
		return &ferrule.Result{Content: []ferrule.Content{{Type: "resource", URI: state, Text: "unlocked"}}}, nil
	}, m)
	session := connectAt(t, f.viewAt("robot"), "2025-11-25", nil)
	var listed []string
	for r, err := range session.Resources(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, r.URI)
	}
	for r, err := range session.ResourceTemplates(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, r.URITemplate)
	}
	for _, uri := range listed {
		if isGatewayURI(uri) && uri != devicesURI+"/robot" && !strings.HasPrefix(uri, devicesURI+"/robot/") && !strings.HasPrefix(uri, devicesURI+"/{device}") {
			t.Errorf("%s is listed", uri)
		}
	}
	for _, uri := range append([]string{"robot://log"}, scoped+state, scoped+"ferrule://devices/{id}/state") {
		if !slices.Contains(listed, uri) {
			t.Errorf("%s is not listed", uri)
		}
	}
	for _, uri := range foreign[:4] {
		if got, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err == nil {
			t.Errorf("%s can be read: %+v", uri, got.Contents[0])
		}
	}
	if got, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: foreign[4]}); err != nil || !strings.Contains(got.Contents[0].Text, "gateway") || read != nil {
		t.Errorf("%+v, %v; the device was asked for %q", got, err, read)
	}
	got, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: scoped + state})
	if err != nil || got.Contents[0].URI != scoped+state || !slices.Equal(read, []string{state}) {
		t.Errorf("%+v, %v; the device was asked for %q", got, err, read)
	}
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "look"})
	if err != nil || result.Content[0].(*mcp.EmbeddedResource).Resource.URI != scoped+state {
		t.Errorf("%+v, %v", result, err)
	}
}

// FuzzLocated: any URI can be resolved or refused, and listed templates are valid.
func FuzzLocated(f *testing.F) {
	for _, uri := range []string{"ferrule://devices/robot/resources/x:", "ferrule://devices/%72obot/state", "ferrule://devices//resources/", "x:{a}", "x:{?a,b*}", "ui://robot/x", "ui://lock/x", "ui://ferrule/device", "ui://robot"} {
		f.Add(uri)
	}
	server := New(Parts{Config: DefaultConfig(), Catalog: catalog.New(catalog.DefaultConfig()), Version: "1", Log: slog.New(slog.DiscardHandler)})
	server.put("robot", ferrule.StateOnline, ferrule.TrustAdopted)
	f.Fuzz(func(t *testing.T, uri string) {
		for _, v := range []*view{server.viewAt(""), server.viewAt("robot")} {
			if device, _, ok := v.located(uri); ok && v.device != "" && device != v.device {
				t.Errorf("%q resolves to a resource of %q", uri, device)
			}
			v.topicOf(uri)
		}
		var notFound *jsonrpc.Error
		if errors.As(noResource(uri), &notFound); !json.Valid(notFound.Data) {
			t.Errorf("%s is not valid JSON", notFound.Data)
		}
		if validTemplate(uri) && strings.Count(uri, "{") != strings.Count(uri, "}") {
			t.Errorf("%q is accepted as a template", uri)
		}
	})
}
