package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/browser"
)

// attacks run a script if a page puts them into HTML, an attribute, a URL, a script or a
// style without care. Each sets window.pwned, or adds an element with an ID that begins so.
var attacks = []string{
	`<script>window.pwned=1</script>`,
	`"><img src=x id=pwned-1 onerror="window.pwned=2">`,
	`'><svg id=pwned-2 onload=window.pwned=3>`,
	`</title></textarea></style></script><iframe id=pwned-3 srcdoc="<script>parent.pwned=4</script>"></iframe>`,
	`javascript:window.pwned=5`,
	`{{template "layout"}}${window.pwned=6}" hx-on:load="window.pwned=7" hx-get="/stop" data-x="`,
	"\u202e\u0000\u2028<a id=pwned-4 href=\"javascript:window.pwned=8\" autofocus onfocus=\"window.pwned=9\">",
}

// allAttacks is all of them in one text.
var allAttacks = strings.Join(attacks, " ")

// evilSVG is a picture with a script.
const evilSVG = `<svg xmlns="http://www.w3.org/2000/svg" onload="window.pwned=10"><script>parent.pwned=11;top.pwned=12</script><foreignObject><body xmlns="http://www.w3.org/1999/xhtml"><img src="x" onerror="window.pwned=13"/></body></foreignObject></svg>`

// evilServer is a device that has HTML, scripts and SVG in each field that MCP has.
func evilServer() *httptest.Server {
	icons := []mcp.Icon{
		{Source: "javascript:window.pwned=14", MIMEType: "image/png"},
		{Source: "data:image/svg+xml," + evilSVG, MIMEType: "image/svg+xml"},
		{Source: "data:text/html,<script>top.pwned=15</script>", MIMEType: allAttacks},
		{Source: "https://evil.example.com/icon.png", MIMEType: "image/png"},
	}
	server := mcp.NewServer(&mcp.Implementation{Name: allAttacks, Title: allAttacks, Version: attacks[0], WebsiteURL: attacks[4], Icons: icons}, &mcp.ServerOptions{Instructions: allAttacks})
	// A name that is not a word makes a tool unusable, so only some have one.
	input, worse := evilSchema("text"), evilSchema(attacks[1])
	answer := func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{StructuredContent: map[string]any{allAttacks: allAttacks, "celsius": allAttacks}, Content: []mcp.Content{
			&mcp.TextContent{Text: allAttacks},
			&mcp.ImageContent{MIMEType: "image/svg+xml", Data: []byte(evilSVG)},
			&mcp.ImageContent{MIMEType: `image/png" onerror="window.pwned=16`, Data: []byte(evilSVG)},
			&mcp.ImageContent{MIMEType: "text/html", Data: []byte(attacks[0])},
			&mcp.ResourceLink{URI: attacks[4], Name: allAttacks, Title: allAttacks, Description: allAttacks, MIMEType: "text/html"},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: attacks[4], MIMEType: "text/html", Text: allAttacks}},
		}}, nil
	}
	for name, schema := range map[string]any{"look": input, "change": worse, attacks[0]: input} {
		server.AddTool(&mcp.Tool{Name: name, Title: allAttacks, Description: allAttacks, InputSchema: schema, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: name == "look", Title: allAttacks}, Icons: icons}, answer)
	}
	server.AddTool(&mcp.Tool{Name: "fails", Title: allAttacks, Description: allAttacks, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: allAttacks}}}, nil
	})
	read := func(mime string) mcp.ResourceHandler {
		return func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, MIMEType: mime, Text: evilSVG + allAttacks}}}, nil
		}
	}
	for i, mime := range []string{"text/html", "image/svg+xml", "text/javascript", `image/png" onload="window.pwned=17`} {
		server.AddResource(&mcp.Resource{URI: fmt.Sprintf("evil://%d/%%22%%3E%%3Cscript%%3Ewindow.pwned=18%%3C/script%%3E", i), Name: allAttacks, Title: allAttacks, Description: allAttacks, MIMEType: mime, Icons: icons}, read(mime))
	}
	server.AddPrompt(&mcp.Prompt{Name: "ask", Title: allAttacks, Description: allAttacks, Icons: icons, Arguments: []*mcp.PromptArgument{{Name: attacks[0], Title: allAttacks, Description: allAttacks}}}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Description: allAttacks, Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: allAttacks}}}}, nil
	})
	return httptest.NewServer(bothMCPVersions(func(*http.Request) *mcp.Server { return server }))
}

// evilSchema returns the schema of a tool's arguments, with one of each kind. One of them has
// the name.
func evilSchema(name string) map[string]any {
	properties := make(map[string]any)
	for name, more := range map[string]map[string]any{
		name: {"type": "string"}, "choice": {"type": "string", "enum": attacks[:6]}, "color": {"type": "string", "format": "color"},
		"file": {"type": "string", "contentEncoding": "base64", "contentMediaType": allAttacks}, "number": {"type": "number", "minimum": 0, "maximum": 10},
		"switch": {"type": "boolean"}, "list": {"type": "array", "items": map[string]any{"type": "string", "title": allAttacks}},
	} {
		p := map[string]any{"title": allAttacks, "description": allAttacks, "unit": allAttacks, "x-unit": allAttacks}
		maps.Copy(p, more)
		if p["type"] == "string" {
			p["default"], p["examples"] = attacks[0], attacks[:6]
		}
		properties[name] = p
	}
	return map[string]any{"type": "object", "title": allAttacks, "description": allAttacks, "properties": properties}
}

