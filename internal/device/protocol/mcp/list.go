package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// server is what a device says of itself, in either era.
type server struct {
	Version      string         `json:"protocolVersion"`
	Versions     []string       `json:"supportedVersions"`
	Info         implementation `json:"serverInfo"`
	Instructions string         `json:"instructions"`
	Capabilities capabilities   `json:"capabilities"`
	Meta         struct {
		Info implementation `json:"io.modelcontextprotocol/serverInfo"`
	} `json:"_meta"`
}

type implementation struct {
	Name    string     `json:"name"`
	Title   string     `json:"title"`
	Version string     `json:"version"`
	Icons   []iconJSON `json:"icons"`
}

// capabilities is what a device can do. Some boards write completions as one.
type capabilities struct {
	Tools     *changing `json:"tools"`
	Resources *struct {
		changing
		Subscribe bool `json:"subscribe"`
	} `json:"resources"`
	Prompts     *changing       `json:"prompts"`
	Completions json.RawMessage `json:"completions"`
	Completion  json.RawMessage `json:"completion"`
	Logging     json.RawMessage `json:"logging"`
}

// changing tells whether a device says when a list changes.
type changing struct {
	ListChanged bool `json:"listChanged"`
}

func parseServer(data []byte) (server, error) {
	var about server
	var wrong *json.UnmarshalTypeError // one member of the wrong type hides no other
	if err := json.Unmarshal(data, &about); err != nil && (!errors.As(err, &wrong) || wrong.Field == "") {
		return server{}, errors.New(reason(err))
	}
	if about.Version == "" && about.Versions == nil && about.Info.Name == "" {
		return server{}, errors.New("it says nothing of itself")
	}
	if about.Info.Name == "" {
		about.Info = about.Meta.Info
	}
	return about, nil
}

func (s server) speaks(version string) bool { return slices.Contains(s.Versions, version) }

// acts is what can be asked of the device beside calling tools.
func (c capabilities) acts() (acts []ferrule.Operation) {
	if c.Resources != nil {
		acts = append(acts, ferrule.ReadResource)
		if c.Resources.Subscribe {
			acts = append(acts, ferrule.Subscribe, ferrule.Unsubscribe)
		}
	}
	if c.Prompts != nil {
		acts = append(acts, ferrule.GetPrompt)
	}
	if named(c.Completions) || named(c.Completion) {
		acts = append(acts, ferrule.Complete)
	}
	return acts
}

// named tells whether a capability is there, whatever it is.
func named(capability json.RawMessage) bool {
	switch string(capability) {
	case "", "null", "false":
		return false
	}
	return true
}

// describe reads everything that the device lists.
func (s *session) describe(ctx context.Context, about server) (*ferrule.Manifest, error) {
	m := &ferrule.Manifest{
		Model: about.Info.Name, Title: about.Info.Title, Version: about.Info.Version, Icons: icons(about.Info.Icons),
		Instructions: about.Instructions, Operations: s.able.acts(),
	}
	none := s.able.Tools == nil && s.able.Resources == nil && s.able.Prompts == nil // then it may have tools, and be short of words
	lists := []struct {
		there       bool
		method, key string
		add         func(l *listing, raw []byte)
	}{
		{s.able.Tools != nil || none, "tools/list", "tools", addTool},
		{s.able.Resources != nil, "resources/list", "resources", addResource},
		{s.able.Resources != nil, "resources/templates/list", "resourceTemplates", addTemplate},
		{s.able.Prompts != nil, "prompts/list", "prompts", addPrompt},
	}
	for _, list := range lists {
		if !list.there {
			continue
		}
		l := &listing{manifest: m, method: list.method, key: list.key, add: list.add}
		if err := l.read(ctx, s); err != nil {
			return nil, err
		}
	}
	if named(s.able.Logging) && !s.isModern() {
		s.logs(ctx)
	}
	return m, nil
}

// logs asks the device to tell what it logs. One that does not is none the worse.
func (s *session) logs(ctx context.Context) {
	if a, err := s.within(ctx, pageWait, "logging/setLevel", map[string]any{"level": logLevel}); err != nil {
		s.note("it does not tell what it logs: %v", err)
	} else if a.err != nil {
		s.note("it does not tell what it logs: %v", a.err)
	}
}

