package xiaozhi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxPages is how many pages of the tool list are requested. Firmware puts a dozen
// tools on each.
const maxPages = 64

// parseServer returns the manifest in the result of initialize.
func parseServer(data []byte) (*ferrule.Manifest, error) {
	var r struct {
		Server struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"serverInfo"`
		Instructions string `json:"instructions"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%w: invalid answer to initialize: %s", protocol.ErrNotMine, jsonrpc.Reason(err))
	}
	return &ferrule.Manifest{Model: r.Server.Name, Version: r.Server.Version, Instructions: r.Instructions}, nil
}

// listTools reads the whole list, with user-only tools. If one of these hides others,
// the list without them is read as well.
func (g *greeting) listTools(ctx context.Context, m *ferrule.Manifest) error {
	whole := &listing{manifest: m}
	if err := whole.read(ctx, g, true); err != nil {
		return err
	}
	if !whole.hidden {
		return nil
	}
	rest := &listing{manifest: &ferrule.Manifest{}}
	if err := rest.read(ctx, g, false); err != nil {
		return err
	}
	for _, tool := range rest.manifest.Tools {
		if m.Tool(tool.Name) == nil {
			m.Tools = append(m.Tools, tool)
		}
	}
	return nil
}

// listing is a tool list that is being read.
type listing struct {
	manifest *ferrule.Manifest
	entries  int  // received so far
	size     int  // of them in bytes
	hidden   bool // a tool is too long to be listed, and hides those after it
	again    bool // reading was restarted
}

// read requests page after page. Problems become notes and do not fail the greeting.
func (l *listing) read(ctx context.Context, g *greeting, withUserTools bool) error {
	var seen []string
	cursor := ""
	for range maxPages {
		page, err := g.page(ctx, cursor, withUserTools)
		var refused *jsonrpc.Error
		switch {
		case errors.Is(err, transport.ErrTooLong):
			l.note("a page of the tool list is too long, tools are missing")
			return nil
		case errors.As(err, &refused) && l.vanished(refused, cursor):
			l.restart()
			seen, cursor = nil, ""
			continue
		case errors.As(err, &refused):
			return l.stopped(refused)
		case err != nil:
			return err
		}
		l.add(page.Tools)
		if err := protocol.Pace(ctx, l.size); err != nil {
			return err
		}
		cursor = page.Next
		if cursor == "" {
			return nil
		}
		if slices.Contains(seen, cursor) || l.entries > ferrule.MaxTools || l.size > ferrule.MaxManifest {
			l.note("the tool list does not end, kept the first %d tools", len(l.manifest.Tools))
			return nil
		}
		seen = append(seen, cursor)
	}
	l.note("the tool list has more than %d pages, kept the first %d tools", maxPages, len(l.manifest.Tools))
	return nil
}

func (l *listing) note(format string, args ...any) {
	l.manifest.Notes = append(l.manifest.Notes, fmt.Sprintf(format, args...))
}

// restart discards what was read.
func (l *listing) restart() {
	l.again, l.entries, l.size, l.manifest.Tools = true, 0, 0, nil
}

// The error of firmware when a page would be empty. The tool name is in between.
const tooLong, tooLongEnd = "Failed to add tool ", " because of payload size limit"

// tooLongTool returns the name of the tool that is too long for a page, by the error.
func tooLongTool(e *jsonrpc.Error) (name string, ok bool) {
	name, ok = strings.CutPrefix(e.Message, tooLong)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(name, tooLongEnd)
}

// vanished reports whether the first tool of a page was removed meanwhile, and the list
// was not restarted yet.
func (l *listing) vanished(e *jsonrpc.Error, cursor string) bool {
	name, ok := tooLongTool(e)
	return ok && name == "" && cursor != "" && !l.again
}

// stopped ends the list at an error of the device.
func (l *listing) stopped(e *jsonrpc.Error) error {
	name, ok := tooLongTool(e)
	switch {
	case !ok && len(l.manifest.Tools) == 0:
		return fmt.Errorf("it refused tools/list: %s", e)
	case !ok:
		l.note("it refused the rest of the tool list: %s", e)
	case name != "":
		l.hidden = true
		l.note("%s is too long for the device to list, it is missing and tools after it may be", ferrule.Clean(name, ferrule.MaxToolName))
	case len(l.manifest.Tools) == 0:
		l.note("the device has no tools")
	default:
		l.note("the tool list changed while reading, some tools are missing")
	}
	return nil
}

// page is one page of the tool list.
type page struct {
	Tools []json.RawMessage `json:"tools"`
	Next  string            `json:"nextCursor"`
}

// page requests one page. If the device refuses, the error is a *jsonrpc.Error.
func (g *greeting) page(ctx context.Context, cursor string, withUserTools bool) (page, error) {
	params := append([]byte(`{"cursor":`), ferrule.AppendString(nil, cursor)...)
	params = fmt.Appendf(params, `,"withUserTools":%t}`, withUserTools)
	a, err := g.ask(ctx, "tools/list", params)
	switch {
	case err != nil:
		return page{}, fmt.Errorf("tools/list failed: %w", err)
	case a.err != nil:
		return page{}, a.err
	case a.broken:
		return page{}, errors.New("invalid answer to tools/list: not JSON")
	}
	var p page
	if err := json.Unmarshal(a.result, &p); err != nil {
		return page{}, fmt.Errorf("invalid answer to tools/list: %s", jsonrpc.Reason(err))
	}
	return p, nil
}

// add adds the tools of a page. An invalid one does not affect the others.
func (l *listing) add(tools []json.RawMessage) {
	for _, raw := range tools {
		l.entries++
		l.size += len(raw)
		tool := parseTool(raw)
		if tool.Name == "" {
			l.note("tool %d has no name", l.entries)
			continue
		}
		l.manifest.Tools = append(l.manifest.Tools, tool)
	}
}

func parseTool(raw []byte) ferrule.Tool {
	var entry struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
		Annotations struct {
			Audience    []string `json:"audience"`
			ReadOnly    bool     `json:"readOnlyHint"`
			Destructive bool     `json:"destructiveHint"`
			Idempotent  bool     `json:"idempotentHint"`
		} `json:"annotations"`
	}
	err := json.Unmarshal(raw, &entry)
	a := entry.Annotations
	tool := ferrule.Tool{
		Name: entry.Name, Text: entry.Description, Input: closed(entry.InputSchema), Idempotent: a.Idempotent,
		UserOnly: slices.Equal(a.Audience, []string{"user"}),
	}
	switch {
	case a.ReadOnly:
		tool.Effect = ferrule.Reads
	case a.Destructive:
		tool.Effect = ferrule.Endangers
	}
	if err != nil {
		tool.UserOnly = true // the invalid member may be the one that says so
		tool.Quarantine = "invalid entry in tools/list: " + jsonrpc.Reason(err)
	}
	return tool
}

// closed returns a schema that allows only the arguments it names. Firmware would
// silently ignore others.
func closed(schema json.RawMessage) json.RawMessage {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Additional json.RawMessage            `json:"additionalProperties"`
	}
	if json.Unmarshal(schema, &s) != nil || s.Properties == nil || s.Additional != nil {
		return schema
	}
	rest := bytes.TrimPrefix(bytes.TrimSpace(schema), []byte("{"))
	return append([]byte(`{"additionalProperties":false,`), rest...)
}
