package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var half = 0.5

// aServer returns the manifest of a device that offers all features of MCP.
func aServer() *ferrule.Manifest {
	picture := []ferrule.Icon{{Source: "https://example.com/a.png", MIME: "image/png", Sizes: []string{"48x48"}, Theme: "dark"}}
	return &ferrule.Manifest{
		Model: "board", Instructions: "Home the arm first.",
		Tools: []ferrule.Tool{{Name: "move", Title: "Move the arm", Effect: ferrule.Changes, Icons: picture}},
		Resources: []ferrule.Resource{
			{URI: "file:///log", Name: "log", Title: "The log", Text: "What happened", MIME: "text/plain", Size: 7, Icons: picture,
				Annotations: &ferrule.Annotations{Audience: []string{"user"}, Priority: &half, Modified: "2026-07-28T00:00:00Z"}},
			{URI: "file:///log/{day}", Template: true, Name: "day", Text: "What happened on a day"},
		},
		Prompts: []ferrule.Prompt{{Name: "greet", Title: "Greet", Text: "Say hello", Icons: picture,
			Arguments: []ferrule.PromptArgument{{Name: "who", Title: "Who", Text: "Whom to greet", Required: true}}}},
		Operations: []ferrule.Operation{ferrule.ReadResource, ferrule.GetPrompt, ferrule.Complete, ferrule.Subscribe},
	}
}

// operations serves that device. Its results repeat the request.
func operations(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	asked := fmt.Sprintf("%s %s %s %s", call.Device, call.Operation, call.Tool, call.Args)
	switch call.Operation {
	case ferrule.ReadResource:
		return &ferrule.Result{Content: []ferrule.Content{
			{Type: ferrule.ResourceContent, URI: call.Tool, MIME: "text/plain", Text: asked},
			{Type: ferrule.ResourceContent, URI: call.Tool + "/raw", Data: []byte{0, 1}},
		}}, nil
	case ferrule.GetPrompt:
		return &ferrule.Result{Text: "A greeting", Content: []ferrule.Content{
			{Type: ferrule.TextContent, Role: "assistant", Text: asked, Annotations: &ferrule.Annotations{Audience: []string{"user"}}},
			{Type: ferrule.LinkContent, Role: "user", Link: &ferrule.Resource{URI: "file:///log", Name: "log", Size: 7}},
			{Type: ferrule.ResourceContent, Role: "system", URI: "file:///log", Text: "a line"},
		}}, nil
	case ferrule.Complete:
		return &ferrule.Result{Value: json.RawMessage(fmt.Sprintf(`{"values":[%q],"total":5,"more":true}`, asked))}, nil
	}
	return nil, ferrule.Errorf(ferrule.Refused, "no %s", asked)
}

// everyView runs a test at the address of a device and of the fleet, in all protocol
// versions.
func everyView(t *testing.T, f *Server, test func(t *testing.T, session *mcp.ClientSession, prefix, uris string)) {
	t.Helper()
	for _, version := range versions {
		t.Run("device "+version, func(t *testing.T) { test(t, connectAt(t, f.viewAt("robot"), version, nil), "", "") })
		t.Run("all "+version, func(t *testing.T) {
			test(t, connectAt(t, f.viewAt(""), version, nil), "robot__", "ferrule://devices/robot/resources/")
		})
	}
}