// The bounds of a list: how many pages are asked for, of which some boards put one entry on
// each, and how long that may be by which the next is asked for.
const (
	maxPages  = 256
	maxCursor = 4 << 10
)

// listing is a list that is being read.
type listing struct {
	manifest    *ferrule.Manifest
	method, key string
	add         func(l *listing, raw []byte)
	entries     int // how many came
	size        int // and their bytes
}

// read asks for page after page, of which some may be empty. What is wrong with the
// list is noted; the device is not refused for it.
func (l *listing) read(ctx context.Context, s *session) error {
	var seen []string
	cursor := ""
	for range maxPages {
		var params map[string]any
		if cursor != "" {
			params = map[string]any{"cursor": cursor}
		}
		a, err := s.within(ctx, pageWait, l.method, params)
		if err != nil {
			return fmt.Errorf("asking for %s: %w", l.method, err)
		}
		if a.err != nil {
			l.note("it refused %s: %s", l.method, a.err)
			return nil
		}
		next, ok := l.take(a.result)
		switch {
		case !ok:
			return nil
		case len(next) > maxCursor:
			l.note("%s has a cursor of %d bytes; the first %d entries are kept", l.method, len(next), l.entries)
			return nil
		case slices.Contains(seen, next) || l.entries > ferrule.MaxTools || l.size > ferrule.MaxManifest:
			l.note("%s does not end; the first %d entries are kept", l.method, l.entries)
			return nil
		}
		seen = append(seen, next)
		cursor = next
	}
	l.note("%s has more than %d pages; the first %d entries are kept", l.method, maxPages, l.entries)
	return nil
}

// take takes a page, and tells where the next begins, if there is one.
func (l *listing) take(data []byte) (next string, ok bool) {
	var page map[string]json.RawMessage
	var entries []json.RawMessage
	err := json.Unmarshal(data, &page)
	if err == nil && page[l.key] != nil {
		err = json.Unmarshal(page[l.key], &entries)
	}
	if err != nil {
		l.note("a page of %s makes no sense: %s", l.method, reason(err))
		return "", false
	}
	for _, raw := range entries {
		l.entries++
		l.size += len(raw)
		if l.entries > ferrule.MaxTools || l.size > ferrule.MaxManifest {
			break
		}
		l.add(l, raw)
	}
	next = strings.Trim(string(page["nextCursor"]), `"`)
	if json.Unmarshal(page["nextCursor"], &next) != nil && next == "null" {
		next = ""
	}
	return next, next != ""
}

func (l *listing) note(format string, args ...any) {
	l.manifest.Notes = append(l.manifest.Notes, fmt.Sprintf(format, args...))
}

// toolJSON is a tool as MCP has it.
type toolJSON struct {
	Name        string          `json:"name"`
	Title       string          `json:"title"`
	Description string          `json:"description"`
	Input       json.RawMessage `json:"inputSchema"`
	Output      json.RawMessage `json:"outputSchema"`
	Icons       []iconJSON      `json:"icons"`
	Annotations struct {
		Title       string `json:"title"`
		ReadOnly    bool   `json:"readOnlyHint"`
		Destructive bool   `json:"destructiveHint"`
		Idempotent  bool   `json:"idempotentHint"`
	} `json:"annotations"`
	Execution struct {
		Tasks string `json:"taskSupport"`
	} `json:"execution"`
}

// addTool takes a tool. One that makes no sense costs nothing but itself.
func addTool(l *listing, raw []byte) {
	var entry toolJSON
	err := json.Unmarshal(raw, &entry)
	if entry.Name == "" {
		l.note("tool %d of its list has no name", l.entries)
		return
	}
	a := entry.Annotations
	tool := ferrule.Tool{
		Name: entry.Name, Title: entry.Title, Text: entry.Description, Icons: icons(entry.Icons),
		Input: entry.Input, Output: entry.Output, Idempotent: a.Idempotent,
	}
	if tool.Title == "" {
		tool.Title = a.Title
	}
	switch {
	case err != nil:
		tool.Quarantine = "its entry in the list makes no sense: " + reason(err)
	case entry.Execution.Tasks == "required":
		tool.Quarantine = "it can be called as a task only, which is not known here"
	}
	switch {
	case a.ReadOnly:
		tool.Effect = ferrule.Reads
	case a.Destructive:
		tool.Effect = ferrule.Endangers
	}
	l.manifest.Tools = append(l.manifest.Tools, tool)
}

