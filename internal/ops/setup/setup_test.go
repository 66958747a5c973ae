package setup

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite what testdata expects")

var (
	command = Server{Name: "ferrule", Command: "/usr/local/bin/ferrule", Args: []string{"mcp", "--serial", "auto"}}
	web     = Server{Name: "ferrule", URL: URL}
)

// TestFiles edits files as their programs write them. An archive has the file before,
// with a command, with a URL, and after removal if that differs from before.
func TestFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(string(archive.Comment), ":")
			c, err := Find(name)
			if err != nil {
				t.Fatal(err)
			}
			before := archive.Files[0].Data
			added := add(t, c, before, command)
			removed, err := c.Remove(added, command.Name)
			if err != nil {
				t.Fatal(err)
			}
			got := []txtar.File{{Name: "before", Data: before}, {Name: "added", Data: added}}
			if c.Accepts(web) == nil {
				got = append(got, txtar.File{Name: "http", Data: add(t, c, before, web)})
				back := add(t, c, got[2].Data, command)
				if _, own, _ := c.Entry(before, "ferrule"); !own && string(back) != string(added) {
					t.Errorf("by way of a URL it becomes\n%s", back)
				}
			}
			if string(removed) != string(before) {
				got = append(got, txtar.File{Name: "removed", Data: removed})
			}
			text := txtar.Format(&txtar.Archive{Comment: archive.Comment, Files: got})
			if *update {
				if err := os.WriteFile(file, text, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if want := txtar.Format(archive); string(text) != string(want) {
				t.Errorf("got\n%s\nwant\n%s", text, want)
			}
		})
	}
}

// add adds a server twice: the second time must not change anything.
func add(t *testing.T, c Client, doc []byte, s Server) []byte {
	t.Helper()
	once, err := c.Add(doc, s)
	if err != nil {
		t.Fatal(err)
	}
	if e, has, err := c.Entry(once, s.Name); !has || err != nil || !reflect.DeepEqual(e.Server, s) {
		t.Errorf("the server is not in\n%s%v", once, err)
	}
	twice, err := c.Add(once, s)
	if err != nil || string(once) != string(twice) {
		t.Errorf("the second time it becomes\n%s%v", twice, err)
	}
	return once
}

// TestBytes checks line endings and ends of files.
func TestBytes(t *testing.T) {
	json := `{
  "mcpServers": {
    "ferrule": {
      "url": "` + URL + `"
    }
  }
}
`
	toml := "[mcp_servers.ferrule]\nurl = \"" + URL + "\"\n"
	crlf := func(text string) string { return strings.ReplaceAll(text, "\n", "\r\n") }
	for name, test := range map[string]struct{ client, before, added, removed string }{
		"no file":                   {"cursor", "", json, "{\n  \"mcpServers\": {}\n}\n"},
		"an empty file":             {"cursor", " \n\n", json, "{\n  \"mcpServers\": {}\n}\n"},
		"an empty object":           {"cursor", "{}", strings.TrimSpace(json), "{\n  \"mcpServers\": {}\n}"},
		"CRLF":                      {"cursor", "{\r\n}\r\n", crlf(json), "{\r\n  \"mcpServers\": {}\r\n}\r\n"},
		"CRLF, with others":         {"cursor", "{\r\n\t\"a\": 1\r\n}\r\n", "{\r\n\t\"a\": 1,\r\n\t\"mcpServers\": {\r\n\t\t\"ferrule\": {\r\n\t\t\t\"url\": \"" + URL + "\"\r\n\t\t}\r\n\t}\r\n}\r\n", ""},
		"a mark at the beginning":   {"cursor", "\ufeff{\"a\": 1}", "\ufeff{\"a\": 1,\"mcpServers\": {\"ferrule\":{\"url\":\"" + URL + "\"}}}", ""},
		"TOML, no file":             {"codex", "", toml, "-"},
		"TOML, no end of a line":    {"codex", "a = 1", "a = 1\n\n" + strings.TrimSpace(toml), ""},
		"TOML, CRLF":                {"codex", "a = 1\r\n", "a = 1\r\n\r\n" + crlf(toml), ""},
		"TOML, empty lines":         {"codex", "a = 1\n\n\n", "a = 1\n\n\n\n" + toml, ""},
		"TOML, a remark at the end": {"codex", "a = 1\n# b", "a = 1\n# b\n\n" + strings.TrimSpace(toml), ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := Find(test.client)
			added := add(t, c, []byte(test.before), web)
			if string(added) != test.added {
				t.Errorf("added\n%q, want\n%q", added, test.added)
			}
			want := test.removed
			switch want {
			case "":
				want = test.before
			case "-":
				want = ""
			}
			if removed, err := c.Remove(added, "ferrule"); err != nil || string(removed) != want {
				t.Errorf("removed\n%q, want\n%q, %v", removed, want, err)
			}
		})
	}
}