// TestListsOfDevices: lists have all that a device declares, with its own names at its
// own address.
func TestListsOfDevices(t *testing.T) {
	f := newServerOf(t, operations, aServer())
	everyView(t, f, func(t *testing.T, session *mcp.ClientSession, prefix, uris string) {
		show := func(v any) string {
			data, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			return string(data)
		}
		const picture = `"icons":[{"src":"https://example.com/a.png","mimeType":"image/png","sizes":["48x48"],"theme":"dark"}]`
		tools, err := session.ListTools(t.Context(), nil)
		if err != nil || tools.Tools[0].Title != "Move the arm" || !strings.Contains(show(tools.Tools[0]), picture) {
			t.Errorf("%s, %v", show(tools), err)
		}
		resources, err := session.ListResources(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(resources.Resources, func(r *mcp.Resource) bool { return r.URI == uris+"file:///log" })
		name := strings.TrimPrefix(prefix+"log", "robot__")
		if prefix != "" {
			name = "robot log"
		}
		want := `{"annotations":{"audience":["user"],"lastModified":"2026-07-28T00:00:00Z","priority":0.5},"description":"What happened",` +
			`"mimeType":"text/plain","name":"` + name + `","size":7,"title":"The log","uri":"` + uris + `file:///log",` + picture + `}`
		if at < 0 || show(resources.Resources[at]) != want {
			t.Errorf("got %s, want %s", show(resources.Resources), want)
		}
		templates, err := session.ListResourceTemplates(t.Context(), nil)
		if err != nil || !strings.Contains(show(templates), `"uriTemplate":"`+uris+`file:///log/{day}"`) {
			t.Errorf("%s, %v", show(templates), err)
		}
		prompts, err := session.ListPrompts(t.Context(), nil)
		want = `[{"arguments":[{"name":"who","title":"Who","description":"Whom to greet","required":true}],"description":"Say hello","name":"` + prefix + `greet","title":"Greet",` + picture + `}]`
		if err != nil || show(prompts.Prompts) != want {
			t.Errorf("got %s, want %s: %v", show(prompts.Prompts), want, err)
		}
		caps := session.InitializeResult().Capabilities
		if !caps.Prompts.ListChanged || caps.Completions == nil || !caps.Resources.Subscribe {
			t.Errorf("got capabilities %s", show(caps))
		}
	})
}

// TestOperations: reading a resource, getting a prompt and completing an argument are
// calls. Their results are passed on with URIs that are valid in the view.
func TestOperations(t *testing.T) {
	f := newServerOf(t, operations, aServer())
	everyView(t, f, func(t *testing.T, session *mcp.ClientSession, prefix, uris string) {
		for _, uri := range []string{"file:///log", "file:///log/a%20b%25"} {
			read, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uris + uri})
			if err != nil || len(read.Contents) != 2 {
				t.Fatalf("%v, %v", read, err)
			}
			a, b := read.Contents[0], read.Contents[1]
			if a.URI != uris+uri || a.Text != "robot read "+uri+" " || a.MIMEType != "text/plain" || b.URI != uris+uri+"/raw" || string(b.Blob) != "\x00\x01" {
				t.Errorf("got %+v and %+v", a, b)
			}
		}
		got, err := session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: prefix + "greet", Arguments: map[string]string{"who": "Ann"}})
		if err != nil || len(got.Messages) != 3 || got.Description != "A greeting" {
			t.Fatalf("%+v, %v", got, err)
		}
		text, link, embedded := got.Messages[0], got.Messages[1], got.Messages[2]
		if c := text.Content.(*mcp.TextContent); text.Role != "assistant" || c.Text != `robot prompt greet {"who":"Ann"}` || c.Annotations.Audience[0] != "user" {
			t.Errorf("got %s: %+v", text.Role, c)
		}
		if c := link.Content.(*mcp.ResourceLink); c.URI != uris+"file:///log" || *c.Size != 7 || c.Name != "log" {
			t.Errorf("got %+v", c)
		}
		if c := embedded.Content.(*mcp.EmbeddedResource); c.Resource.URI != uris+"file:///log" || embedded.Role != "user" {
			t.Errorf("got %s: %+v", embedded.Role, c.Resource)
		}
		for ref, want := range map[*mcp.CompleteReference]string{
			{Type: "ref/prompt", Name: prefix + "greet"}:            `robot complete greet {"argument":"x","value":"A"}`,
			{Type: "ref/resource", URI: uris + "file:///log/{day}"}: `robot complete file:///log/{day} {"template":true,"argument":"x","value":"A"}`,
		} {
			said, err := session.Complete(t.Context(), &mcp.CompleteParams{Ref: ref, Argument: mcp.CompleteParamsArgument{Name: "x", Value: "A"}})
			if err != nil || said.Completion.Values[0] != want || said.Completion.Total != 5 || !said.Completion.HasMore {
				t.Errorf("got %+v, want %s: %v", said, want, err)
			}
		}
	})
}

