package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// receive is a receiving middleware. It answers the requests that concern devices, and
// leaves the rest to the SDK.
func (v *view) receive(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (result mcp.Result, err error) {
		defer v.recoverRequest(method, &result, &err)
		ctx = v.begin(ctx, req)
		switch req := req.(type) {
		case *mcp.CallToolRequest:
			return v.callTool(withParent(ctx, req.Params.Meta, req.Extra), req)
		case *taskRequest:
			return v.receiveTask(ctx, method, req)
		case *mcp.ListToolsRequest:
			return v.withTaskSupport(ctx, req)
		case *mcp.ReadResourceRequest:
			return answer(v.readResource(withParent(ctx, req.Params.Meta, req.Extra), req))
		case *mcp.ListResourcesRequest:
			return answer(v.listResources(ctx, req))
		case *mcp.ListResourceTemplatesRequest:
			return answer(v.listTemplates(ctx, req))
		case *mcp.SubscribeRequest:
			if err := v.subscribe(ctx, req); err != nil {
				return nil, err
			}
			return emptyResult{}, nil
		case *mcp.UnsubscribeRequest:
			v.group.Unsubscribe(req.Session, req.Params.URI)
			return emptyResult{}, nil
		case *mcp.SubscriptionsListenRequest:
			return v.listen(ctx, req, func(ctx context.Context) (mcp.Result, error) { return next(ctx, method, req) })
		case *mcp.GetPromptRequest:
			return answer(v.getPrompt(withParent(ctx, req.Params.Meta, req.Extra), req))
		case *mcp.ListPromptsRequest:
			return answer(v.listPrompts(ctx, req))
		case *mcp.CompleteRequest:
			return answer(v.complete(withParent(ctx, req.Params.Meta, req.Extra), req))
		case *mcp.ServerRequest[*mcp.InitializeParams]:
			if req.Params.ProtocolVersion >= mcphttp.StatelessVersion {
				req.Params.ProtocolVersion = mcphttp.SessionVersion // the SDK agrees on it, but does not remember
			}
			if first := req.Session.InitializeParams(); first != nil {
				return withOldTasks(v.speaksOldTasks(req), first, v.initializedAgain(ctx, first)), nil
			}
		}
		result, err = next(ctx, method, req)
		switch result := result.(type) {
		case *mcp.InitializeResult:
			result.Capabilities = withoutTasks(result.Capabilities)
			ctx = context.WithValue(ctx, clientKey{}, clientOf(req)) // the session knows its client now
			v.heard(ctx, req)
			see := v.server.seenBy(ctx)
			result.Instructions, result.ServerInfo = v.instructions(see), v.serverInfo(see)
			result.Capabilities = withoutSkills(result.Capabilities)
			v.logClient(ctx, req, result.ProtocolVersion)
			if req, ok := req.(*mcp.ServerRequest[*mcp.InitializeParams]); ok {
				return withOldTasks(v.server.parts.Tasks != nil, req.Params, result), err
			}
		case *mcp.DiscoverResult:
			see := v.server.seenBy(ctx)
			result.Instructions = v.instructions(see)
			if result.Meta == nil {
				result.Meta = mcp.Meta{}
			}
			result.Meta[mcp.MetaKeyServerInfo] = v.serverInfo(see)
			v.logClient(ctx, req, "")
		}
		return result, err
	}
}

// begin returns the context of a request, with who makes it. It waits until the answer can be
// complete.
func (v *view) begin(ctx context.Context, req mcp.Request) context.Context {
	withParams(req)
	ctx = ofToken(ctx, req)
	ctx = context.WithValue(context.WithValue(ctx, clientKey{}, clientOf(req)), httpSessionKey{}, req.GetSession())
	if _, opens := req.(*mcp.ServerRequest[*mcp.InitializeParams]); !opens {
		v.heard(ctx, req)
	}
	if ready := v.server.parts.Ready; ready != nil && looks(req) {
		ready(ctx, client(ctx))
	}
	return ctx
}

// recoverRequest makes an error of a panic.
func (v *view) recoverRequest(method string, result *mcp.Result, err *error) {
	if r := recover(); r != nil {
		v.server.parts.Log.Error("request panicked\n"+string(debug.Stack()), "err", r, "method", method)
		*result, *err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("the gateway failed at this request: %v", r)}
	}
}

