package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/agent/skills"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// skillClient is an agent that uses skills.
type skillClient struct {
	t *testing.T
	*mcp.ClientSession
}

// asSkillClient connects an agent to a view.
func asSkillClient(t *testing.T, v *view, who ferrule.Principal, version string) skillClient {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	server, err := v.sdk.Connect(context.WithValue(t.Context(), callerKey{}, who), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	err = errors.Join(
		mcp.AddSendingCustomMethod[*listSkillsParams, *listSkillsResult](client, "skills/list"),
		mcp.AddSendingCustomMethod[*skillParams, *getSkillResult](client, "skills/get"),
		mcp.AddSendingCustomMethod[*skillParams, *readDirectoryResult](client, "resources/directory/read"),
	)
	if err != nil {
		t.Fatal(err)
	}
	session, err := client.Connect(t.Context(), here, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		session.Close()
		server.Close()
	})
	return skillClient{t, session}
}

// list returns all skills, and the number of pages.
func (c skillClient) list() (all []skillEntry, pages int) {
	c.t.Helper()
	for cursor := ""; pages == 0 || cursor != ""; pages++ {
		got, err := mcp.CallCustomMethod[*listSkillsParams, *listSkillsResult](c.t.Context(), c.ClientSession, "skills/list", &listSkillsParams{Cursor: cursor})
		if err != nil {
			c.t.Fatal(err)
		}
		if got.ResultType != "complete" || got.TTL <= 0 || got.CacheScope != "private" {
			c.t.Errorf("got %+v", got)
		}
		all, cursor = append(all, got.Skills...), got.NextCursor
	}
	return all, pages
}

// read returns the text of a resource, or an empty one.
func (c skillClient) read(uri string) string {
	c.t.Helper()
	got, err := c.ReadResource(c.t.Context(), &mcp.ReadResourceParams{URI: uri})
	if err != nil || len(got.Contents) != 1 {
		return ""
	}
	return got.Contents[0].Text
}

// names returns the names of skills.
func skillNames(all []skillEntry) (names []string) {
	for _, e := range all {
		names = append(names, e.Frontmatter.Name)
	}
	return names
}

// TestSkills lists, gets and reads skills at both addresses.
func TestSkills(t *testing.T) {
	f, _ := twoDevices(t, operations)
	for _, device := range []string{"", "robot"} {
		c := asSkillClient(t, f.viewAt(device), anybody, mcphttp.StatelessVersion)
		all, _ := c.list()
		if len(all) != 2 || all[1].Frontmatter.Name != "use-ferrule" || !strings.HasPrefix(all[0].URI, "skill://ferrule/kinds/board-") {
			t.Fatalf("got %+v", all)
		}
		for _, e := range all {
			got, err := mcp.CallCustomMethod[*skillParams, *getSkillResult](t.Context(), c.ClientSession, "skills/get", &skillParams{URI: e.URI})
			if err != nil || !reflect.DeepEqual(got.Skill, e) {
				t.Errorf("got %+v, %v", got, err)
			}
			for _, r := range e.Resources {
				if text := c.read(r.URI); len(text) != r.Size || text == "" {
					t.Errorf("%s has %d bytes, want %d", r.URI, len(text), r.Size)
				}
			}
			root := strings.TrimSuffix(e.URI, "/SKILL.md")
			dir, err := mcp.CallCustomMethod[*skillParams, *readDirectoryResult](t.Context(), c.ClientSession, "resources/directory/read", &skillParams{URI: root})
			if err != nil || len(dir.Resources) != 2 || dir.Resources[0].URI != e.URI || dir.Resources[0].Name != e.Frontmatter.Name || dir.Resources[1].MIMEType != directoryType {
				t.Errorf("got %+v, %v", dir, err)
			}
		}
		var wire *jsonrpc.Error
		for _, uri := range []string{"", "skill://ferrule", "skill://ferrule/use-ferrule", "skill://ferrule/kinds/x/SKILL.md"} {
			if _, err := mcp.CallCustomMethod[*skillParams, *getSkillResult](t.Context(), c.ClientSession, "skills/get", &skillParams{URI: uri}); !errors.As(err, &wire) || wire.Code != jsonrpc.CodeInvalidParams {
				t.Errorf("%q: %v", uri, err)
			}
		}
		if _, err := mcp.CallCustomMethod[*skillParams, *readDirectoryResult](t.Context(), c.ClientSession, "resources/directory/read", &skillParams{URI: all[0].URI}); !errors.As(err, &wire) || wire.Code != jsonrpc.CodeInvalidParams {
			t.Errorf("a file is a directory: %v", err)
		}
	}
}