// TestWrong checks errors for files that cannot be read or edited.
func TestWrong(t *testing.T) {
	for _, test := range []struct{ client, doc, want string }{
		{"zed", "{\n  \"a\": tru\n}", "line 2, column 8: "},
		{"zed", "{\n  \"a\": 1\n", "line 3, column 1: "},
		{"zed", "[]", "must be a JSON object"},
		{"zed", `{"context_servers": []}`, "context_servers must be an object"},
		{"zed", `{"context_servers": null}`, "context_servers is null"},
		{"codex", "a = 1\nb = = 2\n", "line 2, column 5: "},
		{"codex", "a = 1\na = 2\n", "line 2, column 1: "},
		{"codex", "mcp_servers = { docs = { url = 'x' } }\n", "cannot edit this file without breaking it"},
		{"codex", "[mcp_servers]\nferrule = { command = 'x' }\n", "mcp_servers.ferrule is not written as a table"},
		{"codex", "[mcp_servers]\nferrule.command = 'x'\n", "mcp_servers.ferrule is not written as a table"},
	} {
		c, _ := Find(test.client)
		if out, err := c.Add([]byte(test.doc), command); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: want %q, got %v and\n%s", test.doc, test.want, err, out)
		}
	}
	for _, name := range []string{"", "thirteen-long", "a.b", "ä"} {
		if (Server{Name: name}).Check() == nil {
			t.Errorf("%q is a name", name)
		}
	}
	if _, err := Find("emacs"); err == nil || !strings.Contains(err.Error(), "claude-code, claude-desktop") {
		t.Error(err)
	}
}

// TestRemove checks that comments stay when an entry is removed.
func TestRemove(t *testing.T) {
	for _, test := range []struct{ client, before, want string }{
		{"cursor", `{"mcpServers": {"ferrule": {}, "b": {}}}`, `{"mcpServers": { "b": {}}}`},
		{"cursor", "{\"mcpServers\": {\n// ours\n\"ferrule\": {}, \"b\": {}}}", "{\"mcpServers\": {\n// ours\n \"b\": {}}}"},
		{"cursor", "{\"mcpServers\": {\n\"a\": 1,\n// ours\n\"ferrule\": {} // it\n}}", "{\"mcpServers\": {\n\"a\": 1\n// ours\n // it\n}}"},
		{"cursor", "{\"mcpServers\": {\"ferrule\": {} // it\n, \"b\": 1}}", "{\"mcpServers\": { // it\n \"b\": 1}}"},
		{"cursor", `{"mcpServers": {"ferrule": 1, "ferrule": {}}}`, `{"mcpServers": {}}`},
		{"cursor", `{"a": {"ferrule": 1}}`, `{"a": {"ferrule": 1}}`},
		{"codex", "[mcp_servers.\"ferrule\"]\ncommand = 'x'\n\n[b]\n", "[b]\n"},
		{"codex", "a = 1\n[mcp_servers.ferrule]\ncommand = 'x'\n[b]\n[mcp_servers.ferrule.env]\nc = 1", "a = 1\n[b]"},
		{"codex", "[[mcp_servers.ferrule]]\n[mcp_servers.ferrules]\n", "[mcp_servers.ferrules]\n"},
	} {
		c, _ := Find(test.client)
		if got, err := c.Remove([]byte(test.before), "ferrule"); err != nil || string(got) != test.want {
			t.Errorf("%s becomes\n%s, want\n%s, %v", test.before, got, test.want, err)
		}
	}
}

