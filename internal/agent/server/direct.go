package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/internal/strictjson"
)

// A tools/call with nothing unusual in it does not pass through the SDK, whose connections
// and decoders take most of the time of a call. It is decoded here, goes the same way from
// view.receive on, and is encoded here. Whatever this file does not expect is left to the
// SDK, which is the reference: TestDirect compares the two.

// OnlySDK makes the SDK answer every request, for tests. It must be called before the first
// request.
func (s *Server) OnlySDK() { s.onlySDK = true }

// directCall is a request to call a tool.
type directCall struct {
	id        json.RawMessage
	stateless bool // of a version without sessions
	params    *mcp.CallToolParamsRaw
	can       *mcp.ClientCapabilities // of a version without sessions
}

// direct reads a request to call a tool. It returns nil if the SDK is to read it. The
// message must be valid JSON whose members have names of their own.
func (s *Server) direct(message []byte) *directCall {
	var c directCall
	var params []byte
	if c.id, params = s.plainRequest(message, callMethod); c.id == nil {
		return nil
	}
	c.params = new(mcp.CallToolParamsRaw)
	for name, value := range strictjson.Members(params) {
		switch {
		case string(name) == "name" && plainString(value):
			c.params.Name = string(value[1 : len(value)-1])
		case string(name) == "arguments" && value[0] == '{':
			c.params.Arguments = value
		case string(name) == "_meta":
			if c.params.Meta, c.can = s.metas.read(value); c.params.Meta == nil {
				return nil
			}
		default:
			return nil
		}
	}
	if c.params.Name == "" {
		return nil
	}
	_, c.stateless = c.params.Meta[mcp.MetaKeyProtocolVersion]
	return &c
}

// plainRequest returns the ID and the parameters of a request for a method; nil if it is not
// such a request, or if there is something unusual in it.
func (s *Server) plainRequest(message []byte, method string) (id, params []byte) {
	if s.onlySDK || mayBeDeep(message) {
		return nil, nil
	}
	var rpc, named []byte
	for name, value := range strictjson.Members(message) {
		switch string(name) {
		case "jsonrpc":
			rpc = value
		case "id":
			id = value
		case "method":
			named = value
		case "params":
			params = value
		default:
			return nil, nil
		}
	}
	if string(rpc) != `"2.0"` || string(named) != `"`+method+`"` || !plainID(id) {
		return nil, nil
	}
	return id, params
}

// mayBeDeep reports whether a message may have more levels than the SDK accepts.
func mayBeDeep(message []byte) bool {
	const deepest = 1000
	return bytes.Count(message, []byte("{"))+bytes.Count(message, []byte("[")) > deepest
}

// plainID reports whether an ID is a number or a string that needs no decoding.
func plainID(id []byte) bool {
	const longest = 15 // digits that every program can tell apart
	return plainString(id) || len(id) > 0 && len(id) <= longest && !bytes.ContainsFunc(id, func(r rune) bool { return r < '0' || r > '9' })
}

// plainString reports whether a JSON value is a short string of visible ASCII characters.
func plainString(value []byte) bool {
	const longest = 256
	return len(value) >= 2 && len(value) <= longest && value[0] == '"' &&
		!bytes.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' || r == '\\' })
}

// requestMetas remembers the _meta of requests: an agent sends the same one again and again.
type requestMetas struct {
	mu    sync.Mutex
	known map[string]requestMeta
}

// requestMeta is the _meta of a request, and what it says that the client can do; nil if it says
// nothing.
type requestMeta struct {
	mcp.Meta
	can *mcp.ClientCapabilities
}

// Limits of what requestMetas remembers.
const (
	maxMetas = 64
	maxMeta  = 4 << 10 // bytes of each
)

