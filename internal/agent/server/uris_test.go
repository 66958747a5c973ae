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

// FuzzScope: whatever a device calls a resource, the URI that agents have for it means
// that resource, or one that is written alike, and has the characters of a URI.
func FuzzScope(f *testing.F) {
	for _, uri := range []string{"file:///log", "a b", "%", "%41", "{x}", "é", "ferrule://devices/robot/state", "ferrule://devices/robot/resources/x", "a%20b\x00a b", "", "\xff"} {
		f.Add(uri, "file:///other")
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		m := &ferrule.Manifest{Resources: []ferrule.Resource{{URI: one}, {URI: two}}, Operations: []ferrule.Operation{ferrule.ReadResource}}
		m.Bound()
		c := catalog.New(catalog.DefaultConfig())
		c.Put(&ferrule.Device{ID: "robot", Kind: "k", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, m)
		front := New(Parts{Config: DefaultConfig(), Catalog: c, Version: "1", Log: slog.New(slog.DiscardHandler)})
		for _, v := range []*view{front.viewAt(""), front.viewAt("robot")} {
			for i := range m.Resources {
				r, other := &m.Resources[i], &m.Resources[len(m.Resources)-1-i]
				uri := v.scoped("robot", r)
				device, own, ok := v.located(uri)
				switch {
				case v.device != "" && !ok: // the gateway's, and in no list
				case device != "robot" || !ok || own != r.URI && (own != other.URI || uri != v.scoped("robot", other)):
					t.Errorf("%q means %q of %s, want %q", uri, own, device, r.URI)
				case v.device == "" && (strings.ContainsFunc(uri, func(r rune) bool { return r <= ' ' || r > '~' }) || strings.ContainsAny(uri, `{}"<>\^`+"`|")):
					t.Errorf("%q is no URI", uri)
				}
			}
		}
	})
}

// FuzzLocated: whatever an agent sends for a URI, it means something or nothing, and a
// template that is told of can be read.
func FuzzLocated(f *testing.F) {
	for _, uri := range []string{"ferrule://devices/robot/resources/x:", "ferrule://devices/%72obot/state", "ferrule://devices//resources/", "x:{a}", "x:{?a,b*}"} {
		f.Add(uri)
	}
	front := New(Parts{Config: DefaultConfig(), Catalog: catalog.New(catalog.DefaultConfig()), Version: "1", Log: slog.New(slog.DiscardHandler)})
	front.put("robot", ferrule.StateOnline, ferrule.TrustAdopted)
	f.Fuzz(func(t *testing.T, uri string) {
		for _, v := range []*view{front.viewAt(""), front.viewAt("robot")} {
			if device, _, ok := v.located(uri); ok && v.device != "" && device != v.device {
				t.Errorf("%q means something of %q", uri, device)
			}
			v.topicOf(uri)
		}
		var told *jsonrpc.Error
		if errors.As(noResource(uri), &told); !json.Valid(told.Data) {
			t.Errorf("%s cannot be told", told.Data)
		}
		if validTemplate(uri) && strings.Count(uri, "{") != strings.Count(uri, "}") {
			t.Errorf("%q is a template", uri)
		}
	})
}
