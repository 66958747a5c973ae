package server

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// FuzzScope: the URI that agents see is valid, and leads back to the resource of the
// device.
func FuzzScope(f *testing.F) {
	for _, uri := range []string{"file:///log", "a b", "%", "%41", "{x}", "é", "ferrule://devices/robot/state", "ferrule://devices/robot/resources/x", "a%20b\x00a b", "", "\xff"} {
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
				case v.device != "" && !ok: // one of the gateway's own
				case device != "robot" || !ok || own != r.URI && (own != other.URI || uri != v.scoped("robot", other)):
					t.Errorf("%q resolves to %q of %s, want %q", uri, own, device, r.URI)
				case v.device == "" && (strings.ContainsFunc(uri, func(r rune) bool { return r <= ' ' || r > '~' }) || strings.ContainsAny(uri, `{}"<>\^`+"`|")):
					t.Errorf("%q is not a URI", uri)
				}
			}
		}
	})
}

// FuzzLocated: any URI can be resolved or refused, and listed templates are valid.
func FuzzLocated(f *testing.F) {
	for _, uri := range []string{"ferrule://devices/robot/resources/x:", "ferrule://devices/%72obot/state", "ferrule://devices//resources/", "x:{a}", "x:{?a,b*}"} {
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
