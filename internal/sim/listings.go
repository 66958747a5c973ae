package sim

import (
	"context"
	"fmt"
	"strings"
)

// tools and pins of a list, to be changed.
func tools(list map[string]any) []any { t, _ := list["tools"].([]any); return t }
func pins(list map[string]any) []any  { p, _ := list["pins"].([]any); return p }

// listings are boards that describe themselves badly.
var listings = []Behavior{
	{
		Name: "short-list", Text: "is short of memory: its list always lacks a pin and a tool",
		results: results{"list_tools": func(_ *conversation, list map[string]any) {
			list["tools"] = append([]any{nil}, tools(list)[1:]...)
			list["pins"] = pins(list)[1:]
		}},
	},
	{
		Name: "short-list-once", Text: "is short of memory when it is asked for the first time",
		results: results{"list_tools": func(c *conversation, list map[string]any) {
			if c.lists == 1 {
				list["pins"] = pins(list)[2:]
			}
		}},
	},
	{
		Name: "cut-list", Text: "sends half of its list the first time",
		answer: func(_ context.Context, c *conversation, req request, answer string) error {
			if req.Method == "list_tools" && c.lists == 1 {
				return c.say(answer[:len(answer)/2] + "\r\n")
			}
			return c.say(answer)
		},
	},
	{
		Name: "shrinking", Text: "lists one tool less each time it is connected to",
		results: results{"list_tools": func(c *conversation, list map[string]any) {
			t := tools(list)
			list["tools"] = t[:max(5, len(t)-c.number+1)]
		}},
	},
	{
		Name: "changing", Text: "is another firmware each time it is connected to",
		results: results{"list_tools": func(c *conversation, list map[string]any) {
			list["tools"] = append(tools(list), map[string]any{"name": fmt.Sprintf("new_%d", c.number), "description": "A tool that was not there before"})
		}},
	},
}

// hostile boards are not known to exist, and will.
var hostile = []Behavior{
	enemy,
	{
		Name: "bad-tools", Text: "lists tools with broken and hostile names, texts and schemas among good ones",
		results: results{"list_tools": func(_ *conversation, list map[string]any) {
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
		answer: toCalls(func(_ context.Context, c *conversation, req request, _ string) error {
			return c.say(succeed(req.ID, strings.Repeat("x", 1<<20)))
		}),
	},
	{
		Name: "flood", Text: "sends garbage as fast as it can, and answers in between",
		begin: func(_ context.Context, c *conversation) error {
			c.beside.Go(func() {
				for line := strings.Repeat("garbage {\"x\":1 ", 50) + "\r\n"; c.say(line) == nil; {
				}
			})
			return nil
		},
	},
	{
		Name: "endless-line", Text: "answers the greeting, and then begins a line that has no end",
		answer: func(_ context.Context, c *conversation, req request, answer string) error {
			if err := c.say(answer); err != nil || req.Method != "list_tools" {
				return err
			}
			for line := strings.Repeat("x", 4096); ; {
				if err := c.say(line); err != nil {
					return err
				}
			}
		},
	},
	{
		Name: "not-mcpu", Text: "is a web server",
		request: func(_ context.Context, c *conversation, _ []byte) error {
			c.say("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
			return errHangUp
		},
	},
}