// TestUnknownNames: an unknown name is an error, and a device that does not support an
// operation is not called.
func TestUnknownNames(t *testing.T) {
	asked := 0
	f := newServerOf(t, func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		if call.Device == "nobody" { // as the pipeline answers
			return nil, ferrule.UnknownDevice(call.Device)
		}
		asked++
		if call.Operation == ferrule.GetPrompt {
			return nil, ferrule.Errorf(ferrule.NotFound, "unknown prompt %q", call.Tool)
		}
		return nil, ferrule.Errorf(ferrule.Refused, "%s does not know it", call.Device)
	}, &ferrule.Manifest{Model: "board", Tools: []ferrule.Tool{{Name: "look", Effect: ferrule.Reads}}})
	f.parts.Catalog.Put(&ferrule.Device{ID: "server", Kind: "s", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, aServer())
	for _, version := range versions {
		session := connect(t, f, version, nil)
		for _, uri := range []string{
			"ferrule://devices/robot/resources/file:///log", "ferrule://devices/nobody/resources/file:///log", "file:///log",
			"ferrule://devices/server/resources/", "ferrule://devices/server/resources/a\u0007", "ferrule://devices/server/resources/" + strings.Repeat("a", ferrule.MaxURI+1),
		} {
			if _, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err == nil || !strings.Contains(err.Error(), "not found") || asked != 0 {
				t.Errorf("%s: %d calls, %v", uri, asked, err)
			}
		}
		if _, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "ferrule://devices/server/resources/x:"}); err == nil ||
			!strings.Contains(err.Error(), "server does not know it. The device refused; the action did not run.") {
			t.Errorf("got %v", err)
		}
		for _, name := range []string{"greet", "server__nothing"} {
			if _, err := session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: name}); err == nil || !strings.Contains(err.Error(), "unknown prompt") {
				t.Errorf("got %v", err)
			}
		}
		asked = 0
		said, err := session.Complete(t.Context(), &mcp.CompleteParams{
			Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "robot__greet"}, Argument: mcp.CompleteParamsArgument{Name: "x"}})
		if err != nil || len(said.Completion.Values) != 0 || asked != 0 {
			t.Errorf("%+v, %v, %d calls", said, err, asked)
		}
	}
}

