package check

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// channel carries requests of MCP to a device.
type channel interface {
	// ask sends a request and waits for its answer.
	ask(ctx context.Context, method, params string, wait time.Duration) reply
	// lost judges a reply that did not come, and connects again if the connection has ended.
	lost(ctx context.Context, r reply) error
	// ignored records a finding if only this request was not answered, and is like lost
	// otherwise.
	ignored(ctx context.Context, r reply, name, text string) error
}

// service is the check of what all protocols with the methods of MCP share: voice toys, and
// MCP servers.
type service struct {
	*run
	channel
	prefix  string   // of the IDs
	reading []string // tools that are known to read
	offered []offered
	raw     string // the list as it was received
	extra   string // more params of tools/list
}

// offered is a tool in a list.
type offered struct {
	Name        string          `json:"name"`
	Text        string          `json:"description"`
	Schema      json.RawMessage `json:"inputSchema"`
	Annotations struct {
		ReadOnly bool     `json:"readOnlyHint"`
		Audience []string `json:"audience"`
	} `json:"annotations"`
}

func (s *service) finding(name string, e evidence, format string, args ...any) {
	s.find(s.prefix+"."+name, e, format, args...)
}

// Limits of a list.
const (
	maxPages = 64
	maxList  = 8 << 20 // bytes of all pages
)

// listWait is how long a page may take.
const listWait = 5 * time.Second

// readList reads all pages of the list. The text is what the tools are compared by.
func (s *service) readList(ctx context.Context, extra string) (tools []offered, text string, pages int, err error) {
	var entries strings.Builder
	tools, pages, err = s.readPages(ctx, extra, &entries)
	return tools, entries.String(), pages, err
}

// readPages is readList. It writes the entries to text.
func (s *service) readPages(ctx context.Context, extra string, text *strings.Builder) (tools []offered, pages int, err error) {
	var seen []string
	cursor, again, size := "", false, 0
	for pages < maxPages {
		params := "{" + extra
		if cursor != "" || extra != "" {
			params = fmt.Sprintf(`{"cursor":%s%s`, jsonrpc.Marshal(cursor), extra)
		}
		r := s.ask(ctx, "tools/list", params+"}", listWait)
		if err := s.lost(ctx, r); err != nil {
			return nil, pages, err
		}
		if r.outcome != answered {
			return tools, pages, nil
		}
		if size += len(r.raw); size > maxList {
			s.finding("page-loop", evidence{r.sent, ""}, "the list has more than %d MiB in %d pages", maxList>>20, pages+1)
			return tools, pages, nil
		}
		if r.err != nil {
			if cursor != "" && !again && !namesTool(r.err) {
				s.finding("lost-cursor", r.evidence(), "the device returned the cursor %q, and then rejected it: %s", cutText(cursor), r.err)
				tools, pages, seen, cursor, again = nil, 0, nil, "", true
				text.Reset()
				continue
			}
			s.listError(r)
			return tools, pages, nil
		}
		var page struct {
			Tools []json.RawMessage `json:"tools"`
			Next  string            `json:"nextCursor"`
		}
		if err := json.Unmarshal(r.result, &page); err != nil || page.Tools == nil {
			s.finding("no-tools", r.evidence(), "the result of tools/list has no tools")
			return tools, pages, nil
		}
		pages++
		for _, raw := range page.Tools[:min(len(page.Tools), ferrule.MaxTools)] {
			var t offered
			if err := json.Unmarshal(raw, &t); err != nil || t.Name == "" {
				s.finding("bad-tool", evidence{r.sent, string(raw)}, "an entry of the list is not a tool with a name")
				continue
			}
			tools = append(tools, t)
			text.Write(raw)
		}
		switch {
		case page.Next == "":
			return tools, pages, nil
		case slices.Contains(seen, page.Next):
			s.finding("page-loop", r.evidence(), "the cursor %q came twice: the list does not end", cutText(page.Next))
			return tools, pages, nil
		case len(tools) > ferrule.MaxTools:
			s.finding("page-loop", r.evidence(), "the list has more than %d tools", ferrule.MaxTools)
			return tools, pages, nil
		}
		cursor = page.Next
		seen = append(seen, cursor)
	}
	s.finding("page-loop", evidence{}, "the list has more than %d pages", maxPages)
	return tools, pages, nil
}

