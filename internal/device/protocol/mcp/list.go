package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// server is the result of initialize, and of server/discover.
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

// capabilities are those of a device. Some boards write completion for completions.
type capabilities struct {
	Tools     *listCapability `json:"tools"`
	Resources *struct {
		listCapability
		Subscribe bool `json:"subscribe"`
	} `json:"resources"`
	Prompts     *listCapability `json:"prompts"`
	Completions json.RawMessage `json:"completions"`
	Completion  json.RawMessage `json:"completion"`
	Logging     json.RawMessage `json:"logging"`
	// Extensions are those of modern devices, and Tasks is how legacy ones run tools as tasks.
	Extensions map[string]json.RawMessage `json:"extensions"`
	Tasks      struct {
		Requests struct {
			Tools struct {
				Call json.RawMessage `json:"call"`
			} `json:"tools"`
		} `json:"requests"`
	} `json:"tasks"`
}

// listCapability says whether a device reports changes of a list.
type listCapability struct {
	ListChanged bool `json:"listChanged"`
}

func parseServer(data []byte) (server, error) {
	var about server
	var wrong *json.UnmarshalTypeError // a member of the wrong type is ignored
	if err := json.Unmarshal(data, &about); err != nil && (!errors.As(err, &wrong) || wrong.Field == "") {
		return server{}, errors.New(jsonrpc.Reason(err))
	}
	if about.Version == "" && about.Versions == nil && about.Info.Name == "" {
		return server{}, errors.New("name and version are missing")
	}
	if about.Info.Name == "" {
		about.Info = about.Meta.Info
	}
	return about, nil
}

func (about server) speaks(version string) bool { return slices.Contains(about.Versions, version) }

// operations returns what the device supports besides calling tools.
func (c capabilities) operations() (all []ferrule.Operation) {
	if c.Resources != nil {
		all = append(all, ferrule.ReadResource)
		if c.Resources.Subscribe {
			all = append(all, ferrule.Subscribe, ferrule.Unsubscribe)
		}
	}
	if c.Prompts != nil {
		all = append(all, ferrule.GetPrompt)
	}
	if declared(c.Completions) || declared(c.Completion) {
		all = append(all, ferrule.Complete)
	}
	return all
}

// declared reports whether a capability is declared, with any value.
func declared(capability json.RawMessage) bool {
	switch string(capability) {
	case "", "null", "false":
		return false
	}
	return true
}