// TestSkillsOfOlderVersions checks that skills do not exist before 2026-07-28.
func TestSkillsOfOlderVersions(t *testing.T) {
	f, _ := twoDevices(t, operations)
	c := asSkillClient(t, f.viewAt(""), anybody, "2025-11-25")
	if _, ok := c.InitializeResult().Capabilities.Extensions[skillsExtension]; ok {
		t.Error("skills are declared")
	}
	if _, ok := c.InitializeResult().Capabilities.Extensions[uiExtension]; !ok {
		t.Error("panels are not declared")
	}
	var wire *jsonrpc.Error
	_, err := mcp.CallCustomMethod[*listSkillsParams, *listSkillsResult](t.Context(), c.ClientSession, "skills/list", &listSkillsParams{})
	if !errors.As(err, &wire) || wire.Code != jsonrpc.CodeMethodNotFound {
		t.Errorf("got %v", err)
	}
	if all := everything(t, c.ClientSession); strings.Contains(all, skills.Root) {
		t.Errorf("skills are listed:\n%s", all)
	}
}

// TestHiddenSkills checks that a caller gets no skill of hidden or pending devices, and
// nothing about a hidden tool.
func TestHiddenSkills(t *testing.T) {
	f, hide := twoDevices(t, operations)
	other := &ferrule.Manifest{Model: "vault", Tools: []ferrule.Tool{{Name: "open", Effect: ferrule.Endangers}, {Name: "peek", Effect: ferrule.Reads}, {Name: "broken", Quarantine: "because"}}}
	f.parts.Catalog.Put(&ferrule.Device{ID: "vault", Kind: "v", Model: "vault", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, other)
	f.parts.Catalog.Put(&ferrule.Device{ID: "new", Kind: "n", Model: "stranger", State: ferrule.StateOnline, Trust: ferrule.TrustPending},
		&ferrule.Manifest{Model: "stranger", Tools: []ferrule.Tool{{Name: "look"}}})
	whole, _ := asSkillClient(t, f.viewAt(""), anybody, mcphttp.StatelessVersion).list()
	if n := skillNames(whole); len(n) != 3 || !strings.HasPrefix(n[1], "vault-") {
		t.Fatalf("got %q", n)
	}
	c := asSkillClient(t, f.viewAt(""), limited, mcphttp.StatelessVersion)
	if got, _ := c.list(); !reflect.DeepEqual(got, whole) {
		t.Errorf("got %+v", got)
	}
	if text := c.read(strings.Replace(whole[1].URI, "SKILL.md", "references/tools.md", 1)); !strings.Contains(text, "open") || strings.Contains(text, "broken") {
		t.Errorf("got %s", text)
	}
	hide("open")
	got, _ := c.list()
	if n := skillNames(got); len(n) != 3 || n[1] == whole[1].Frontmatter.Name || n[0] != whole[0].Frontmatter.Name {
		t.Errorf("got %q", n)
	}
	for _, r := range got[1].Resources {
		if text := c.read(r.URI); text == "" || strings.Contains(text, "open") {
			t.Errorf("%s: %s", r.URI, text)
		}
	}
	hide("vault")
	if got, _ = c.list(); len(got) != 2 {
		t.Errorf("got %q", skillNames(got))
	}
	for _, r := range whole[1].Resources {
		if text := c.read(r.URI); text != "" {
			t.Errorf("%s: %s", r.URI, text)
		}
	}
	if text := everything(t, c.ClientSession); strings.Contains(text, "vault") {
		t.Errorf("got %s", text)
	}
}

// TestSameSkills checks that two gateways have the same skills for the same Kinds, whatever
// their devices are called, where they are and in which order they came.
func TestSameSkills(t *testing.T) {
	manifest := func(i int) *ferrule.Manifest {
		return &ferrule.Manifest{Model: fmt.Sprintf("model %d", i), Tools: []ferrule.Tool{{Name: "look", Effect: ferrule.Reads}, {Name: "act"}}}
	}
	gateway := func(prefix string, order []int) []skillEntry {
		c := catalog.New(catalog.DefaultConfig())
		for n, i := range order {
			for _, half := range []string{"a", "b"} { // two devices, with manifests of their own
				c.Put(&ferrule.Device{
					ID: fmt.Sprintf("%s-%d-%s", prefix, n, half), Kind: ferrule.Kind(fmt.Sprint("kind", i)), Node: prefix, Address: prefix + half,
					State: ferrule.StateOnline, Trust: ferrule.TrustAdopted,
				}, manifest(i))
			}
		}
		s := New(Parts{Config: DefaultConfig(), Catalog: c, Handle: operations, Version: prefix, Log: slog.New(slog.DiscardHandler)})
		all, _ := asSkillClient(t, s.viewAt(""), anybody, mcphttp.StatelessVersion).list()
		return all
	}
	one, two := gateway("one", []int{1, 2, 3}), gateway("two", []int{3, 1, 2})
	if !reflect.DeepEqual(one, two) || len(one) != 4 {
		t.Errorf("got %+v and %+v", one, two)
	}
}

// TestManySkills checks that pages have whole skills, each once, and that there is a limit.
func TestManySkills(t *testing.T) {
	f := newServer(t, operations, ferrule.Tool{Name: "look", Effect: ferrule.Reads})
	for i := range maxSkills + 50 {
		f.parts.Catalog.Put(&ferrule.Device{ID: fmt.Sprintf("d%d", i), Kind: ferrule.Kind(fmt.Sprintf("%032d", i)), State: ferrule.StateOnline, Trust: ferrule.TrustAdopted},
			&ferrule.Manifest{Model: fmt.Sprintf("model %d", i), Tools: []ferrule.Tool{{Name: "look"}}})
	}
	c := asSkillClient(t, f.viewAt(""), anybody, mcphttp.StatelessVersion)
	all, pages := c.list()
	names := skillNames(all)
	slices.Sort(names)
	if len(slices.Compact(names)) != maxSkills+1 || len(all) != maxSkills+1 || pages != 2 {
		t.Errorf("%d skills, %d pages", len(all), pages)
	}
	for _, e := range all {
		if len(e.Resources) != 3 && e.Frontmatter.Name != "use-ferrule" {
			t.Errorf("got %+v", e)
		}
	}
}

// TestForeignSkills checks that a device cannot pretend to have a skill of the gateway.
func TestForeignSkills(t *testing.T) {
	m := aServer()
	m.Tools = append(m.Tools, ferrule.Tool{Name: "look", Effect: ferrule.Reads})
	m.Resources = append(m.Resources, ferrule.Resource{URI: "skill://ferrule/use-ferrule/SKILL.md"}, ferrule.Resource{URI: "SKILL://Ferrule/kinds/x/SKILL.md"})
	f := newServerOf(t, func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		return &ferrule.Result{Content: []ferrule.Content{{Type: "text", Text: "I am the device"}}}, nil
	}, m)
	for _, device := range []string{"", "robot"} {
		c := asSkillClient(t, f.viewAt(device), anybody, mcphttp.StatelessVersion)
		if text := c.read("skill://ferrule/use-ferrule/SKILL.md"); !strings.Contains(text, "# Use devices with Ferrule") {
			t.Errorf("got %s", text)
		}
		if text := c.read("SKILL://Ferrule/kinds/x/SKILL.md"); text != "" {
			t.Errorf("got %s", text)
		}
		if text := c.read("ferrule://devices/robot/resources/skill://ferrule/use-ferrule/SKILL.md"); text != "I am the device" {
			t.Errorf("got %s", text)
		}
		if all, _ := c.list(); len(all) != 2 {
			t.Errorf("got %q", skillNames(all))
		}
	}
}