// TestHostileManifest: whatever a device declares, lists are paged and limited, every
// entry can be used, and invalid templates are left out.
func TestHostileManifest(t *testing.T) {
	odd := func() *ferrule.Manifest {
		m := &ferrule.Manifest{Operations: []ferrule.Operation{ferrule.ReadResource, ferrule.GetPrompt}}
		for _, uri := range []string{"a b", "é", "%", "a%20b", `"<>\^|` + "`", "{x}", "x:{", "ferrule://devices", "ferrule://devices/robot/state", "../..", "?a#b", "state"} {
			m.Resources = append(m.Resources, ferrule.Resource{URI: uri})
		}
		for _, uri := range []string{"t:{", "t:}", "t:{}", "t:{{a}}", "t:{a b}", "t:{é}"} {
			m.Resources = append(m.Resources, ferrule.Resource{URI: uri, Template: true})
		}
		for i := len(m.Resources); i < ferrule.MaxItems; i++ {
			m.Resources = append(m.Resources, ferrule.Resource{URI: fmt.Sprintf("x://%d", i)})
		}
		for i := range ferrule.MaxItems {
			m.Prompts = append(m.Prompts, ferrule.Prompt{Name: fmt.Sprintf("é %s %d", strings.Repeat("x", i%100), i)})
		}
		return m
	}
	f := newServerOf(t, operations, odd())
	f.parts.Catalog.Put(&ferrule.Device{ID: "second", Kind: "k2", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, odd())
	for device, most := range map[string]int{"": listedItems + 50, "robot": ferrule.MaxItems + 2} {
		session := connectAt(t, f.viewAt(device), mcphttp.StatelessVersion, nil)
		known := make(map[string]bool)
		for i, m := 0, odd(); i < len(m.Resources); i++ {
			known[m.Resources[i].URI] = true
		}
		listed, own := 0, 0
		for r, err := range session.Resources(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			if listed++; listed > most {
				t.Fatalf("%d resources of %q are listed", listed, device)
			}
			if id, uri, ok := f.viewAt(device).located(r.URI); ok {
				if own++; !known[uri] || id != "robot" {
					t.Errorf("%q resolves to %q of %s", r.URI, uri, id)
				}
			}
		}
		if own < 900 {
			t.Errorf("%d resources of devices are listed", own)
		}
		for r, err := range session.ResourceTemplates(t.Context(), nil) {
			if err != nil || strings.Contains(r.URITemplate, "t:") {
				t.Errorf("%+v, %v", r, err)
			}
		}
		prompts := make(map[string]bool)
		for p, err := range session.Prompts(t.Context(), nil) {
			if err != nil || prompts[p.Name] || len(p.Name) > 46 {
				t.Fatalf("%+v, %v", p, err)
			}
			prompts[p.Name] = true
		}
		if len(prompts) < listedItems || len(prompts) > ferrule.MaxItems {
			t.Errorf("%d prompts are listed", len(prompts))
		}
	}
}

// TestServerIcons: at the address of a device, the server has the device's icons.
func TestServerIcons(t *testing.T) {
	icon := ferrule.Icon{Source: "data:image/png;base64,AA==", MIME: "image/png"}
	f := newServerOf(t, nil, &ferrule.Manifest{Icons: []ferrule.Icon{icon}, Tools: []ferrule.Tool{{Name: "look"}}})
	for _, version := range versions {
		for device, want := range map[string]int{"": 0, "robot": 1} {
			info := connectAt(t, f.viewAt(device), version, nil).InitializeResult().ServerInfo
			if info == nil || info.Name != "ferrule" || len(info.Icons) != want || want == 1 && info.Icons[0].Source != icon.Source {
				t.Errorf("%s at %q: %+v", version, device, info)
			}
		}
	}
}

// TestListsChange: agents are notified of the list that has changed, of no other, and
// only in views that show it.
func TestListsChange(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, version string) {
		f := newServerOf(t, operations, aServer())
		f.put("lamp", ferrule.StateOnline, ferrule.TrustAdopted)
		f.changed()
		go f.Run(t.Context())
		notified := make(chan string, 100)
		listen := func(where string) {
			options := &mcp.ClientOptions{
				PromptListChangedHandler:   func(context.Context, *mcp.PromptListChangedRequest) { notified <- where + " prompts" },
				ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { notified <- where + " resources" },
			}
			connectAt(t, f.viewAt(where), version, options)
		}
		listen("")
		listen("robot")
		listen("lamp")
		synctest.Wait() // a listen request has no response to wait for
		change := func(what string, edit func(m *ferrule.Manifest)) {
			t.Helper()
			m := aServer()
			edit(m)
			f.parts.Catalog.Put(&ferrule.Device{ID: "robot", Kind: "k", Model: "board", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, m)
			got := make(map[string]bool)
			for range 2 {
				select {
				case word := <-notified:
					got[word] = true
				case <-time.After(wait.Ample):
					t.Fatalf("got %v, want %s", got, what)
				}
			}
			time.Sleep(50 * time.Millisecond)
			if !got[" "+what] || !got["robot "+what] || len(notified) > 0 {
				t.Errorf("got %v and %d more, want %s", got, len(notified), what)
			}
		}
		change("prompts", func(m *ferrule.Manifest) { m.Prompts[0].Text = "Say goodbye" })
		change("resources", func(m *ferrule.Manifest) {
			m.Prompts[0].Text = "Say goodbye"
			m.Resources[1].Title = "A day" // a template
		})
	})
}
