package server

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// view is what an agent sees at one address: the whole fleet, or one device.
type view struct {
	front  *Server
	device string // empty for the whole fleet
	server *mcp.Server
	sdk    mcp.MethodHandler // how the server serves a request by itself
	send   mcp.MethodHandler // how it sends something

	subscriptions *subscriptions
	listens       listens

	mu     sync.Mutex
	used   time.Time
	offers []ferrule.Offer // what tools was made of
	tools  []*mcp.Tool

	// What agents have last been told of.
	toldTools     []ferrule.Offer
	toldResources []*mcp.Resource
	toldTemplates []*mcp.ResourceTemplate
	toldPrompts   []*mcp.Prompt
}

// viewAt returns the view of a device, or of the whole fleet. It makes one if
// somebody looks for the first time, and returns nil if there is nothing to see.
func (f *Server) viewAt(device string) *view {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.views[device]
	if v == nil {
		if _, _, ok := f.parts.Catalog.Lookup(device); !ok && device != "" {
			return nil
		}
		v = f.newView(device)
		f.views[device] = v
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.used = time.Now()
	return v
}

func (f *Server) newView(device string) *view {
	v := &view{front: f, device: device, listens: listens{all: make(map[*listen]bool)}}
	v.subscriptions = newSubscriptions(v.updated, v.glance, f.over)
	name := &mcp.Implementation{Name: "ferrule", Title: "Ferrule", Version: f.parts.Version, WebsiteURL: "https://github.com/ferrulehq/ferrule"}
	v.server = mcp.NewServer(name, &mcp.ServerOptions{
		Logger: f.sdkLog,
		Capabilities: &mcp.ServerCapabilities{
			Tools:       &mcp.ToolCapabilities{ListChanged: true},
			Resources:   &mcp.ResourceCapabilities{ListChanged: true, Subscribe: true},
			Completions: &mcp.CompletionCapabilities{},
			Prompts:     &mcp.PromptCapabilities{ListChanged: true},
			//lint:ignore SA1019 agents of the older era know nothing else
			Logging: &mcp.LoggingCapabilities{},
		},
		SubscribeHandler: v.subscribe, UnsubscribeHandler: v.unsubscribe,
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { *c = fresh },
	})
	v.server.AddReceivingMiddleware(v.receive)
	v.server.AddSendingMiddleware(f.teller.to(v.subscriptions.has), v.begun)
	v.registerTool()
	v.registerResource()
	v.registerPrompt()
	v.toldTools, v.toldResources, v.toldTemplates, v.toldPrompts = v.list(), v.resources(), v.templates(), v.prompts()
	return v
}

// What the SDK knows of: one tool, one resource and one prompt, which stand for all
// and are in no list.
const (
	anyTool     = "any"
	anyResource = scheme + "any"
)

// registerTool tells the SDK of its one tool. To tell it again has it tell agents
// of the older era that the list has changed.
func (v *view) registerTool() {
	v.server.AddTool(&mcp.Tool{Name: anyTool, InputSchema: emptySchema}, v.callTool)
	v.changed(toolsChanged)
}

// registerResource does the same for the one resource.
func (v *view) registerResource() {
	v.server.AddResource(&mcp.Resource{Name: anyTool, URI: anyResource}, v.readResource)
	v.changed(resourcesChanged)
}

// registerPrompt does the same for the one prompt.
func (v *view) registerPrompt() {
	v.server.AddPrompt(&mcp.Prompt{Name: anyTool}, v.getPrompt)
	v.changed(promptsChanged)
}

// fresh is said of every answer that could be kept: it may be another one next
// time, and it is for who asked.
var fresh = mcp.Cacheable{CacheScope: "private"}

// allViews are the views of now.
func (f *Server) allViews() []*view {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*view, 0, len(f.views))
	for _, v := range f.views {
		all = append(all, v)
	}
	return all
}

// list is what stands in the list of this view.
func (v *view) list() []ferrule.Offer {
	if v.device != "" {
		return v.front.parts.Catalog.Of(v.device)
	}
	list, _ := v.front.parts.Catalog.List()
	return list
}

// tell tells the agents here of what has changed since they were last told.
func (v *view) tell() {
	tools, resources, templates, prompts := v.list(), v.resources(), v.templates(), v.prompts()
	v.mu.Lock()
	sameTools := slices.EqualFunc(tools, v.toldTools, sameOffer)
	sameResources := reflect.DeepEqual(resources, v.toldResources) && reflect.DeepEqual(templates, v.toldTemplates)
	samePrompts := reflect.DeepEqual(prompts, v.toldPrompts)
	v.toldTools, v.toldResources, v.toldTemplates, v.toldPrompts = tools, resources, templates, prompts
	v.mu.Unlock()
	if !sameTools {
		v.registerTool()
	}
	if !sameResources {
		v.registerResource()
	}
	if !samePrompts {
		v.registerPrompt()
	}
	v.subscriptions.compare()
}

