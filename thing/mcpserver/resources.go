package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/thing"
)

// Resource is something to read, for example a log, a picture, or a state.
type Resource struct {
	URI         string
	Name, Title string
	Text        string
	MIME        string
	Icons       []Icon
	// Audience is user, assistant, or both.
	Audience []string
	// Priority is from 0 to 1.
	Priority float64
}

// Template is a set of resources whose URIs differ in a few values.
type Template struct {
	// Resource describes them. Its URI has names in braces, like sensor://{name}/last.
	Resource
	// Complete suggests values, by name.
	Complete map[string]Completer
}

// ErrNotFound is the error of a Template for unknown values.
var ErrNotFound = errors.New("resource not found")

// Resource declares or replaces a resource. Read returns a string, bytes, a Picture, a
// Sound, a Document, Parts of these, or any other value, which is encoded as JSON. It
// is called in the lane, like a tool.
func (d *Device) Resource(r Resource, read func(ctx context.Context) (any, error)) {
	d.subscriptions.declare(r.URI)
	d.server.AddResource(&mcp.Resource{
		URI: r.URI, Name: r.named(), Title: r.Title, Description: r.Text, MIMEType: r.MIME, Icons: icons(r.Icons), Annotations: r.annotations(),
	}, d.reader(r, func(ctx context.Context, _ string) (any, error) { return read(ctx) }))
}

// Template declares a set of resources whose URIs differ in a few values.
func (d *Device) Template(t Template, read func(ctx context.Context, values map[string]string) (any, error)) {
	match, err := parseTemplate(t.URI)
	if err != nil {
		panic(fmt.Sprintf("mcpserver: template %s: %v", t.URI, err))
	}
	d.subscriptions.declareTemplate(match)
	d.completers.set("uri "+t.URI, t.Complete)
	d.server.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: t.URI, Name: t.named(), Title: t.Title, Description: t.Text, MIMEType: t.MIME, Icons: icons(t.Icons), Annotations: t.annotations(),
	}, d.reader(t.Resource, func(ctx context.Context, uri string) (any, error) {
		values, ok := match(uri)
		if !ok {
			return nil, ErrNotFound
		}
		return read(ctx, values)
	}))
}

// named returns the name of a resource, or else its URI.
func (r Resource) named() string {
	if r.Name != "" {
		return r.Name
	}
	return r.URI
}

func (r Resource) annotations() *mcp.Annotations {
	if r.Audience == nil && r.Priority == 0 {
		return nil
	}
	a := &mcp.Annotations{Priority: r.Priority}
	for _, who := range r.Audience {
		a.Audience = append(a.Audience, mcp.Role(who))
	}
	return a
}

// reader returns a handler of resources/read.
func (d *Device) reader(r Resource, read func(ctx context.Context, uri string) (any, error)) mcp.ResourceHandler {
	return func(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		c := newCall(req, "resources/read", req.Params.URI, nil)
		if err := d.resume(c, req.Params.RequestState, req.Params.InputResponses, false); err != nil {
			return nil, err
		}
		var content any
		ask, err := d.rounds(ctx, c, func(ctx context.Context) error {
			return d.inTurn(ctx, func(ctx context.Context) (err error) {
				if content, err = read(ctx, req.Params.URI); err != nil {
					return err
				}
				if data, ok := content.([]byte); ok {
					content = thing.Document{Data: data}
				}
				content, err = frozen(content)
				return err
			})
		})
		switch {
		case errors.Is(err, ErrNotFound):
			return nil, mcp.ResourceNotFoundError(req.Params.URI)
		case err != nil:
			return nil, requestError(err)
		case ask != nil:
			return &mcp.ReadResourceResult{InputRequests: ask.requests, RequestState: ask.state}, nil
		}
		parts := partsOf(content)
		result := &mcp.ReadResourceResult{Contents: make([]*mcp.ResourceContents, 0, len(parts))}
		for _, part := range parts {
			result.Contents = append(result.Contents, contentsOf(part, r.MIME))
		}
		return result, nil
	}
}

// templateName matches a name in braces.
var templateName = regexp.MustCompile(`\{[^{}]*\}`)

// parseTemplate returns a function that extracts the values from a URI. A value has no
// slash.
func parseTemplate(template string) (func(uri string) (map[string]string, bool), error) {
	var names []string
	pattern, rest := "^", template
	for _, found := range templateName.FindAllString(template, -1) {
		before, after, _ := strings.Cut(rest, found)
		name := found[1 : len(found)-1]
		if !regexp.MustCompile(`^[A-Za-z0-9_]+$`).MatchString(name) {
			return nil, fmt.Errorf("%s is not a plain name in braces", found)
		}
		names = append(names, name)
		pattern += regexp.QuoteMeta(before) + `([^/?#]+)`
		rest = after
	}
	if names == nil {
		return nil, errors.New("it has no name in braces")
	}
	match := regexp.MustCompile(pattern + regexp.QuoteMeta(rest) + "$")
	return func(uri string) (map[string]string, bool) {
		found := match.FindStringSubmatch(uri)
		if found == nil {
			return nil, false
		}
		values := make(map[string]string)
		for i, name := range names {
			value, err := url.PathUnescape(found[i+1])
			if err != nil {
				return nil, false
			}
			values[name] = value
		}
		return values, true
	}, nil
}
