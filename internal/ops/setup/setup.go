// Package setup writes Ferrule into the files by which agent programs know their
// MCP servers, and takes it out again. Nothing else in such a file is touched.
//
//	Client  where its files are (place.go), and how an entry looks there
//	   │
//	Add, Remove     bytes in, bytes out: json.go and toml.go find the place
//	   │
//	Change  the file: locked, backed up, replaced at once (file.go)
package setup

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// URL is where the gateway serves MCP unless its owner says otherwise.
const URL = "http://127.0.0.1:3377/mcp"

// Server is what a client is told of Ferrule: a command to start, or a URL.
type Server struct {
	Name    string // in the client
	Command string
	Args    []string
	URL     string // instead of a command
}

// validName: clients put the name before those of tools, which have at most 46
// characters, and allow 64 in all.
var validName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,12}$`)

// Check tells what is wrong with a server.
func (s Server) Check() error {
	if !validName.MatchString(s.Name) {
		return fmt.Errorf("want a name of 1 to 12 characters A-Z a-z 0-9 _ -, got %q", s.Name)
	}
	return nil
}

// Client is an agent program.
type Client struct {
	Name  string // as the command line has it
	Title string // as its makers have it
	Next  string // what its user does next

	user    func(Place) []string // its files; the first that is there counts
	project []string             // the same in a project; none: it has no such files
	servers string               // the key that servers are under
	grammar grammar
	entry   func(Server) object
	noHTTP  string // why it takes no URL
	locks   bool   // it locks its file by a directory beside it
}

// grammar edits a kind of file. A path is a list of keys.
type grammar interface {
	// decode reads a document.
	decode(doc []byte) (map[string]any, error)
	// set gives the value at path, and makes what is on the way to it.
	set(doc []byte, path []string, value object) ([]byte, error)
	// update gives one key of the object at path another value.
	update(doc []byte, path []string, m member) ([]byte, error)
	// remove takes out what is at path.
	remove(doc []byte, path []string) ([]byte, error)
}

// object is a JSON object that keeps its order. Values are strings and lists of
// strings.
type object []member

type member struct {
	key   string
	value any
}

// Clients lists the programs that Ferrule knows.
func Clients() []Client {
	typed := func(local, remote string) func(Server) object {
		return func(s Server) object {
			if s.URL != "" {
				return object{{"type", remote}, {"url", s.URL}}
			}
			return object{{"type", local}, {"command", s.Command}, {"args", s.Args}}
		}
	}
	plain := func(s Server) object {
		if s.URL != "" {
			return object{{"url", s.URL}}
		}
		return object{{"command", s.Command}, {"args", s.Args}}
	}
	return []Client{
		{
			Name: "claude-code", Title: "Claude Code", Next: "Start Claude Code anew; /mcp lists it.",
			user: claudeCode, project: []string{".mcp.json"},
			servers: "mcpServers", grammar: jsonc{}, entry: typed("stdio", "http"), locks: true,
		},
		{
			Name: "claude-desktop", Title: "Claude Desktop", Next: "Quit Claude Desktop and start it anew.",
			user: claudeDesktop, servers: "mcpServers", grammar: jsonc{}, entry: plain,
			noHTTP: "its file takes only servers that it starts itself",
		},
		{
			Name: "codex", Title: "Codex", Next: "Start Codex anew; /mcp lists it.",
			user: codex, project: []string{".codex/config.toml"},
			servers: "mcp_servers", grammar: tables{}, entry: plain,
		},
		{
			Name: "gemini", Title: "Gemini CLI", Next: "Start Gemini CLI anew; /mcp lists it.",
			user: gemini, project: []string{".gemini/settings.json"},
			servers: "mcpServers", grammar: jsonc{},
			entry: func(s Server) object {
				if s.URL != "" {
					return object{{"url", s.URL}, {"type", "http"}}
				}
				return plain(s)
			},
		},
		{
			Name: "cursor", Title: "Cursor", Next: "Turn it on in Cursor's settings, under MCP.",
			user: cursor, project: []string{".cursor/mcp.json"},
			servers: "mcpServers", grammar: jsonc{}, entry: plain,
		},
		{
			Name: "vscode", Title: "VS Code", Next: "Run \"MCP: List Servers\" in VS Code to start it.",
			user: vscode, project: []string{".vscode/mcp.json"},
			servers: "servers", grammar: jsonc{}, entry: typed("stdio", "http"),
		},
		{
			Name: "opencode", Title: "opencode", Next: "Start opencode anew; `opencode mcp list` lists it.",
			user: opencode, project: []string{"opencode.jsonc", "opencode.json"},
			servers: "mcp", grammar: jsonc{},
			entry: func(s Server) object {
				if s.URL != "" {
					return object{{"type", "remote"}, {"url", s.URL}}
				}
				return object{{"type", "local"}, {"command", append([]string{s.Command}, s.Args...)}}
			},
		},
		{
			Name: "zed", Title: "Zed", Next: "Zed takes it over at once: Settings, AI, MCP Servers.",
			user: zed, project: []string{".zed/settings.json"},
			servers: "context_servers", grammar: jsonc{}, entry: plain,
		},
	}
}

// Find is the client of a name.
func Find(name string) (Client, error) {
	var names []string
	for _, c := range Clients() {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	return Client{}, fmt.Errorf("there is no client %q; there are %s", name, strings.Join(names, ", "))
}

// Accepts tells why a client cannot be told of a server.
func (c Client) Accepts(s Server) error {
	if s.URL != "" && c.noHTTP != "" {
		return fmt.Errorf("%s is not set up with --http: %s", c.Title, c.noHTTP)
	}
	return s.Check()
}

// Add is a document with the server in it. What the user has added to the entry
// stays, unless a command becomes a URL or the other way round.
func (c Client) Add(doc []byte, s Server) ([]byte, error) {
	return c.edit(doc, s.Name, func(doc []byte, entry any) ([]byte, error) {
		path, want := []string{c.servers, s.Name}, c.entry(s)
		now, ok := entry.(map[string]any)
		if !ok || c.otherKind(now, want) {
			return c.grammar.set(doc, path, want)
		}
		var err error
		for _, m := range want {
			if reflect.DeepEqual(now[m.key], generic(m.value)) {
				continue
			}
			if doc, err = c.grammar.update(doc, path, m); err != nil {
				return nil, err
			}
		}
		return doc, nil
	})
}

// Remove is a document without the server.
func (c Client) Remove(doc []byte, name string) ([]byte, error) {
	return c.edit(doc, name, func(doc []byte, entry any) ([]byte, error) {
		if entry == nil {
			return doc, nil
		}
		return c.grammar.remove(doc, []string{c.servers, name})
	})
}

// Has tells whether a document has a server of that name.
func (c Client) Has(doc []byte, name string) (bool, error) {
	doc = bytes.TrimPrefix(doc, bom)
	if isBlank(doc) {
		return false, nil
	}
	all, err := c.grammar.decode(doc)
	if err != nil {
		return false, err
	}
	entry, err := c.entryIn(all, name)
	return entry != nil, err
}

var bom = []byte("\ufeff")

// edit changes a document, and sees to it that nothing but the server of that
// name is another in it.
func (c Client) edit(doc []byte, name string, change func(doc []byte, entry any) ([]byte, error)) ([]byte, error) {
	body := bytes.TrimPrefix(doc, bom)
	before := map[string]any{}
	if !isBlank(body) {
		var err error
		if before, err = c.grammar.decode(body); err != nil {
			return nil, err
		}
	}
	entry, err := c.entryIn(before, name)
	if err != nil {
		return nil, err
	}
	changed, err := change(body, entry)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(changed, body) {
		return doc, nil
	}
	after, err := c.grammar.decode(changed)
	if err != nil {
		return nil, fmt.Errorf("it is written in a way that cannot be added to: %w", err)
	}
	if c.without(before, name); !reflect.DeepEqual(before, c.without(after, name)) {
		return nil, fmt.Errorf("it is written in a way that cannot be changed without touching the rest")
	}
	return slices.Concat(doc[:len(doc)-len(body)], changed), nil
}

// entryIn is the entry of a server, or nil.
func (c Client) entryIn(all map[string]any, name string) (any, error) {
	switch servers := all[c.servers].(type) {
	case nil:
		if _, ok := all[c.servers]; ok {
			return nil, fmt.Errorf("%s is null", c.servers)
		}
		return nil, nil
	case map[string]any:
		return servers[name], nil
	}
	return nil, fmt.Errorf("%s does not hold servers by their names", c.servers)
}

// without takes a server out, and with it servers that there are none of.
func (c Client) without(all map[string]any, name string) map[string]any {
	if servers, ok := all[c.servers].(map[string]any); ok {
		if delete(servers, name); len(servers) == 0 {
			delete(all, c.servers)
		}
	}
	return all
}

// otherKind tells whether an entry is a command and shall be a URL, or the other
// way round.
func (c Client) otherKind(now map[string]any, want object) bool {
	for _, other := range slices.Concat(c.entry(Server{}), c.entry(Server{URL: URL})) {
		if _, ok := now[other.key]; ok && !slices.ContainsFunc(want, func(m member) bool { return m.key == other.key }) {
			return true
		}
	}
	return false
}

// generic is a value as a decoder gives it.
func generic(v any) any {
	if list, ok := v.([]string); ok {
		all := make([]any, len(list))
		for i, text := range list {
			all[i] = text
		}
		return all
	}
	return v
}

// encode is a value in JSON, in one line.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // strings and lists of strings
	}
	return bytes.TrimSpace(b.Bytes())
}

func (o object) json() []byte {
	var parts [][]byte
	for _, m := range o {
		parts = append(parts, slices.Concat(encode(m.key), []byte(":"), encode(m.value)))
	}
	return slices.Concat([]byte("{"), bytes.Join(parts, []byte(",")), []byte("}"))
}

func isBlank(b []byte) bool { return len(bytes.TrimSpace(b)) == 0 }

// newline is what ends the lines of a document.
func newline(doc []byte) string {
	if i := bytes.IndexByte(doc, '\n'); i > 0 && doc[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}
