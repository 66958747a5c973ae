package server

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// profile is what is known of a program that needs another form of what others get. Policy,
// journal and limits do not depend on it.
type profile struct {
	// basic lists schemas in their basic form, and gives arguments the type that the schema
	// wants: the program converts schemas, and drops all tools if it fails at one.
	basic bool
	// textOnly gives results as text alone. The program passes them on to its model as they
	// are: pictures as base64, and structured content twice. It takes an error of JSON-RPC
	// for a broken connection.
	textOnly bool
	// brief is set if each call has a session of its own: the end of one says nothing about
	// its agent.
	brief bool
	// onePage is set if the program reads only the first page of a list.
	onePage bool
	// patience is how long the program waits for an answer; 0 for as long as a call takes.
	// silence is how long it waits without a byte: less, and it counts only if the stream of a
	// request is not opened at once.
	patience, silence time.Duration
}

// profiles are the profiles that an address can have, as in /mcp?profile=home-assistant.
var profiles = map[string]profile{
	// Home Assistant gives up after 10 seconds, in which it also opens and closes its session,
	// and after 5 seconds without a byte.
	"home-assistant": {basic: true, textOnly: true, brief: true, onePage: true, patience: 8 * time.Second, silence: 4 * time.Second},
}

// sdkName is the name of clients that were not given one by the authors of their program, with
// the SDK for Python. Home Assistant is one of them. It is only a hint: such a client gets
// basic schemas, since they work for all, and nothing else of a profile.
const sdkName = "mcp"

// profileParam is the parameter of an address with the name of a profile.
const profileParam = "profile"

// profileKey is the context key of the profile of an address.
type profileKey struct{}

// profileOf returns the profile of a request: that of its address, or else a guess.
func profileOf(ctx context.Context) profile {
	if p, ok := ctx.Value(profileKey{}).(profile); ok {
		return p
	}
	return profile{basic: client(ctx).Name == sdkName}
}

// profiled serves an address with a profile. In a session, the address of its first request
// counts.
func profiled(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r = withProfile(w, r); r != nil {
			next.ServeHTTP(w, r)
		}
	})
}

// withProfile returns a request with the profile in its address. It is nil if there is no such
// profile, and the request was answered.
func withProfile(w http.ResponseWriter, r *http.Request) *http.Request {
	query := r.URL.Query()
	if !query.Has(profileParam) {
		return r
	}
	p, ok := profiles[query.Get(profileParam)]
	if !ok {
		known := strings.Join(slices.Sorted(maps.Keys(profiles)), ", ")
		http.Error(w, fmt.Sprintf("unknown profile %.50q in the address; the profiles are: %s", query.Get(profileParam), known), http.StatusNotFound)
		return nil
	}
	if mcphttp.OpensSSE(r) {
		p.silence = 0
	}
	return r.WithContext(context.WithValue(r.Context(), profileKey{}, p))
}

// profileQuery returns the query of an address with its profile alone; empty if it has none.
func profileQuery(u *url.URL) string {
	name := u.Query().Get(profileParam)
	if _, ok := profiles[name]; !ok {
		return ""
	}
	return "?" + url.Values{profileParam: {name}}.Encode()
}

// answerIn returns how long a client with a protocol version waits for an answer; 0 if for as
// long as a call takes.
func (p profile) answerIn(version string) time.Duration {
	if p.silence > 0 && version != mcphttp.SessionVersion { // only that one opens streams at once
		return min(p.patience, p.silence)
	}
	return p.patience
}

// toolsFor returns a list of tools for a profile.
func (v *view) toolsFor(p profile, all []*mcp.Tool) []*mcp.Tool {
	if !p.basic {
		return all
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(all) == 0 || len(v.basicOf) == 0 || &v.basicOf[0] != &all[0] {
		basic := make([]*mcp.Tool, len(all))
		for i, t := range all {
			other := *t
			input, _ := t.InputSchema.(json.RawMessage)
			if full, err := schema.Compile(input); err == nil { // at the address of a device
				input = full.Portable()
			}
			other.InputSchema = schema.Basic(input)
			basic[i] = &other
		}
		v.basicOf, v.basic = all, basic
	}
	if !p.textOnly {
		return v.basic
	}
	texts := make([]*mcp.Tool, len(v.basic))
	for i, t := range v.basic {
		texts[i] = &mcp.Tool{Name: t.Name, Title: t.Title, Description: t.Description, InputSchema: t.InputSchema, Annotations: t.Annotations}
	}
	return texts
}

// coerce gives the arguments of a call the types that its tool wants.
func (v *view) coerce(ctx context.Context, call *ferrule.Call) {
	if _, tool := v.server.seenBy(ctx).Tool(call.Device, call.Tool); tool != nil {
		input := tool.FullInput
		if input == nil {
			input = tool.Input
		}
		call.Args = schema.Coerce(input, call.Args)
	}
}

// asText returns a result as text alone.
func asText(r *mcp.CallToolResult) *mcp.CallToolResult {
	r.StructuredContent, r.Meta = nil, nil
	for i, c := range r.Content {
		switch c := c.(type) {
		case *mcp.ImageContent:
			r.Content[i] = omitted("picture", c.MIMEType, len(c.Data))
		case *mcp.AudioContent:
			r.Content[i] = omitted("sound", c.MIMEType, len(c.Data))
		case *mcp.EmbeddedResource:
			if c.Resource != nil && c.Resource.Blob != nil {
				r.Content[i] = omitted("file", c.Resource.MIMEType, len(c.Resource.Blob))
			}
		}
	}
	return r
}

// omitted says that something is not in a result.
func omitted(what, kind string, size int) mcp.Content {
	return &mcp.TextContent{Text: fmt.Sprintf("(a %s of %d bytes, %s; it is not sent to this program, which takes text only)", what, size, ferrule.Clean(kind, ferrule.MaxWord))}
}