// The error of xiaozhi firmware when a page would be empty. The name of the tool is in between.
const tooLong, tooLongEnd = "Failed to add tool ", " because of payload size limit"

// namesTool reports whether an error of xiaozhi firmware names a tool that does not fit a page.
func namesTool(e *jsonrpc.Error) bool {
	return strings.HasPrefix(e.Message, tooLong) && strings.HasSuffix(e.Message, tooLongEnd) && len(e.Message) > len(tooLong+tooLongEnd)
}

// listError judges an error instead of a page.
func (s *service) listError(r reply) {
	switch {
	case s.prefix == "xiaozhi" && namesTool(r.err):
		s.finding("long-tool", r.evidence(), "a tool does not fit a page, and hides the tools after it: %s", r.err)
	case s.prefix == "xiaozhi" && r.err.Message == tooLong+tooLongEnd: // how firmware says that there are none
	default:
		s.finding("no-tools", r.evidence(), "tools/list was answered with an error: %s", r.err)
	}
}

// names judges names and texts.
func (s *service) names(context.Context) (string, error) {
	seen := make(map[string]bool)
	for _, t := range s.offered {
		e := evidence{"", t.Name}
		switch {
		case len(t.Name) > ferrule.MaxToolName || strings.ContainsFunc(t.Name, unusual):
			s.finding("bad-name", e, "%q is not a name of letters, digits, _ - and . with at most %d characters", cutText(t.Name), ferrule.MaxToolName)
		case seen[t.Name]:
			s.finding("duplicate-tool", e, "%s is listed more than once", t.Name)
		}
		seen[t.Name] = true
		if len(t.Text) > ferrule.MaxText || !ferrule.Visible(t.Text) {
			s.finding("bad-text", evidence{"", t.Text}, "the description of %q is longer than %d bytes or has characters that nobody sees", cutText(t.Name), ferrule.MaxText)
		}
	}
	return fmt.Sprintf("%d tools", len(s.offered)), nil
}

// unusual reports whether a character does not belong in a name.
func unusual(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.')
}

// schemas judges the schemas.
func (s *service) schemas(context.Context) (string, error) {
	for _, t := range s.offered {
		e := evidence{"", string(t.Schema)}
		if t.Schema == nil {
			s.finding("bad-schema", e, "%s has no inputSchema", cutText(t.Name))
		} else if _, err := schema.Compile(t.Schema); err != nil {
			s.finding("bad-schema", e, "the schema of %s is unusable: %s", cutText(t.Name), err)
		}
	}
	return fmt.Sprintf("%d schemas", len(s.offered)), nil
}

// readers returns the tools that are known to read and need no arguments.
func (s *service) readers() (names []string) {
	for _, t := range s.offered {
		var needs struct {
			Required []string `json:"required"`
		}
		if json.Unmarshal(t.Schema, &needs) != nil || len(needs.Required) > 0 {
			continue
		}
		if t.Annotations.ReadOnly || slices.Contains(s.reading, t.Name) {
			names = append(names, t.Name)
		}
	}
	return names[:min(len(names), 16)]
}

// callParams returns the params of a call without arguments.
func callParams(tool string) string {
	return fmt.Sprintf(`{"name":%s,"arguments":{}}`, jsonrpc.Marshal(tool))
}