// updated tells the agents who have subscribed to a resource that it is another.
func (v *view) updated(uri string) {
	defer survive(v.front.parts.Log)
	v.server.ResourceUpdated(context.Background(), &mcp.ResourceUpdatedNotificationParams{URI: uri})
}

// glance is what is to be seen of a device here now.
func (v *view) glance(device string) glance {
	dev, _, ok := v.front.parts.Catalog.Lookup(device)
	if !ok {
		return glance{}
	}
	return glance{true, dev.State, dev.Since.UnixNano()}
}

// sameOffer tells whether an agent would see no difference.
func sameOffer(a, b ferrule.Offer) bool {
	return a.Name == b.Name && a.Text == b.Text && bytes.Equal(a.Input, b.Input) && bytes.Equal(a.Tool.Output, b.Tool.Output) &&
		a.Tool.Effect == b.Tool.Effect && a.Tool.Idempotent == b.Tool.Idempotent &&
		a.Tool.Title == b.Tool.Title && reflect.DeepEqual(a.Tool.Icons, b.Tool.Icons)
}

// meantKey is the context key of what a request really names.
type meantKey struct{}

// receive answers what agents ask for in lists, and has the SDK send every call to
// callTool, every read to readResource and every prompt to getPrompt. What it does
// not know is left to the SDK.
func (v *view) receive(next mcp.MethodHandler) mcp.MethodHandler {
	v.sdk = next
	return func(ctx context.Context, method string, req mcp.Request) (result mcp.Result, err error) {
		defer func() {
			if r := recover(); r != nil {
				v.front.parts.Log.Error("a request of an agent panicked\n"+string(debug.Stack()), "err", r, "method", method)
				result, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("the gateway failed at this request: %v", r)}
			}
		}()
		defer v.front.sessions.use(req.GetSession().ID())() // its connection may end before it does
		switch req := req.(type) {
		case *mcp.ServerRequest[*mcp.InitializeParams]:
			if req.Params.ProtocolVersion >= modernVersion {
				req.Params.ProtocolVersion = legacyVersion // which is what the SDK agrees on, and then forgets
			}
		case *mcp.ListToolsRequest:
			if ready := v.front.parts.Ready; ready != nil {
				ready(ctx)
			}
			return v.listTools(ctx, req)
		case *mcp.CallToolRequest:
			ctx = context.WithValue(withParent(ctx, req.Params.Meta, req.Extra), meantKey{}, req.Params.Name)
			req.Params.Name = anyTool
		case *mcp.ReadResourceRequest:
			ctx = context.WithValue(withParent(ctx, req.Params.Meta, req.Extra), meantKey{}, req.Params.URI)
			req.Params.URI = anyResource
		case *mcp.GetPromptRequest:
			ctx = context.WithValue(withParent(ctx, req.Params.Meta, req.Extra), meantKey{}, req.Params.Name)
			req.Params.Name = anyTool
		case *mcp.SubscriptionsListenRequest:
			if wanted := req.Params.Notifications; wanted != nil {
				wanted.ResourceSubscriptions = v.agreed(ctx, req.Session, wanted.ResourceSubscriptions)
				defer v.forget(req.Session, wanted.ResourceSubscriptions)
			}
			return v.listening(ctx, req, func(ctx context.Context) (mcp.Result, error) { return next(ctx, method, req) })
		case *mcp.ListResourcesRequest:
			return v.listResources(ctx, req)
		case *mcp.ListResourceTemplatesRequest:
			return v.listTemplates(ctx, req)
		case *mcp.ListPromptsRequest:
			return v.listPrompts(ctx, req)
		case *mcp.CompleteRequest:
			return v.complete(withParent(ctx, req.Params.Meta, req.Extra), req)
		}
		result, err = next(ctx, method, req)
		if asked, ok := req.(*mcp.SubscribeRequest); ok && err == nil {
			v.subscriptions.begun(asked.Session, []string{asked.Params.URI})
			if !v.subscriptions.has(asked.Session, asked.Params.URI) { // it has ended meanwhile
				v.dropped(asked.Session, asked.Params.URI)
			}
		}
		switch result := result.(type) {
		case *mcp.InitializeResult:
			result.Instructions = v.instructions()
			v.begins(ctx, req, result.ProtocolVersion)
		case *mcp.DiscoverResult:
			result.Instructions = v.instructions()
			v.begins(ctx, req, "")
		}
		return result, err
	}
}

// begins logs which program begins here, as it calls itself, and which version of
// the protocol it speaks: what was agreed on, else what the request is in.
func (v *view) begins(ctx context.Context, req mcp.Request, agreed string) {
	log := v.front.parts.Log
	asked, ok := req.(interface {
		ClientInfo() *mcp.Implementation
		ProtocolVersion() string
	})
	if !ok || !log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	program := "an agent"
	if info := asked.ClientInfo(); info != nil {
		program = info.Name + " " + info.Version
	}
	log.Debug(fmt.Sprintf("agent: %s speaks MCP %s", program, cmp.Or(agreed, asked.ProtocolVersion())))
}
