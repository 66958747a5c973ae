package sim

import (
	"context"
	"fmt"
	"strings"
)

func tools(list map[string]any) []any { t, _ := list["tools"].([]any); return t }
func pins(list map[string]any) []any  { p, _ := list["pins"].([]any); return p }

// listings are boards with a faulty list of tools.
var listings = []Behavior{
	{
		Name: "short-list", Text: "is short of memory: one pin and one tool are always missing in its list",
		results: results{"list_tools": func(_ *boardSession, list map[string]any) {
			list["tools"] = append([]any{nil}, tools(list)[1:]...)
			list["pins"] = pins(list)[1:]
		}},
	},
	{
		Name: "short-list-once", Text: "is short of memory at the first list_tools of a client",
		results: results{"list_tools": func(c *boardSession, list map[string]any) {
			if c.lists == 1 {
				list["pins"] = pins(list)[2:]
			}
		}},
	},
	{
		Name: "cut-list", Text: "sends half of its list the first time",
		answer: func(_ context.Context, c *boardSession, req request, answer string) error {
			if req.Method == "list_tools" && c.lists == 1 {
				return c.write(answer[:len(answer)/2] + "\r\n")
			}
			return c.write(answer)
		},
	},
	{
		Name: "shrinking", Text: "lists one tool less on each connection",
		results: results{"list_tools": func(c *boardSession, list map[string]any) {
			t := tools(list)
			list["tools"] = t[:max(5, len(t)-c.number+1)]
		}},
	},
	{
		Name: "changing", Text: "has different firmware on each connection",
		results: results{"list_tools": func(c *boardSession, list map[string]any) {
			list["tools"] = append(tools(list), map[string]any{"name": fmt.Sprintf("new_%d", c.number), "description": "A new tool"})
		}},
	},
}

// hostile boards have not been seen yet, but must be expected.
var hostile = []Behavior{
	hostileBoard,
	{
		Name: "bad-tools", Text: "lists tools with broken and hostile names, descriptions and schemas among good ones",
		results: results{"list_tools": func(_ *boardSession, list map[string]any) {
			list["tools"] = append(tools(list),
				map[string]any{"name": "properties_are_a_number", "inputSchema": map[string]any{"type": "object", "properties": 5}},
				map[string]any{"name": "refers_to_itself", "inputSchema": map[string]any{"properties": map[string]any{"a": map[string]any{"$ref": "#"}}}},
				map[string]any{"name": "refers_elsewhere", "inputSchema": map[string]any{"properties": map[string]any{"a": map[string]any{"$ref": "http://127.0.0.1/a.json"}}}},
				map[string]any{"name": "text_is_a_number", "description": 5},
				map[string]any{"name": "bell\u0007", "description": "a name that rings"},
				map[string]any{"name": strings.Repeat("long", 100)},
				map[string]any{"name": "pulse", "description": "a second tool of this name"},
				map[string]any{"name": "long_text", "description": strings.Repeat("very ", 10000) + "long\u202e"},
			)
		}},
	},
	{
		Name: "huge-answer", Text: "answers calls with a megabyte",
		answer: toCalls(func(_ context.Context, c *boardSession, req request, _ string) error {
			return c.write(succeed(req.ID, strings.Repeat("x", 1<<20)))
		}),
	},
	{
		Name: "flood", Text: "sends garbage as fast as it can, and answers in between",
		begin: func(_ context.Context, c *boardSession) error {
			c.background.Go(func() {
				for line := strings.Repeat("garbage {\"x\":1 ", 50) + "\r\n"; c.write(line) == nil; {
				}
			})
			return nil
		},
	},
	{
		Name: "endless-line", Text: "answers the greeting, then sends an endless line",
		answer: func(_ context.Context, c *boardSession, req request, answer string) error {
			if err := c.write(answer); err != nil || req.Method != "list_tools" {
				return err
			}
			for line := strings.Repeat("x", 4096); ; {
				if err := c.write(line); err != nil {
					return err
				}
			}
		},
	},
	{
		Name: "not-mcpu", Text: "is a web server",
		request: func(_ context.Context, c *boardSession, _ []byte) error {
			c.write("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
			return errHangUp
		},
	},
}
