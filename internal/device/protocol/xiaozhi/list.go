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
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxPages is how many pages of a list are asked for. Firmware puts a dozen tools
// on each.
const maxPages = 64

// parseServer reads what initialize answered.
func parseServer(data []byte) (*ferrule.Manifest, error) {
	var r struct {
		Server struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"serverInfo"`
		Instructions string `json:"instructions"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%w: its answer to initialize makes no sense: %s", protocol.ErrNotMine, reason(err))
	}
	return &ferrule.Manifest{Model: r.Server.Name, Version: r.Server.Version, Instructions: r.Instructions}, nil
}

// listTools reads the whole list, with the tools that are for users only. If one
// of them hides others, those for everybody are asked for alone.
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

// listing is a list that is being read.
type listing struct {
	manifest *ferrule.Manifest
	entries  int  // how many came
	size     int  // and their bytes
	hidden   bool // a tool was too long to be listed, and hides those behind it
	again    bool // it was begun anew
}

// read asks for page after page. What is wrong with the list is noted; the device
// is not refused for it.
func (l *listing) read(ctx context.Context, g *greeting, withUserTools bool) error {
	var seen []string
	cursor := ""
	for range maxPages {
		page, err := g.page(ctx, cursor, withUserTools)
		var refused *rpcError
		switch {
		case errors.Is(err, transport.ErrTooLong):
			l.note("a page of its list of tools is too long to be read; tools are missing")
			return nil
		case errors.As(err, &refused) && l.vanished(refused, cursor):
			l.begin()
			seen, cursor = nil, ""
			continue
		case errors.As(err, &refused):
			return l.stopped(refused)
		case err != nil:
			return err
		}
		l.add(page.Tools)
		cursor = page.Next
		if cursor == "" {
			return nil
		}
		if slices.Contains(seen, cursor) || l.entries > ferrule.MaxTools || l.size > ferrule.MaxManifest {
			l.note("its list of tools does not end; the first %d are kept", len(l.manifest.Tools))
			return nil
		}
		seen = append(seen, cursor)
	}
	l.note("its list of tools has more than %d pages; the first %d tools are kept", maxPages, len(l.manifest.Tools))
	return nil
}

func (l *listing) note(format string, args ...any) {
	l.manifest.Notes = append(l.manifest.Notes, fmt.Sprintf(format, args...))
}

// begin forgets what was read.
func (l *listing) begin() {
	l.again, l.entries, l.size, l.manifest.Tools = true, 0, 0, nil
}

// What firmware says when a page would be empty, with a name between.
const tooLong, tooLongEnd = "Failed to add tool ", " because of payload size limit"

// tooLongTool is the name of the tool that an error says is too long for a page.
func tooLongTool(e *rpcError) (name string, ok bool) {
	name, ok = strings.CutPrefix(e.Message, tooLong)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(name, tooLongEnd)
}

// vanished tells that the tool which a page was to begin with is gone, and that
// the list has not been begun anew for it yet.
func (l *listing) vanished(e *rpcError, cursor string) bool {
	name, ok := tooLongTool(e)
	return ok && name == "" && cursor != "" && !l.again
}

// stopped ends a list at an error.
func (l *listing) stopped(e *rpcError) error {
	name, ok := tooLongTool(e)
	switch {
	case !ok && len(l.manifest.Tools) == 0:
		return fmt.Errorf("it refused tools/list: %s", e)
	case !ok:
		l.note("it refused the rest of its list of tools: %s", e)
	case name != "":
		l.hidden = true
		l.note("%s is too long for the device to list: it is missing, and tools behind it may be", ferrule.Clean(name, ferrule.MaxToolName))
	case len(l.manifest.Tools) == 0:
		l.note("it lists no tools")
	default:
		l.note("the list of its tools changed while it was read; some are missing")
	}
	return nil
}

// page is one page of a list.
type page struct {
	Tools []json.RawMessage `json:"tools"`
	Next  string            `json:"nextCursor"`
}

// Error makes an rpcError an error, so that a page can be refused with it.
func (e *rpcError) Error() string { return e.String() }

// page asks for one page.
func (g *greeting) page(ctx context.Context, cursor string, withUserTools bool) (page, error) {
	params := append([]byte(`{"cursor":`), ferrule.AppendString(nil, cursor)...)
	params = fmt.Appendf(params, `,"withUserTools":%t}`, withUserTools)
	a, err := g.ask(ctx, "tools/list", params)
	switch {
	case err != nil:
		return page{}, fmt.Errorf("asking for its tools: %w", err)
	case a.err != nil:
		return page{}, a.err
	case a.broken:
		return page{}, errors.New("its list of tools cannot be read")
	}
	var p page
	if err := json.Unmarshal(a.result, &p); err != nil {
		return page{}, fmt.Errorf("its list of tools makes no sense: %s", reason(err))
	}
	return p, nil
}

// add takes the tools of a page. One that makes no sense costs nothing but itself.
func (l *listing) add(tools []json.RawMessage) {
	for _, raw := range tools {
		l.entries++
		l.size += len(raw)
		tool := parseTool(raw)
		if tool.Name == "" {
			l.note("tool %d of its list has no name", l.entries)
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
		tool.UserOnly = true // what it says about that may be what makes no sense
		tool.Quarantine = "its entry in the list makes no sense: " + reason(err)
	}
	return tool
}

// closed is a schema that allows no arguments but those which it names: firmware
// ignores others, and what was meant by them would not happen.
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