// readLists returns the manifest: it reads every list of the device.
func (s *session) readLists(ctx context.Context) (*ferrule.Manifest, error) {
	about, has := s.server, s.server.Capabilities
	m := &ferrule.Manifest{
		Model: about.Info.Name, Title: about.Info.Title, Version: about.Info.Version, Icons: icons(about.Info.Icons),
		Instructions: about.Instructions, Operations: has.operations(),
	}
	none := has.Tools == nil && has.Resources == nil && has.Prompts == nil // then try its tools anyway
	lists := []struct {
		listed      bool
		method, key string
		add         func(l *listing, raw []byte)
	}{
		{has.Tools != nil || none, "tools/list", "tools", addTool},
		{has.Resources != nil, "resources/list", "resources", addResource},
		{has.Resources != nil, "resources/templates/list", "resourceTemplates", addTemplate},
		{has.Prompts != nil, "prompts/list", "prompts", addPrompt},
	}
	tasks, style := make(map[string]string), s.taskStyle()
	for _, list := range lists {
		if !list.listed {
			continue
		}
		l := &listing{manifest: m, tasks: tasks, style: style, method: list.method, key: list.key, add: list.add}
		if err := l.read(ctx, s); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	s.tasks = tasks
	s.mu.Unlock()
	if declared(has.Logging) && !s.isModern() {
		s.enableLogging(ctx)
	}
	return m, nil
}

// enableLogging asks a legacy device for its log messages. A failure is only noted.
func (s *session) enableLogging(ctx context.Context) {
	if a, err := s.request(ctx, pageWait, "logging/setLevel", map[string]any{"level": logLevel}); err != nil {
		s.note("logging/setLevel failed: %v", err)
	} else if a.Error != nil {
		s.note("logging/setLevel failed: %v", a.Error)
	}
}

// The limits of a list. Some boards put one entry on each page.
const (
	maxPages  = 256
	maxCursor = 4 << 10 // bytes
)

// listing is a list that is being read.
type listing struct {
	manifest    *ferrule.Manifest
	tasks       map[string]string // taskSupport by tool
	style       taskStyle
	method, key string
	add         func(l *listing, raw []byte)
	entries     int // received so far
	size        int // of them in bytes
}

// read requests page after page; some may be empty. Problems become notes and do not fail
// the greeting.
func (l *listing) read(ctx context.Context, s *session) error {
	var seen []string
	cursor := ""
	for range maxPages {
		var params map[string]any
		if cursor != "" {
			params = map[string]any{"cursor": cursor}
		}
		a, err := s.request(ctx, pageWait, l.method, params)
		if err != nil {
			return fmt.Errorf("%s failed: %w", l.method, err)
		}
		if a.Error != nil {
			l.note("it refused %s: %s", l.method, a.Error)
			return nil
		}
		next, ok := l.addPage(a.Result)
		if err := protocol.Pace(ctx, l.size); err != nil {
			return err
		}
		switch {
		case !ok:
			return nil
		case len(next) > maxCursor:
			l.note("%s has a cursor of %d bytes, limit is %d, kept the first %d entries", l.method, len(next), maxCursor, l.entries)
			return nil
		case slices.Contains(seen, next) || l.entries > ferrule.MaxTools || l.size > ferrule.MaxManifest:
			l.note("%s does not end, kept the first %d entries", l.method, l.entries)
			return nil
		}
		seen = append(seen, next)
		cursor = next
	}
	l.note("%s has more than %d pages, kept the first %d entries", l.method, maxPages, l.entries)
	return nil
}

// addPage adds the entries of a page, and returns the cursor of the next.
func (l *listing) addPage(data []byte) (next string, ok bool) {
	var page map[string]json.RawMessage
	var entries []json.RawMessage
	err := json.Unmarshal(data, &page)
	if err == nil && page[l.key] != nil {
		err = json.Unmarshal(page[l.key], &entries)
	}
	if err != nil {
		l.note("invalid page of %s: %s", l.method, jsonrpc.Reason(err))
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

// toolJSON is a tool in MCP.
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
	Meta json.RawMessage `json:"_meta"`
}

// maxPoll is the longest interval that a device can declare.
const maxPoll = 24 * time.Hour

// addMeta adds what devices written with thing/mcpserver say about a tool, and MCP has no
// fields for: how often to call it, and the pins that it works on. What is invalid is
// ignored, since the _meta of other devices may have any form.
func (l *listing) addMeta(tool *ferrule.Tool, meta json.RawMessage) {
	var polled struct {
		Polling struct {
			IntervalMS float64 `json:"interval_ms"`
		} `json:"ferrule/polling"`
	}
	if ms := &polled.Polling.IntervalMS; json.Unmarshal(meta, &polled) == nil && *ms >= 1 && *ms <= float64(maxPoll.Milliseconds()) {
		tool.Poll = ferrule.Duration(time.Duration(*ms) * time.Millisecond)
	}
	tool.View = viewOf(meta)
	var listed struct {
		Pins []ferrule.Pin `json:"ferrule/pins"`
	}
	if json.Unmarshal(meta, &listed) != nil {
		return
	}
	for _, pin := range listed.Pins {
		known := slices.ContainsFunc(l.manifest.Pins, func(p ferrule.Pin) bool { return p.Number == pin.Number })
		if known || len(l.manifest.Pins) >= ferrule.MaxPins {
			continue
		}
		if s := pin.Sampling; s != nil && (s.Interval <= 0 || time.Duration(s.Interval) > maxPoll || s.Size < 0) {
			pin.Sampling = nil
		}
		l.manifest.Pins = append(l.manifest.Pins, pin)
	}
}

// addTool adds a tool. An invalid one does not affect the others.
func addTool(l *listing, raw []byte) {
	var entry toolJSON
	err := json.Unmarshal(raw, &entry)
	if entry.Name == "" {
		l.note("tool %d has no name", l.entries)
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
	if len(entry.Meta) > 0 {
		l.addMeta(&tool, entry.Meta)
	}
	if how := entry.Execution.Tasks; how == taskOptional || how == taskRequired {
		l.tasks[entry.Name] = how
	}
	switch {
	case err != nil:
		tool.Quarantine = "invalid entry in tools/list: " + jsonrpc.Reason(err)
	case entry.Execution.Tasks == taskRequired && l.style == noTasks:
		tool.Quarantine = "it must be called as a task, but the device does not say that it supports tasks"
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
		l.note("invalid entry %d in %s", l.entries, l.method)
		return
	}
	l.manifest.Resources = append(l.manifest.Resources, r)
}

// parseResource decodes and bounds the description of a resource.
func parseResource(raw []byte, template bool) (ferrule.Resource, bool) {
	var entry struct {
		URI         string          `json:"uri"`
		Template    string          `json:"uriTemplate"`
		Name        string          `json:"name"`
		Title       string          `json:"title"`
		Description string          `json:"description"`
		MIME        string          `json:"mimeType"`
		Size        float64         `json:"size"`
		Icons       []iconJSON      `json:"icons"`
		Annotations annotationsJSON `json:"annotations"`
	}
	if json.Unmarshal(raw, &entry) != nil {
		return ferrule.Resource{}, false
	}
	if template {
		entry.URI = entry.Template
	}
	r := ferrule.Resource{
		URI: entry.URI, Template: template, Name: entry.Name, Title: entry.Title, Text: entry.Description, MIME: entry.MIME,
		Icons: icons(entry.Icons), Annotations: entry.Annotations.bounded(),
	}
	if entry.Size > 0 && entry.Size < 1<<53 {
		r.Size = int64(entry.Size)
	}
	return bounded(r)
}

// bounded applies the limits of a manifest to a resource.
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
		l.note("invalid entry %d in %s: %s", l.entries, l.method, jsonrpc.Reason(err))
		return
	}
	p := ferrule.Prompt{Name: entry.Name, Title: entry.Title, Text: entry.Description, Icons: icons(entry.Icons)}
	for _, a := range entry.Arguments[:min(len(entry.Arguments), ferrule.MaxPromptArguments)] {
		p.Arguments = append(p.Arguments, ferrule.PromptArgument{Name: a.Name, Title: a.Title, Text: a.Description, Required: a.Required})
	}
	l.manifest.Prompts = append(l.manifest.Prompts, p)
}

// iconJSON is an icon in MCP.
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

// annotationsJSON are annotations in MCP.
type annotationsJSON struct {
	Audience []string `json:"audience"`
	Priority *float64 `json:"priority"`
	Modified string   `json:"lastModified"`
}

// bounded returns the annotations within limits; nil if there are none.
func (r annotationsJSON) bounded() *ferrule.Annotations {
	if r.Audience == nil && r.Priority == nil && r.Modified == "" {
		return nil
	}
	safe, _ := bounded(ferrule.Resource{URI: "any:", Annotations: &ferrule.Annotations{Audience: r.Audience, Priority: r.Priority, Modified: r.Modified}})
	return safe.Annotations
}