// read decodes the _meta of a request. It returns nil if there is something in it that the
// SDK must see, or if it is not valid.
func (r *requestMetas) read(text []byte) (mcp.Meta, *mcp.ClientCapabilities) {
	r.mu.Lock()
	known, ok := r.known[string(text)]
	r.mu.Unlock()
	if ok {
		return maps.Clone(known.Meta), known.can
	}
	meta, can := decodeMeta(text)
	if meta == nil || len(text) > maxMeta || meta[traceparent] != nil { // that differs each time
		return meta, can
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || len(r.known) >= maxMetas {
		r.known = make(map[string]requestMeta)
	}
	r.known[string(text)] = requestMeta{maps.Clone(meta), can}
	return meta, can
}

type capabilitiesKey struct{}

// clientCan returns what the client of a request can do. The SDK would decode it again each
// time that it is asked for.
func clientCan(ctx context.Context, req callRequest) *mcp.ClientCapabilities {
	if can, ok := ctx.Value(capabilitiesKey{}).(*mcp.ClientCapabilities); ok {
		return can
	}
	return req.ClientCapabilities()
}

// decodeMeta decodes the _meta of a request, with the client as the SDK's type: the SDK
// would convert it again each time that it is asked for.
func decodeMeta(text []byte) (mcp.Meta, *mcp.ClientCapabilities) {
	meta := mcp.Meta{}
	for name, value := range strictjson.Members(text) {
		switch string(name) {
		case mcp.MetaKeyProtocolVersion:
			if string(value) != `"`+mcphttp.StatelessVersion+`"` {
				return nil, nil
			}
			meta[mcp.MetaKeyProtocolVersion] = mcphttp.StatelessVersion
		case mcp.MetaKeyClientInfo:
			info := new(mcp.Implementation)
			if !onlyMembers(value, "name", "title", "version", "websiteUrl") || json.Unmarshal(value, info) != nil {
				return nil, nil
			}
			meta[mcp.MetaKeyClientInfo] = info
		case mcp.MetaKeyClientCapabilities:
			var can map[string]any
			if json.Unmarshal(value, &can) != nil || can == nil {
				return nil, nil
			}
			meta[mcp.MetaKeyClientCapabilities] = can
		case traceparent:
			var parent string
			if json.Unmarshal(value, &parent) != nil {
				return nil, nil
			}
			meta[traceparent] = parent
		default:
			return nil, nil
		}
	}
	if len(text) == 0 || text[0] != '{' {
		return nil, nil
	}
	_, modern := meta[mcp.MetaKeyProtocolVersion]
	can := (&mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Meta: meta}}).ClientCapabilities()
	if modern != (can != nil) {
		return nil, nil // the SDK says what is wrong
	}
	return meta, can
}

// onlyMembers reports whether a value is an object with no other members than these.
func onlyMembers(value []byte, names ...string) bool {
	for name := range strictjson.Members(value) {
		if !slices.Contains(names, string(name)) {
			return false
		}
	}
	return len(value) > 0 && value[0] == '{'
}

// noSession is the session of requests that have none. It is never connected.
var noSession = new(mcp.ServerSession)

// answerDirect makes the call of a request. It returns the response, and the code if that
// is an error.
func (v *view) answerDirect(ctx context.Context, c *directCall, session *mcp.ServerSession, extra *mcp.RequestExtra) (response []byte, code int64) {
	if c.stateless {
		session = noSession
		ctx = context.WithValue(ctx, capabilitiesKey{}, c.can)
	}
	result, err := v.receive(nil)(ctx, callMethod, &mcp.CallToolRequest{Session: session, Params: c.params, Extra: extra})
	if err == nil {
		var text []byte
		if text, err = v.server.encodeResult(c, result); err == nil {
			return text, 0
		}
	}
	return encodeError(c.id, err)
}

// encodeError returns the response to a request that failed, and the code of the error.
func encodeError(id json.RawMessage, err error) (response []byte, code int64) {
	var failure *jsonrpc.Error
	if !errors.As(err, &failure) {
		failure = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
	}
	text, err := json.Marshal(failure)
	if err != nil { // not with this type
		text = []byte(`{"code":-32603,"message":"the error cannot be encoded"}`)
	}
	return append(append(beginResponse(id, "error", len(text)), text...), '}'), failure.Code
}

