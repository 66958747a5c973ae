package server

import (
	"bytes"
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/agent/notify"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// view is what agents see at one address: the whole fleet, or one device.
type view struct {
	server *Server
	device string // empty for the whole fleet
	sdk    *mcp.Server
	group  *notify.Group

	capabilities *mcp.ServerCapabilities

	mu     sync.Mutex
	used   time.Time
	offers []ferrule.Offer // tools was made of these
	tools  []*mcp.Tool
	basic  []*mcp.Tool // with basic schemas, of basicOf

	basicOf []*mcp.Tool

	// The lists that agents were last notified of: the whole ones, and those of callers
	// from whom something is hidden.
	last    lists
	lastFor map[ferrule.Principal]lists
	crowded bool // there was a caller that did not fit into lastFor
}

// lists is what agents can list.
type lists struct {
	tools     []ferrule.Offer
	resources []*mcp.Resource
	templates []*mcp.ResourceTemplate
	prompts   []*mcp.Prompt
	skills    []*mcp.Resource // only of the whole lists
}

// maxLastFor limits lastFor. If it is exceeded, all are notified of the next change, whatever
// it is, and lastFor is empty again: those who are still there list again.
const maxLastFor = 64

// viewAt returns the view of a device, or of the whole fleet. It makes the view at
// its first use, and returns nil if agents may not know the device.
func (s *Server) viewAt(device string) *view {
	s.mu.Lock()
	defer s.mu.Unlock()
	if device != "" {
		device = s.currentID(device)
	}
	v := s.views[device]
	if v == nil {
		if _, ok := s.device(device); !ok && device != "" {
			return nil
		}
		v = s.newView(device)
		s.views[device] = v
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.used = time.Now()
	return v
}

func (s *Server) newView(device string) *view {
	v := &view{server: s, device: device, lastFor: make(map[ferrule.Principal]lists)}
	v.capabilities = &mcp.ServerCapabilities{
		Tools:       &mcp.ToolCapabilities{ListChanged: true},
		Resources:   &mcp.ResourceCapabilities{ListChanged: true, Subscribe: true},
		Completions: &mcp.CompletionCapabilities{},
		Prompts:     &mcp.PromptCapabilities{ListChanged: true},
		//lint:ignore SA1019 versions up to 2025-11-25 have nothing else
		Logging: &mcp.LoggingCapabilities{},
	}
	v.capabilities.AddExtension(skillsExtension, map[string]any{"directoryRead": true})
	v.capabilities.AddExtension(uiExtension, map[string]any{"mimeTypes": []string{uiType}})
	if s.parts.Tasks != nil {
		v.capabilities.AddExtension(tasksExtension, nil)
	}
	v.sdk = mcp.NewServer(s.implementation(), &mcp.ServerOptions{
		Logger: s.sdkLog, Capabilities: v.capabilities,
		// The SDK calls these for subscriptions/listen; notify has subscribed by then.
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		SetCacheable:       func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { *c = uncached },
	})
	v.addTaskMethods()
	v.sdk.AddReceivingMiddleware(s.http.Track, v.receive)
	if err := v.addSkills(); err != nil { // a standard method has the name
		panic(err)
	}
	v.group = s.notifier.Attach(v.sdk)
	v.last = v.lists(s.parts.Catalog.All())
	return v
}

// implementation returns what agents are told about this program.
func (s *Server) implementation() *mcp.Implementation {
	return &mcp.Implementation{Name: "ferrule", Title: "Ferrule", Version: s.parts.Version, WebsiteURL: "https://github.com/ferrulehq/ferrule"}
}

// serverInfo returns what an agent is told when it connects. At the address of a device,
// it has the device's icons, as a client shows them for a server. The SDK repeats the
// rest with each result, for which icons are too large.
func (v *view) serverInfo(see catalog.View) *mcp.Implementation {
	info := v.server.implementation()
	if _, manifest, ok := see.Lookup(v.device); ok && v.device != "" && manifest != nil {
		info.Icons = icons(manifest.Icons)
	}
	return info
}

// uncached marks a result that may differ next time, and is for the caller only.
var uncached = mcp.Cacheable{CacheScope: "private"}

// allViews returns the current views.
func (s *Server) allViews() []*view {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*view, 0, len(s.views))
	for _, v := range s.views {
		all = append(all, v)
	}
	return all
}

// dropViews drops views of devices that are not in use, until ctx ends.
func (s *Server) dropViews(ctx context.Context) {
	interval := min(time.Minute, s.parts.Config.Idle/2)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.dropUnused(time.Now().Add(-interval))
		case <-ctx.Done():
			return
		}
	}
}

