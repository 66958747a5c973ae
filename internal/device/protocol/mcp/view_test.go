package mcp

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestViewOf reads the view of a tool in both forms, and ignores what is not one.
func TestViewOf(t *testing.T) {
	for meta, want := range map[string]string{
		`{"ui":{"resourceUri":"ui://a/b","visibility":["model"]}}`:      "ui://a/b [model]",
		`{"ui/resourceUri":"ui://a/b"}`:                                 "ui://a/b []",
		`{"ui":{"resourceUri":"ui://new"},"ui/resourceUri":"ui://old"}`: "ui://new []",
		`{"ui":"x","ui/resourceUri":"ui://old"}`:                        "ui://old []",
		`{"ui":{"resourceUri":"https://a/b"}}`:                          "",
		`{"ui":{"resourceUri":7}}`:                                      "",
		`[]`:                                                            "",
	} {
		got := ""
		if v := viewOf(json.RawMessage(meta)); v != nil {
			got = fmt.Sprint(v.URI, " ", v.Visibility)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", meta, got, want)
		}
	}
}

// TestViewHints reads what a view wants to load. Permissions and the domain are not kept.
func TestViewHints(t *testing.T) {
	var part resourceJSON
	const text = `{"uri":"ui://a/b","mimeType":"text/html;profile=mcp-app","text":"<p>","_meta":{"ui":{"permissions":{"camera":{}},"domain":"a.example","prefersBorder":true,
		"csp":{"connectDomains":["https://a.example","https://b\n"],"other":["https://c.example"]}}}}`
	if err := json.Unmarshal([]byte(text), &part); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(part.content().View)
	if want := `{"origins":{"connectDomains":["https://a.example"]},"border":true}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	part.URI = "file:///x"
	if v := part.content().View; v != nil {
		t.Errorf("got %+v for another resource", v)
	}
	part.URI, part.Meta = "ui://a/b", json.RawMessage(`"x"`)
	if v := part.content().View; v == nil || v.Origins != nil || v.Border != nil {
		t.Errorf("got %+v for invalid _meta", v)
	}
}

// TestViewChangesKind: the view of a tool is part of the Kind, and an invalid one is dropped.
func TestViewChangesKind(t *testing.T) {
	kind := func(uri string) ferrule.Kind {
		m := &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "x", View: &ferrule.ToolView{URI: uri}}}}
		m.Bound()
		k, err := m.Kind()
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	if kind("ui://a") == kind("ui://b") || kind("ui://a\n") != kind("http://x") {
		t.Error("views are not part of the Kind, or invalid ones are")
	}
}