// TestAnyJSON does what FuzzJSON does with random valid objects: spaces, line endings,
// comments and commas everywhere.
func TestAnyJSON(t *testing.T) {
	c, _ := Find("zed")
	random := rand.New(rand.NewPCG(1, 2))
	extras := []string{"", "", " ", "\n", "\n  ", "\r\n\t", "/*{*/", " //,\n", "// }\r\n ", "/* a\n \" */ ", "/**/ /*//*/ //\"\n"}
	extra := func() string { return extras[random.IntN(len(extras))] }
	var value func(deep int) string
	value = func(deep int) string {
		keys := []string{`"a"`, `"b\u0063"`, `"context_servers"`, `"{"`}
		n := random.IntN(4)
		if deep == 0 {
			return []string{"1", `"//"`, "[]", "{}"}[n]
		}
		b := "{"
		for i := range n {
			b += extra() + keys[(i+deep)%len(keys)] + extra() + ":" + extra() + value(deep-1) + extra()
			if i < n-1 || random.IntN(3) == 0 {
				b += ","
			}
		}
		return b + extra() + "}"
	}
	for range 500 {
		check(t, c, []byte(extra()+value(3)+extra()))
	}
}

// FuzzJSON checks that an added entry can be removed, and that nothing else changes.
func FuzzJSON(f *testing.F) { fuzz(f, "zed", "cursor", "opencode", "vscode") }

// FuzzTOML is the same for TOML.
func FuzzTOML(f *testing.F) { fuzz(f, "codex") }

func fuzz(f *testing.F, clients ...string) {
	files, _ := filepath.Glob("testdata/*.txtar")
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range archive.Files {
			f.Add(part.Data)
		}
	}
	f.Add([]byte(`{"context_servers":{"a":1/**/,/*,*/}}//`))
	f.Add([]byte("{\"context_servers\":{//\n},\n\"\":{\n}}"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		for _, name := range clients {
			c, _ := Find(name)
			check(t, c, doc)
		}
	})
}

func check(t *testing.T, c Client, doc []byte) {
	t.Helper()
	_, has, err := c.Entry(doc, "ferrule")
	if err != nil {
		return
	}
	added, err := c.Add(doc, command)
	if err != nil {
		if c.Name == "codex" {
			return // there are ways to write it that it says it does not edit
		}
		t.Fatalf("Add to %q: %v", doc, err)
	}
	if again, err := c.Add(added, command); err != nil || string(again) != string(added) {
		t.Fatalf("%q becomes %q the second time, %v", added, again, err)
	}
	removed, err := c.Remove(added, "ferrule")
	if err != nil {
		t.Fatalf("%q cannot be removed from: %v", added, err)
	}
	if _, now, err := c.Entry(removed, "ferrule"); now || err != nil {
		t.Fatalf("%q still has it, %v", removed, err)
	}
	if has || isBlank(doc) && c.Name != "codex" {
		return
	}
	if string(removed) == string(doc) {
		return
	}
	// An object that was empty, or is now, may be written in another way.
	all, err := c.format.decode(trimBOM(doc))
	if err != nil {
		t.Fatal(err)
	}
	servers, ok := all[c.servers].(map[string]any)
	if c.Name == "codex" || ok && len(servers) > 0 || !ok && len(all) > 0 {
		t.Fatalf("%q becomes %q, and %q again", doc, added, removed)
	}
}

func trimBOM(doc []byte) []byte { return []byte(strings.TrimPrefix(string(doc), string(bom))) }

// TestTokenElsewhere checks that a token stays behind when an entry gets the address of
// another server.
func TestTokenElsewhere(t *testing.T) {
	for _, c := range Clients() {
		here := Server{Name: "ferrule", URL: "http://127.0.0.1:3377/mcp", Token: "fer_secret"}
		if c.Accepts(here) != nil {
			continue
		}
		doc, err := c.Add(nil, here)
		if err != nil {
			t.Fatal(err)
		}
		for to, kept := range map[string]bool{"http://127.0.0.1:3377/mcp/devices/robot": true, "http://127.0.0.1:3378/mcp": false, "http://evil.example/mcp": false} {
			after, err := c.Add(doc, Server{Name: "ferrule", URL: to})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(string(after), "fer_secret"); got != kept {
				t.Errorf("%s, %s: the token is kept: %t", c.Name, to, got)
			}
		}
	}
}
