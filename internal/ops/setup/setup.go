// Package setup adds Ferrule to the config files of agent programs, and removes it.
// Nothing else in such a file changes: comments, order and formatting stay.
//
//	Client       where its files are (place.go) and what an entry looks like
//	   │
//	Add, Remove  edit the bytes of a file (json.go, toml.go)
//	   │
//	Change       locks, backs up and replaces the file atomically (file.go)
package setup

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os/user"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// URL is the default address of the gateway for agents.
const URL = "http://127.0.0.1:3377/mcp"

// RunningURL stands for the address of the gateway that runs.
const RunningURL = "auto"

// Server is the entry for Ferrule: a command to start, or a URL.
type Server struct {
	Name    string // in the client
	Command string
	Args    []string
	URL     string // instead of a command
	Token   string // that the client sends to the URL; empty for none
}

// validName bounds the name because clients put it before tool names: those have up to
// 46 characters, and clients allow 64 in all.
var validName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,12}$`)

// Check returns an error for an unusable name.
func (s Server) Check() error {
	if !validName.MatchString(s.Name) {
		return fmt.Errorf("name must be 1 to 12 of the characters A-Z a-z 0-9 _ -, got %q", s.Name)
	}
	return nil
}

// Client is an agent program.
type Client struct {
	Name  string // on the command line
	Title string // its official name
	Next  string // the next step for the user

	user    func(Place) []string // candidate files; the first that exists is used
	project []string             // candidate files in a project; may be empty
	servers string               // the key with the servers
	format  format
	entry   func(Server) object
	headers string // the key with HTTP headers; "headers" if empty
	noHTTP  string // why it does not take a URL
	locks   bool   // it locks its file with a directory next to it
}

// format edits files in one syntax. A path is a list of keys.
type format interface {
	decode(doc []byte) (map[string]any, error)
	// set sets the value at path, and creates missing parents.
	set(doc []byte, path []string, value object) ([]byte, error)
	// update sets one key of the object at path.
	update(doc []byte, path []string, m member) ([]byte, error)
	remove(doc []byte, path []string) ([]byte, error)
}

// object is an ordered JSON object. Values are strings, lists of strings, and maps of
// strings, which keep what the user added to them.
type object []member

type member struct {
	key   string
	value any
}

// Clients returns the supported agent programs.
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
			Name: "claude-code", Title: "Claude Code", Next: "Restart Claude Code, then check with /mcp.",
			user: claudeCode, project: []string{".mcp.json"},
			servers: "mcpServers", format: jsonc{}, entry: typed("stdio", "http"), locks: true,
		},
		{
			Name: "claude-desktop", Title: "Claude Desktop", Next: "Quit Claude Desktop and start it again.",
			user: claudeDesktop, servers: "mcpServers", format: jsonc{}, entry: plain,
			noHTTP: "its config file only supports servers that it starts itself",
		},
		{
			Name: "codex", Title: "Codex", Next: "Restart Codex, then check with /mcp.",
			user: codex, project: []string{".codex/config.toml"},
			servers: "mcp_servers", format: tables{}, entry: plain, headers: "http_headers",
		},
		{
			Name: "gemini", Title: "Gemini CLI", Next: "Restart Gemini CLI, then check with /mcp.",
			user: gemini, project: []string{".gemini/settings.json"},
			servers: "mcpServers", format: jsonc{},
			entry: func(s Server) object {
				if s.URL != "" {
					return object{{"url", s.URL}, {"type", "http"}}
				}
				return plain(s)
			},
		},
		{
			Name: "cursor", Title: "Cursor", Next: "Enable it in Cursor's settings, under MCP.",
			user: cursor, project: []string{".cursor/mcp.json"},
			servers: "mcpServers", format: jsonc{}, entry: plain,
		},
		{
			Name: "vscode", Title: "VS Code", Next: "Run \"MCP: List Servers\" in VS Code and start it.",
			user: vscode, project: []string{".vscode/mcp.json"},
			servers: "servers", format: jsonc{}, entry: typed("stdio", "http"),
		},
		{
			Name: "opencode", Title: "opencode", Next: "Restart opencode, then check with `opencode mcp list`.",
			user: opencode, project: []string{"opencode.jsonc", "opencode.json"},
			servers: "mcp", format: jsonc{},
			entry: func(s Server) object {
				if s.URL != "" {
					return object{{"type", "remote"}, {"url", s.URL}}
				}
				return object{{"type", "local"}, {"command", append([]string{s.Command}, s.Args...)}}
			},
		},
		{
			Name: "zed", Title: "Zed", Next: "Zed uses it at once; see Settings, AI, MCP Servers.",
			user: zed, project: []string{".zed/settings.json"},
			servers: "context_servers", format: jsonc{}, entry: plain,
		},
	}
}

// IsLocal reports whether a URL is one of this machine.
func IsLocal(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// TokenName returns the name of the token of a client's entry. That of a gateway which several
// users share has the name of the user. Each entry of a client has a token of its own.
func (c Client) TokenName(entry string, shared bool) string {
	name := c.Name
	if entry != ServerName {
		name += "-" + entry
	}
	if u, err := user.Current(); shared && err == nil {
		name += "-" + u.Username
	}
	return ferrule.Slug(name)
}

// HasToken reports whether a document has an entry with a token that a gateway made.
func (c Client) HasToken(doc []byte, name string) bool {
	e, _, err := c.Entry(doc, name)
	return err == nil && strings.HasPrefix(e.Headers["Authorization"], "Bearer fer_")
}

// Find returns the client with that name.
func Find(name string) (Client, error) {
	var names []string
	for _, c := range Clients() {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	return Client{}, fmt.Errorf("unknown client %q; supported clients are %s", name, strings.Join(names, ", "))
}

// Accepts returns why a client cannot use a server, or nil.
func (c Client) Accepts(s Server) error {
	if s.URL != "" && c.noHTTP != "" {
		return fmt.Errorf("%s does not support --http: %s", c.Title, c.noHTTP)
	}
	return s.Check()
}

// tokenElsewhere reports whether an entry has the address of another server than a URL: its
// headers may have a token, which must not be sent to that one.
func tokenElsewhere(entry map[string]any, to string) bool {
	origin := func(text string) string {
		u, err := url.Parse(text)
		if err != nil {
			return text
		}
		return u.Scheme + "://" + u.Host
	}
	from, ok := entry["url"].(string)
	return ok && origin(from) != origin(to)
}

// Add returns the document with the server added or updated. Other keys of the entry
// stay, unless a command is replaced by a URL or the other way round, or the URL is one of
// another server and there is no token for it.
func (c Client) Add(doc []byte, s Server) ([]byte, error) {
	return c.edit(doc, s.Name, func(doc []byte, entry any) ([]byte, error) {
		path, want := []string{c.servers, s.Name}, c.entry(s)
		now, ok := entry.(map[string]any)
		other := !ok || c.otherKind(now, want) || s.Token == "" && tokenElsewhere(now, s.URL)
		if s.Token != "" {
			key, headers := cmp.Or(c.headers, "headers"), map[string]string{}
			if !other {
				headers = merge(headers, now[key])
			}
			headers["Authorization"] = "Bearer " + s.Token
			want = append(want, member{key, headers})
		}
		if other {
			return c.format.set(doc, path, want)
		}
		var err error
		for _, m := range want {
			if reflect.DeepEqual(now[m.key], generic(m.value)) {
				continue
			}
			if doc, err = c.format.update(doc, path, m); err != nil {
				return nil, err
			}
		}
		return doc, nil
	})
}

// Remove returns the document without the server.
func (c Client) Remove(doc []byte, name string) ([]byte, error) {
	return c.edit(doc, name, func(doc []byte, entry any) ([]byte, error) {
		if entry == nil {
			return doc, nil
		}
		return c.format.remove(doc, []string{c.servers, name})
	})
}

// Entry returns the server with that name in a document, and whether there is one. What
// the user wrote may have neither a command nor a URL.
func (c Client) Entry(doc []byte, name string) (Entry, bool, error) {
	e := Entry{Server: Server{Name: name}}
	doc = bytes.TrimPrefix(doc, bom)
	if isBlank(doc) {
		return e, false, nil
	}
	all, err := c.format.decode(doc)
	if err != nil {
		return e, false, err
	}
	entry, err := c.entryIn(all, name)
	if err != nil || entry == nil {
		return e, false, err
	}
	values, _ := entry.(map[string]any)
	command := append(stringsIn(values["command"]), stringsIn(values["args"])...) // opencode has one list
	if len(command) > 0 {
		e.Command, e.Args = command[0], command[1:]
	}
	e.URL, _ = values["url"].(string)
	for _, key := range []string{"env", "environment"} {
		e.Env = merge(e.Env, values[key])
	}
	for _, key := range []string{"headers", "http_headers"} {
		e.Headers = merge(e.Headers, values[key])
	}
	e.Variables = values["bearer_token_env_var"] != nil || values["env_http_headers"] != nil
	maps.DeleteFunc(e.Headers, func(_, value string) bool {
		variable := strings.ContainsAny(value, "${")
		e.Variables = e.Variables || variable
		return variable
	})
	return e, true, nil
}

// stringsIn returns a string, or the strings of a list.
func stringsIn(v any) (all []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, item := range v {
			if text, ok := item.(string); ok {
				all = append(all, text)
			}
		}
	}
	return all
}

// merge adds the strings of an object to a map.
func merge(all map[string]string, v any) map[string]string {
	values, _ := v.(map[string]any)
	for key, value := range values {
		if text, ok := value.(string); ok {
			if all == nil {
				all = make(map[string]string)
			}
			all[key] = text
		}
	}
	return all
}

var bom = []byte("\ufeff")

// edit changes a document, and verifies that only the server with that name changed.
func (c Client) edit(doc []byte, name string, change func(doc []byte, entry any) ([]byte, error)) ([]byte, error) {
	body := bytes.TrimPrefix(doc, bom)
	before := map[string]any{}
	if !isBlank(body) {
		var err error
		if before, err = c.format.decode(body); err != nil {
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
	after, err := c.format.decode(changed)
	if err != nil {
		return nil, fmt.Errorf("cannot edit this file without breaking it: %w", err)
	}
	if c.without(before, name); !reflect.DeepEqual(before, c.without(after, name)) {
		return nil, fmt.Errorf("cannot edit this file without changing other parts of it")
	}
	return slices.Concat(doc[:len(doc)-len(body)], changed), nil
}

// entryIn returns the entry of a server, or nil.
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
	return nil, fmt.Errorf("%s must be an object", c.servers)
}

// without removes a server, and the object of servers if it is then empty.
func (c Client) without(all map[string]any, name string) map[string]any {
	if servers, ok := all[c.servers].(map[string]any); ok {
		if delete(servers, name); len(servers) == 0 {
			delete(all, c.servers)
		}
	}
	return all
}

// otherKind reports whether an entry changes from a command to a URL or back.
func (c Client) otherKind(now map[string]any, want object) bool {
	for _, other := range slices.Concat(c.entry(Server{}), c.entry(Server{URL: URL})) {
		if _, ok := now[other.key]; ok && !slices.ContainsFunc(want, func(m member) bool { return m.key == other.key }) {
			return true
		}
	}
	return false
}

// generic converts a value to the type that a decoder returns.
func generic(v any) any {
	if list, ok := v.([]string); ok {
		all := make([]any, len(list))
		for i, text := range list {
			all[i] = text
		}
		return all
	}
	if values, ok := v.(map[string]string); ok {
		all := make(map[string]any)
		for key, value := range values {
			all[key] = value
		}
		return all
	}
	return v
}

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

// newline returns the line ending of a document.
func newline(doc []byte) string {
	if i := bytes.IndexByte(doc, '\n'); i > 0 && doc[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}