// dropUnused drops views of devices that were not used since a time and have no
// session.
func (s *Server) dropUnused(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for device, v := range s.views {
		v.mu.Lock()
		used := v.used.After(since)
		v.mu.Unlock()
		if device == "" || used {
			continue
		}
		open := v.group.Streams() > 0
		for range v.sdk.Sessions() {
			open = true
		}
		if !open {
			delete(s.views, device)
		}
	}
}

// list returns the tools in the list of this view.
func (v *view) list(see catalog.View) []ferrule.Offer {
	if v.device != "" {
		return see.Of(v.device)
	}
	list, _ := see.List()
	return list
}

// lists returns all lists of this view.
func (v *view) lists(see catalog.View) lists {
	all := lists{tools: v.list(see), resources: v.resources(see), templates: v.templates(see), prompts: v.prompts(see)}
	if !see.Restricted() { // otherwise this asks the policy about each tool of each Kind
		all.skills = v.skillResources(see)
	}
	return all
}

// seenBy returns the catalog as the caller of a request sees it, for a list. If something
// is hidden from the caller, its lists are remembered, to notice when they change.
func (v *view) seenBy(ctx context.Context) catalog.View {
	see := v.server.seenBy(ctx)
	if !see.Restricted() {
		return see
	}
	v.mu.Lock()
	_, known := v.lastFor[see.Caller()]
	full := !known && len(v.lastFor) >= maxLastFor
	v.crowded = v.crowded || full
	v.mu.Unlock()
	if known || full {
		return see
	}
	now := v.lists(see)
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.lastFor) < maxLastFor {
		v.lastFor[see.Caller()] = now
	} else {
		v.crowded = true
	}
	return see
}

// listsChanged notifies agents of the lists that differ from the last notification, for
// anybody. What changes for one caller only is told to all: listing again is harmless.
func (v *view) listsChanged() {
	all := v.server.parts.Catalog.All()
	differs := make(map[string]bool)
	v.mu.Lock()
	if v.crowded {
		differs = map[string]bool{notify.ToolsChanged: true, notify.ResourcesChanged: true, notify.PromptsChanged: true}
		clear(v.lastFor)
		v.crowded = false
	}
	callers := slices.Collect(maps.Keys(v.lastFor))
	v.mu.Unlock()
	now := v.lists(all)
	seen := make(map[ferrule.Principal]lists)
	for _, who := range callers {
		if see := v.server.parts.Catalog.As(who); see.Restricted() {
			seen[who] = v.lists(see)
		}
	}
	v.mu.Lock()
	v.last.compare(now, differs)
	v.last = now
	for _, who := range callers {
		lists, restricted := seen[who]
		if !restricted {
			lists = now
		}
		if before, ok := v.lastFor[who]; ok {
			before.compare(lists, differs)
			v.lastFor[who] = lists
		}
	}
	v.mu.Unlock()
	for method := range differs {
		v.group.ListChanged(method)
	}
}

// compare adds the notifications for the lists that differ.
func (l lists) compare(now lists, differs map[string]bool) {
	if !slices.EqualFunc(l.tools, now.tools, sameOffer) {
		differs[notify.ToolsChanged] = true
	}
	if !reflect.DeepEqual(l.resources, now.resources) || !reflect.DeepEqual(l.templates, now.templates) ||
		!reflect.DeepEqual(l.skills, now.skills) {
		differs[notify.ResourcesChanged] = true
	}
	if !reflect.DeepEqual(l.prompts, now.prompts) {
		differs[notify.PromptsChanged] = true
	}
}

// sameOffer reports whether two tools look the same to an agent.
func sameOffer(a, b ferrule.Offer) bool {
	return a.Name == b.Name && a.Text == b.Text && bytes.Equal(a.Input, b.Input) && bytes.Equal(a.Tool.Output, b.Tool.Output) &&
		a.Tool.Effect == b.Tool.Effect && a.Tool.Idempotent == b.Tool.Idempotent &&
		a.Tool.Title == b.Tool.Title && reflect.DeepEqual(a.Tool.Icons, b.Tool.Icons) && reflect.DeepEqual(a.Tool.View, b.Tool.View)
}