// calls calls the tools that only read.
func (s *service) calls(ctx context.Context) (string, error) {
	names := s.readers()
	if len(names) == 0 {
		return "", errSkip("the device has no tool that is known to read only and needs no arguments")
	}
	made, failed := 0, 0
	for made < max(9, len(names)) && failed < 2 {
		name := names[made%len(names)]
		s.called(name)
		r := s.ask(ctx, "tools/call", callParams(name), callWait)
		made++
		if r.outcome == silent {
			failed++
		}
		if err := s.lost(ctx, r); err != nil {
			return "", err
		}
		if r.outcome != answered {
			continue
		}
		slow := r.took > slowCall
		if slow {
			failed++
			s.finding("slow-call", r.evidence(), "the answer came %.1f s after the request", r.took.Seconds())
		}
		if r.err != nil {
			s.finding("failed-call", r.evidence(), "%s failed: %s", cutText(name), r.err)
			continue
		}
		s.result(r, name)
	}
	return fmt.Sprintf("%d calls of %d tools that only read", made, len(names)), nil
}

// result judges the result of a call.
func (s *service) result(r reply, name string) {
	var v struct {
		Content *[]struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
		IsError bool `json:"isError"`
	}
	switch err := json.Unmarshal(r.result, &v); {
	case err != nil || v.Content == nil:
		s.finding("wrong-result", r.evidence(), "the result of %s has no content", cutText(name))
	case v.IsError:
		s.finding("failed-call", r.evidence(), "%s reports an error", cutText(name))
	case slices.ContainsFunc(*v.Content, func(c struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}) bool {
		return c.Type == ""
	}):
		s.finding("wrong-result", r.evidence(), "a part of the result of %s has no type", cutText(name))
	case s.prefix == "xiaozhi" && len(*v.Content) > 0 && (*v.Content)[0].Text == "false":
		s.finding("says-false", r.evidence(), "%s returns the text false", cutText(name))
	}
}

// errors tests how wrong requests are answered.
func (s *service) errors(ctx context.Context) (string, error) {
	tests := []wrongRequest{
		{"ferrule/check-no-such-method", "{}", "an unknown method", jsonrpc.CodeMethodNotFound},
		{"tools/call", `{"name":"ferrule_check_no_such_tool","arguments":{}}`, "an unknown tool", 0},
		{"tools/call", `{"arguments":{}}`, "a call without the name of a tool", 0},
	}
	for _, test := range tests {
		r := s.ask(ctx, test.method, test.params, callWait)
		if r.outcome == silent {
			return "", s.ignored(ctx, r, "silent-error", test.what+" was not answered")
		}
		if err := s.lost(ctx, r); err != nil {
			return "", err
		}
		var v struct {
			IsError bool `json:"isError"`
		}
		json.Unmarshal(r.result, &v) // another result is not an error
		switch {
		case r.outcome != answered || s.found(s.prefix+".says-false"):
		case r.err == nil && !v.IsError:
			s.finding("accepted-error", r.evidence(), "%s was answered with a result", test.what)
		case s.prefix == "mcp" && test.code != 0 && r.err != nil && r.err.Code != test.code:
			s.finding("wrong-code", r.evidence(), "%s was answered with the code %d; it must be %d", test.what, r.err.Code, test.code)
		}
	}
	return fmt.Sprintf("%d wrong requests", len(tests)), nil
}

// measure measures how fast requests are answered. The method must be harmless.
func (s *service) measure(ctx context.Context, method, params string) (string, error) {
	var times []time.Duration
	for began := time.Now(); len(times) < 20 && (len(times) < 3 || time.Since(began) < 2*time.Second); {
		r := s.ask(ctx, method, params, callWait)
		if err := s.lost(ctx, r); err != nil {
			return "", err
		}
		if r.outcome != answered {
			return "", errSkip("a request was not answered")
		}
		times = append(times, r.took)
	}
	slices.Sort(times)
	median := times[len(times)/2]
	if median > 500*time.Millisecond {
		s.finding("slow-answers", evidence{}, "half of the answers to %s take longer than %v", method, median.Round(time.Millisecond))
	}
	return fmt.Sprintf("%s in %v", method, median.Round(10*time.Microsecond)), nil
}