// beginResponse returns a response up to its result or error, with space for the rest.
func beginResponse(id json.RawMessage, member string, size int) []byte {
	b := make([]byte, 0, size+len(id)+64)
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = append(b, id...)
	return append(append(append(b, `,"`...), member...), `":`...)
}

// encodeResult returns the response to a request that succeeded.
func (s *Server) encodeResult(c *directCall, result mcp.Result) ([]byte, error) {
	if r, ok := result.(*mcp.CallToolResult); ok {
		if b, ok := s.encodeTexts(c, r); ok {
			return b, nil
		}
	}
	if c.stateless { // as the SDK does
		meta := result.GetMeta()
		if meta == nil {
			meta = make(map[string]any)
		}
		if meta[mcp.MetaKeyServerInfo] == nil {
			meta[mcp.MetaKeyServerInfo] = s.implementation()
			result.SetMeta(meta)
		}
	}
	text, err := json.Marshal(result)
	if err != nil {
		return nil, fmt.Errorf("encoding the result: %w", err)
	}
	return append(append(beginResponse(c.id, "result", len(text)), text...), '}'), nil
}

// encodeTexts encodes a complete result that has only texts, and structured content that is
// encoded already. Ok is false if there is something else in it.
func (s *Server) encodeTexts(c *directCall, r *mcp.CallToolResult) (b []byte, ok bool) {
	value, isText := r.StructuredContent.(json.RawMessage)
	if r.InputRequests != nil || r.RequestState != "" || r.StructuredContent != nil && !isText || !json.Valid(value) && value != nil {
		return nil, false
	}
	size := len(value) + len(s.info)
	for _, content := range r.Content {
		text, ok := content.(*mcp.TextContent)
		if !ok || text.Meta != nil || text.Annotations != nil {
			return nil, false
		}
		size += len(text.Text) + len(text.Text)/8 + 32
	}
	b = append(beginResponse(c.id, "result", size+128), '{')
	if c.stateless || len(r.Meta) > 0 {
		if b, ok = s.appendMeta(b, r.Meta, c.stateless); !ok {
			return nil, false
		}
		b = append(b, ',')
	}
	b = append(b, `"content":[`...)
	for i, content := range r.Content {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"type":"text","text":`...)
		b = append(ferrule.AppendString(b, content.(*mcp.TextContent).Text), '}')
	}
	b = append(b, ']')
	if value != nil {
		b = append(append(b, `,"structuredContent":`...), value...)
	}
	if r.IsError {
		b = append(b, `,"isError":true`...)
	}
	if c.stateless {
		b = append(b, `,"resultType":"complete"`...)
	}
	return append(b, "}}"...), true
}

// appendMeta appends the _meta of a result, with this server if the version has that.
func (s *Server) appendMeta(b []byte, meta mcp.Meta, server bool) ([]byte, bool) {
	b = append(b, `"_meta":{`...)
	if server {
		b = append(b, `"`+mcp.MetaKeyServerInfo+`":`...)
		b = append(b, s.info...)
	}
	for _, name := range slices.Sorted(maps.Keys(meta)) {
		text, err := json.Marshal(meta[name])
		if err != nil || name == mcp.MetaKeyServerInfo {
			return nil, false
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(append(ferrule.AppendString(b, name), ':'), text...)
	}
	return append(b, '}'), true
}

// serveDirect answers a POST of a version without sessions. It returns false if the SDK is
// to answer it.
func (s *Server) serveDirect(w http.ResponseWriter, r *http.Request, body []byte) bool {
	h := r.Header
	accepts, method := h["Accept"], h.Get(mcphttp.MethodHeader)
	if h.Get(mcphttp.VersionHeader) != mcphttp.StatelessVersion || method != callMethod && method != listenMethod ||
		h.Get("Content-Type") != "application/json" || len(accepts) != 1 || !bothKinds(accepts[0]) ||
		h["Last-Event-Id"] != nil || h[mcphttp.SessionHeader] != nil {
		return false
	}
	if method == listenMethod {
		return s.serveListen(w, r, body)
	}
	c := s.direct(body)
	if c == nil || !c.stateless || h.Get(nameHeader) != c.params.Name {
		return false
	}
	v := s.viewAt(r.PathValue("device"))
	if v == nil {
		return false
	}
	response, code := v.answerDirect(r.Context(), c, nil, &mcp.RequestExtra{TokenInfo: auth.TokenInfoFromContext(r.Context()), Header: h})
	writeDirect(w, response, code)
	return true
}

// writeDirect writes a response, with the status that the SDK has for the code of an error.
func writeDirect(w http.ResponseWriter, response []byte, code int64) {
	w.Header()["Content-Type"] = []string{"application/json"}
	w.Header()["Cache-Control"] = []string{"no-cache, no-transform"}
	w.Header()["Content-Length"] = []string{strconv.Itoa(len(response))}
	switch code {
	case jsonrpc.CodeInvalidParams, mcp.CodeMissingRequiredClientCapabilities:
		w.WriteHeader(http.StatusBadRequest)
	case jsonrpc.CodeMethodNotFound:
		w.WriteHeader(http.StatusNotFound)
	}
	w.Write(response) // if it fails, the client is gone
}

// bothKinds reports whether an Accept header plainly has both types of a response.
func bothKinds(accept string) bool {
	accept = strings.ReplaceAll(accept, " ", "")
	return accept == "application/json,text/event-stream" || accept == "text/event-stream,application/json"
}

// serveDirect answers a line. It returns false if the SDK is to answer it.
func (l *lines) serveDirect(ctx context.Context, v *view, session *mcp.ServerSession, line []byte) bool {
	switch {
	case bytes.Contains(line, []byte(callMethod)) && mcphttp.OneMeaning(line):
		c := v.server.direct(line)
		if c != nil {
			l.begin(ctx, v, session, c)
		}
		return c != nil
	case bytes.Contains(line, []byte(cancelMethod)):
		return l.cancelDirect(line)
	}
	return false
}

const cancelMethod = "notifications/cancelled"

// begin makes a call. A second request with the ID of one under way is dropped, as the SDK
// does: a client may have sent the same one twice.
func (l *lines) begin(ctx context.Context, v *view, session *mcp.ServerSession, c *directCall) {
	ctx, cancel := context.WithCancelCause(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running == nil {
		l.running = make(map[string]context.CancelCauseFunc)
	}
	if l.running[string(c.id)] != nil {
		cancel(nil)
		return
	}
	l.running[string(c.id)] = cancel
	l.calls.Add(1)
	l.workers.run(func() {
		defer l.calls.Done()
		defer cancel(nil)
		response, _ := v.answerDirect(ctx, c, session, nil)
		l.mu.Lock()
		delete(l.running, string(c.id)) // before the client can use the ID again
		l.mu.Unlock()
		if err := l.send(response); err != nil { // the client is gone
			l.endCalls(err)
		}
	})
}

// endCalls cancels the calls that are under way.
func (l *lines) endCalls(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, cancel := range l.running {
		cancel(why)
	}
}

// cancelDirect cancels a call. It returns false if it is not one of this file.
func (l *lines) cancelDirect(line []byte) bool {
	var cancelled struct {
		Method string `json:"method"`
		Params struct {
			RequestID json.RawMessage `json:"requestId"`
		} `json:"params"`
	}
	if !mcphttp.OneMeaning(line) || json.Unmarshal(line, &cancelled) != nil || cancelled.Method != cancelMethod {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	cancel := l.running[string(cancelled.Params.RequestID)]
	if cancel != nil {
		cancel(nil)
	}
	return cancel != nil
}