// withParams adds parameters to a request without any. The SDK does so for its own methods, and
// fails to read the _meta of those of others.
func withParams(req mcp.Request) {
	switch req := req.(type) {
	case *taskRequest:
		if req.Params == nil {
			req.Params = new(taskParams)
		}
	case *mcp.ServerRequest[*listSkillsParams]:
		if req.Params == nil {
			req.Params = new(listSkillsParams)
		}
	case *mcp.ServerRequest[*skillParams]:
		if req.Params == nil {
			req.Params = new(skillParams)
		}
	}
}

// initializedAgain answers an initialize in a session that has begun. The SDK takes it for an
// error, but some clients send it to ask what the server can do, such as Home Assistant.
func (v *view) initializedAgain(ctx context.Context, first *mcp.InitializeParams) *mcp.InitializeResult {
	see := v.server.seenBy(ctx)
	return &mcp.InitializeResult{
		ProtocolVersion: mcphttp.Agreed(first.ProtocolVersion), Capabilities: withoutSkills(withoutTasks(v.capabilities)), Instructions: v.instructions(see), ServerInfo: v.serverInfo(see),
	}
}

// ofToken returns the context of the principal whose token came with a request. In a session,
// the context is that of its first request, whose token may have had other scopes.
func ofToken(ctx context.Context, req mcp.Request) context.Context {
	if extra := req.GetExtra(); extra != nil && extra.TokenInfo != nil {
		if who, ok := extra.TokenInfo.Extra[whoExtra].(ferrule.Principal); ok {
			return context.WithValue(ctx, callerKey{}, who)
		}
	}
	return ctx
}

// looks reports whether the answer to a request depends on what its caller sees.
func looks(req mcp.Request) bool {
	switch req.(type) {
	case *mcp.ListToolsRequest, *mcp.CallToolRequest, *mcp.ReadResourceRequest, *mcp.ListResourcesRequest, *mcp.ListResourceTemplatesRequest,
		*mcp.SubscribeRequest, *mcp.SubscriptionsListenRequest, *mcp.GetPromptRequest, *mcp.ListPromptsRequest, *mcp.CompleteRequest,
		*mcp.ServerRequest[*listSkillsParams], *mcp.ServerRequest[*skillParams]:
		return true
	}
	return false
}

// answer converts a typed result. A nil pointer becomes a nil interface.
func answer[R interface {
	comparable
	mcp.Result
}](result R, err error) (mcp.Result, error) {
	var none R
	if result == none {
		return nil, err
	}
	return result, err
}

// emptyResult is the result of methods that have none. The SDK does not export its own.
type emptyResult struct{ mcp.Result }

func (emptyResult) MarshalJSON() ([]byte, error) { return []byte("{}"), nil }
func (emptyResult) GetMeta() map[string]any      { return nil }
func (emptyResult) SetMeta(map[string]any)       {}

// clientKey is the context key of the program that makes the request.
type clientKey struct{}

// client returns the program that makes the request, as it describes itself.
func client(ctx context.Context) ferrule.Client {
	c, _ := ctx.Value(clientKey{}).(ferrule.Client)
	return c
}

// clientOf returns the program that makes a request: what the request says, or else what
// the request said that opened its session.
func clientOf(req mcp.Request) (c ferrule.Client) {
	client, ok := req.(interface {
		ClientInfo() *mcp.Implementation
		ProtocolVersion() string
	})
	if !ok {
		return c
	}
	if info := client.ClientInfo(); info != nil {
		c.Name, c.Version = info.Name, info.Version
	}
	c.Protocol = client.ProtocolVersion()
	return c.Bounded()
}

// logClient logs which program connects, and the protocol version: the one agreed on, or
// else the one of the request.
func (v *view) logClient(ctx context.Context, req mcp.Request, agreed string) {
	log := v.server.parts.Log
	if !log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	c := clientOf(req)
	log.Debug(fmt.Sprintf("agent: %s speaks MCP %s", cmp.Or(strings.TrimSpace(c.Name+" "+c.Version), "an agent"), cmp.Or(agreed, c.Protocol)))
}