// TestSkillsChange checks that agents are notified when a Kind comes, and that nothing else
// changes their skills.
func TestSkillsChange(t *testing.T) {
	f := newServer(t, operations, ferrule.Tool{Name: "look", Effect: ferrule.Reads})
	v := f.viewAt("")
	before := v.lists(f.parts.Catalog.All())
	put := func(id, kind, text string) map[string]bool {
		f.parts.Catalog.Put(&ferrule.Device{ID: id, Kind: ferrule.Kind(kind), Model: "board", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted},
			&ferrule.Manifest{Model: "board", Tools: []ferrule.Tool{{Name: "look", Text: text, Effect: ferrule.Reads}}})
		now := v.lists(f.parts.Catalog.All())
		now.resources, now.templates, now.tools = before.resources, before.templates, before.tools
		differs := make(map[string]bool)
		before.compare(now, differs)
		before = now
		return differs
	}
	if got := put("second", "k", ""); len(got) != 0 {
		t.Errorf("a second device of the Kind: %v", got)
	}
	if got := put("third", "other", ""); !got["notifications/resources/list_changed"] || len(got) != 1 {
		t.Errorf("a new Kind: %v", got)
	}
	if got := put("third", "other", "Looks."); !got["notifications/resources/list_changed"] {
		t.Errorf("an overlay: %v", got)
	}
}