// injected is an expression for what an attack has left in the page: scripts that ran,
// elements, handlers, and URLs that a page of ours does not have.
const injected = `(() => {
	const found = []
	if (window.pwned !== undefined) found.push('a script ran: ' + window.pwned)
	for (const e of document.querySelectorAll('*')) {
		const text = e.outerHTML.slice(0, 300)
		if (e.id.startsWith('pwned')) found.push('element: ' + text)
		for (const a of e.attributes) {
			if (/^on/i.test(a.name) || /^hx-on/i.test(a.name)) found.push('handler: ' + text)
			if (/^(href|src|action|formaction|data|xlink:href|srcdoc|poster)$/i.test(a.name)) {
				if (/^\s*(javascript|vbscript):/i.test(a.value) || /^\s*data:(?!,$|image\/(png|jpeg|gif|webp)[;,])/i.test(a.value)) found.push('URL: ' + text)
			}
		}
		if (/^(iframe|object|embed|base|foreignobject|link|meta|style)$/i.test(e.localName) && !e.closest('head')) found.push('element: ' + text)
		if (e.localName === 'script' && !new URL(e.src || 'x:', location).pathname.startsWith('/static/')) found.push('script: ' + text)
		if (e.localName === 'img' && !/^data:image\/(png|jpeg|gif|webp)[;,]/.test(e.src) && !e.src.startsWith(location.origin)) found.push('picture: ' + text)
	}
	return found
})()`

// TestConsoleHostile looks at each page of a gateway whose devices and agent have HTML,
// scripts and SVG in all of their texts, and calls a tool there. No script of theirs runs,
// and none of their elements is in a page.
func TestConsoleHostile(t *testing.T) {
	browser.Need(t)
	evil := evilServer()
	t.Cleanup(evil.Close)
	hostile, bad := startSim(t, sim.Config{Misbehave: "hostile"}), startSim(t, sim.Config{Misbehave: "bad-tools"})
	g := startGateway(t, map[string]string{"hostile": hostile.Addrs()[0], "bad": bad.Addrs()[0]}, withDialIn, func(c *config.Config) {
		c.Devices.HTTP = []config.HTTPDevice{{URL: evil.URL, Name: "evil"}}
		c.Policy.Preset = "open"
	})
	for _, id := range []string{"evil", "hostile", "bad"} {
		g.online(id)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: allAttacks, Title: allAttacks, Version: attacks[0]}, nil)
	agent, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: g.url("/mcp")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	for _, tool := range []string{"evil__look", "evil__change", "evil__fails", "hostile__answers_orders", "hostile__answers_failure", attacks[0]} {
		agent.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"text": allAttacks, allAttacks: allAttacks}}) // whatever it answers is in the journal
	}
	d := g.newDesk(t)
	query := "?q=" + strings.NewReplacer("<", "%3C", ">", "%3E", `"`, "%22", " ", "+").Replace(attacks[1])
	paths := g.pages([]string{"evil", "hostile", "bad"}, "/devices"+query, "/activity"+query, "/devices/"+strings.ReplaceAll(strings.TrimPrefix(query, "?q="), "/", "%2F"), "/login"+query)
	for _, path := range paths {
		d.Open(g.url(path))
		d.Next()
		d.Eval(`document.querySelectorAll('details').forEach(e => { e.open = true }); document.querySelectorAll('dialog').forEach(e => e.show())`, nil)
		d.unharmed(path)
	}
	d.runEvil()
	if problems := d.Problems(); len(problems) > 0 {
		t.Errorf("the browser reports %q", problems)
	}
}

// unharmed checks that a page has nothing of the attacks but their text.
func (d *desk) unharmed(what string) {
	d.t.Helper()
	d.settled() // what a live update or a picture brings comes after the page
	var found []string
	if d.Eval(injected, &found); len(found) > 0 {
		d.t.Errorf("%s: %q", what, found[:min(5, len(found))])
	}
}

// runEvil runs each tool of the evil device that has a form, and looks at the answers.
func (d *desk) runEvil() {
	d.t.Helper()
	d.at("/devices/evil")
	var forms int
	d.Eval(`document.querySelectorAll('form[action*="/evil/"]').length`, &forms)
	if forms == 0 {
		d.t.Error("the evil device has no form")
	}
	for _, tool := range []string{"look", "fails"} {
		d.at("/devices/evil")
		d.Eval(`document.querySelectorAll('details').forEach(e => { e.open = true })`, nil)
		d.Click(fmt.Sprintf(`form:has(input[name=tool][value=%q]) button:not([type=button])`, tool), "")
		d.Until(tool+" has answered", `[...document.querySelectorAll('.out')].some(e => e.innerText.includes('pwned'))`)
		d.unharmed("the answer of " + tool)
	}
}