func addResource(l *listing, raw []byte) { l.addResource(raw, false) }
func addTemplate(l *listing, raw []byte) { l.addResource(raw, true) }

func (l *listing) addResource(raw []byte, template bool) {
	r, ok := parseResource(raw, template)
	if !ok {
		l.note("entry %d of %s makes no sense", l.entries, l.method)
		return
	}
	l.manifest.Resources = append(l.manifest.Resources, r)
}

// parseResource reads what is said of a resource, and bounds it.
func parseResource(raw []byte, template bool) (ferrule.Resource, bool) {
	var entry struct {
		URI         string     `json:"uri"`
		Template    string     `json:"uriTemplate"`
		Name        string     `json:"name"`
		Title       string     `json:"title"`
		Description string     `json:"description"`
		MIME        string     `json:"mimeType"`
		Size        float64    `json:"size"`
		Icons       []iconJSON `json:"icons"`
		Annotations regardJSON `json:"annotations"`
	}
	if json.Unmarshal(raw, &entry) != nil {
		return ferrule.Resource{}, false
	}
	if template {
		entry.URI = entry.Template
	}
	r := ferrule.Resource{
		URI: entry.URI, Template: template, Name: entry.Name, Title: entry.Title, Text: entry.Description, MIME: entry.MIME,
		Icons: icons(entry.Icons), Annotations: entry.Annotations.regard(),
	}
	if entry.Size > 0 && entry.Size < 1<<53 {
		r.Size = int64(entry.Size)
	}
	return bounded(r)
}

// bounded makes a resource safe to keep and to show, as a manifest does.
func bounded(r ferrule.Resource) (ferrule.Resource, bool) {
	m := ferrule.Manifest{Resources: []ferrule.Resource{r}}
	m.Bound()
	if len(m.Resources) == 0 {
		return ferrule.Resource{}, false
	}
	return m.Resources[0], true
}

func addPrompt(l *listing, raw []byte) {
	var entry struct {
		Name        string     `json:"name"`
		Title       string     `json:"title"`
		Description string     `json:"description"`
		Icons       []iconJSON `json:"icons"`
		Arguments   []struct {
			Name        string `json:"name"`
			Title       string `json:"title"`
			Description string `json:"description"`
			Required    bool   `json:"required"`
		} `json:"arguments"`
	}
	if err := json.Unmarshal(raw, &entry); err != nil {
		l.note("entry %d of %s makes no sense: %s", l.entries, l.method, reason(err))
		return
	}
	p := ferrule.Prompt{Name: entry.Name, Title: entry.Title, Text: entry.Description, Icons: icons(entry.Icons)}
	for _, a := range entry.Arguments[:min(len(entry.Arguments), ferrule.MaxPromptArguments)] {
		p.Arguments = append(p.Arguments, ferrule.PromptArgument{Name: a.Name, Title: a.Title, Text: a.Description, Required: a.Required})
	}
	l.manifest.Prompts = append(l.manifest.Prompts, p)
}

// iconJSON is an icon as MCP has it.
type iconJSON struct {
	Source string   `json:"src"`
	MIME   string   `json:"mimeType"`
	Sizes  []string `json:"sizes"`
	Theme  string   `json:"theme"`
}

func icons(all []iconJSON) (kept []ferrule.Icon) {
	for _, i := range all[:min(len(all), ferrule.MaxIcons)] {
		kept = append(kept, ferrule.Icon{Source: i.Source, MIME: i.MIME, Sizes: i.Sizes, Theme: i.Theme})
	}
	return kept
}

// regardJSON is who something is for, as MCP has it.
type regardJSON struct {
	Audience []string `json:"audience"`
	Priority *float64 `json:"priority"`
	Modified string   `json:"lastModified"`
}

// regard is the same, bounded; nil if it says nothing.
func (r regardJSON) regard() *ferrule.Annotations {
	if r.Audience == nil && r.Priority == nil && r.Modified == "" {
		return nil
	}
	safe, _ := bounded(ferrule.Resource{URI: "any:", Annotations: &ferrule.Annotations{Audience: r.Audience, Priority: r.Priority, Modified: r.Modified}})
	return safe.Annotations
}
