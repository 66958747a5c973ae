package server

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// The gateway's own resources, by URI. A reading is a read-only tool without required
// arguments.
const (
	scheme        = "ferrule://"
	devicesURI    = scheme + "devices"
	deviceURI     = scheme + "devices/{device}"
	stateTemplate = scheme + "devices/{device}/state"
	pinURI        = scheme + "devices/{device}/pins/{pin}"
	readingURI    = scheme + "devices/{device}/readings/{reading}"
	resourceURI   = scheme + "devices/{device}/resources/{+uri}"
	jsonType      = "application/json"
	listedDevices = 50   // others are found by the template
	listedItems   = 1000 // resources and prompts of all devices together
)

// ownTemplates are the templates of the gateway's own resources.
var ownTemplates = []*mcp.ResourceTemplate{
	{Name: "device", URITemplate: deviceURI, MIMEType: jsonType, Description: "A device: model, state, tools, pins and readings."},
	{Name: "state", URITemplate: stateTemplate, MIMEType: jsonType, Description: "The state of a device and its last event. It can be subscribed to."},
	{Name: "pin", URITemplate: pinURI, MIMEType: jsonType, Description: "The description of a pin of a device. The pin is not read."},
	{Name: "reading", URITemplate: readingURI, MIMEType: jsonType, Description: "A value that is read from a device now."},
}

// anyTemplate is the template of all resources of devices, listed or not.
var anyTemplate = &mcp.ResourceTemplate{Name: "resource", URITemplate: resourceURI, Description: "A resource of a device, by the device's own URI."}

// listTemplates answers resources/templates/list.
func (v *view) listTemplates(ctx context.Context, req *mcp.ListResourceTemplatesRequest) (*mcp.ListResourceTemplatesResult, error) {
	var cursor string
	if req.Params != nil {
		cursor = req.Params.Cursor
	}
	page, next, err := paged(v.templates(v.seenBy(ctx)), func(r *mcp.ResourceTemplate) string { return r.URITemplate }, cursor, pageBytes(ctx))
	if err != nil {
		return nil, err
	}
	return &mcp.ListResourceTemplatesResult{ResourceTemplates: page, NextCursor: next, Cacheable: uncached}, nil
}

// templates returns the templates of the gateway and of the first devices, sorted by URI.
func (v *view) templates(see catalog.View) []*mcp.ResourceTemplate {
	all := slices.Clone(ownTemplates)
	if v.server.measures() {
		all = append(all, signalTemplate)
	}
	if v.watches() {
		all = append(all, watchTemplate)
	}
	if v.device == "" {
		all = append(all, anyTemplate)
	}
	v.eachResource(see, func(device string, r *ferrule.Resource) {
		if r.Template && validTemplate(r.URI) {
			all = append(all, v.mcpTemplate(device, r))
		}
	})
	slices.SortStableFunc(all, func(a, b *mcp.ResourceTemplate) int { return strings.Compare(a.URITemplate, b.URITemplate) })
	return slices.CompactFunc(all, func(a, b *mcp.ResourceTemplate) bool { return a.URITemplate == b.URITemplate })
}

// eachResource calls fn for each listed resource of the first devices.
func (v *view) eachResource(see catalog.View, fn func(device string, r *ferrule.Resource)) {
	left := listedItems
	if v.device != "" {
		left = ferrule.MaxItems
	}
	for _, dev := range v.devices(see) {
		_, manifest, ok := v.server.parts.Catalog.Lookup(dev.ID)
		if !ok || manifest == nil || !v.server.parts.Catalog.Listed(dev.ID) || !manifest.Supports(ferrule.ReadResource) {
			continue
		}
		for i := range manifest.Resources {
			r := &manifest.Resources[i]
			if left--; left < 0 {
				return
			}
			if see.Shows(dev.ID, ferrule.ReadResource, r.URI) {
				fn(dev.ID, r)
			}
		}
	}
}

// listResources answers resources/list.
func (v *view) listResources(ctx context.Context, req *mcp.ListResourcesRequest) (*mcp.ListResourcesResult, error) {
	var cursor string
	if req.Params != nil {
		cursor = req.Params.Cursor
	}
	var listed []string
	see := v.seenBy(ctx)
	for _, dev := range v.devices(see) {
		listed = append(listed, dev.ID)
	}
	v.server.updateSignals(ctx, listed...)
	page, next, err := paged(v.listedResources(ctx, see), func(r *mcp.Resource) string { return r.URI }, cursor, pageBytes(ctx))
	if err != nil {
		return nil, err
	}
	return &mcp.ListResourcesResult{Resources: page, NextCursor: next, Cacheable: uncached}, nil
}

// listedResources returns the resources in the list, sorted by URI: those of skills, too, in
// versions that have skills.
func (v *view) listedResources(ctx context.Context, see catalog.View) []*mcp.Resource {
	all := v.resources(see)
	if hasSkills(ctx) == nil {
		all = append(all, v.skillResources(see)...)
	}
	slices.SortStableFunc(all, func(a, b *mcp.Resource) int { return strings.Compare(a.URI, b.URI) })
	return all
}

// resources returns the resources of the first devices, with their signals, sorted by
// URI.
func (v *view) resources(see catalog.View) []*mcp.Resource {
	all := v.panelResources()
	signals := v.listedSignals(see)
	if v.device == "" {
		all = append(all, &mcp.Resource{Name: "devices", URI: devicesURI, MIMEType: jsonType, Description: "The first " + strconv.Itoa(listedDevices) + " devices."})
	}
	for _, dev := range v.devices(see) {
		at := devicesURI + "/" + dev.ID
		all = append(all, &mcp.Resource{Name: dev.ID, URI: at, MIMEType: jsonType, Description: dev.ID + ": model, state, tools, pins and readings."})
		all = append(all, &mcp.Resource{Name: dev.ID + " state", URI: stateURI(dev.ID), MIMEType: jsonType, Description: "The state of " + dev.ID + " and its last event."})
		for _, r := range readings(see, dev.ID) {
			all = append(all, &mcp.Resource{Name: dev.ID + " " + r.Name, URI: at + "/readings/" + url.PathEscape(r.Name), MIMEType: jsonType, Description: r.Text})
		}
		for _, name := range signals[dev.ID] {
			all = append(all, &mcp.Resource{Name: dev.ID + " " + name, URI: signalURI(dev.ID, name), MIMEType: jsonType, Description: "The latest value of " + name + " of " + dev.ID + "."})
		}
	}
	v.eachResource(see, func(device string, r *ferrule.Resource) {
		if !r.Template {
			all = append(all, v.mcpResource(device, r))
		}
	})
	slices.SortStableFunc(all, func(a, b *mcp.Resource) int { return strings.Compare(a.URI, b.URI) })
	return slices.CompactFunc(all, func(a, b *mcp.Resource) bool { return a.URI == b.URI })
}

// devices returns the devices in the lists of this view.
func (v *view) devices(see catalog.View) []*ferrule.Device {
	if v.device == "" {
		return see.Devices(listedDevices)
	}
	if dev, _, ok := see.Lookup(v.device); ok {
		return []*ferrule.Device{dev}
	}
	return nil
}

// readings returns the read-only tools of a device that need no arguments.
func readings(see catalog.View, id string) []*ferrule.Tool {
	var found []*ferrule.Tool
	for _, o := range see.Of(id) {
		var input struct {
			Required []string `json:"required"`
		}
		if o.Tool.Effect == ferrule.Reads && json.Unmarshal(o.Input, &input) == nil && len(input.Required) == 0 {
			found = append(found, o.Tool)
		}
	}
	return found
}

// readResource answers resources/read.
func (v *view) readResource(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := req.Params.URI
	if device, own, ok := v.located(uri); ok {
		return v.readDevice(ctx, req, uri, device, own)
	}
	out := readResults.of(req.ProtocolVersion() >= mcphttp.StatelessVersion)
	if p := v.panel(uri); p != nil {
		out.Contents = []*mcp.ResourceContents{{URI: uri, MIMEType: uiType, Text: p.HTML, Meta: panelMeta}}
		out.Cacheable = uncached
		return &out, nil
	}
	if text, ok := v.skillText(v.server.seenBy(ctx), uri); ok {
		out.Contents = []*mcp.ResourceContents{{URI: uri, MIMEType: markdownType, Text: text}}
		out.Cacheable = uncached
		return &out, nil
	}
	value, err := v.read(ctx, uri)
	if err != nil {
		return nil, err
	}
	out.Contents = []*mcp.ResourceContents{{URI: uri, MIMEType: jsonType, Text: string(plain(value))}}
	out.Cacheable = uncached
	return &out, nil
}

// readDevice reads a resource of a device.
func (v *view) readDevice(ctx context.Context, req *mcp.ReadResourceRequest, uri, device, own string) (*mcp.ReadResourceResult, error) {
	if !v.mayRead(device, ferrule.ReadResource) || own == "" || ferrule.Clean(own, ferrule.MaxURI) != own {
		return nil, noResource(uri)
	}
	call := &ferrule.Call{Principal: caller(ctx), Device: device, Operation: ferrule.ReadResource, Tool: own}
	result, open, err := v.call(ctx, req, req.Params.RequestState, req.Params.InputResponses, call, nil)
	if err != nil {
		return nil, v.readError(uri, err)
	}
	if open != nil {
		out := readResults.inputRequired
		out.InputRequests, out.RequestState, out.Cacheable = open.requests, open.state, uncached
		return &out, nil
	}
	out := readResults.of(req.ProtocolVersion() >= mcphttp.StatelessVersion)
	out.Contents, out.Cacheable = []*mcp.ResourceContents{}, uncached
	if err := v.checkView(device, own, result); err != nil {
		return nil, v.readError(uri, err)
	}
	for _, c := range result.Content {
		at := uri
		if c.URI != "" && c.URI != own {
			at = v.scopedURI(device, c.URI)
		}
		out.Contents = append(out.Contents, &mcp.ResourceContents{URI: at, MIMEType: c.MIME, Text: c.Text, Blob: c.Data, Meta: v.documentMeta(device, own, c)})
	}
	if result.Content == nil && len(result.Value) > 0 {
		out.Contents = append(out.Contents, &mcp.ResourceContents{URI: uri, MIMEType: jsonType, Text: string(plain(result.Value))})
	}
	return &out, nil
}

// can reports whether a device that agents may know supports an operation. Whether the
// caller may use it is decided by the pipeline.
func (v *view) can(device string, operation ferrule.Operation) bool {
	_, manifest, ok := v.server.parts.Catalog.Lookup(device)
	return ok && manifest != nil && manifest.Supports(operation)
}

// mayRead is can for an operation on a resource. The pipeline has the better error for a
// device that the catalog does not have: the policy may hide it.
func (v *view) mayRead(device string, operation ferrule.Operation) bool {
	_, known := v.server.device(device)
	return !known || v.can(device, operation)
}

// readError converts the error of reading a resource.
func (v *view) readError(uri string, err error) error {
	if ferrule.AsError(err).Code == ferrule.NotFound {
		return noResource(uri)
	}
	return v.callError(err)
}

// callError converts the error of a call to that of a request, for methods whose
// results cannot be errors.
func (v *view) callError(err error) error {
	if err == errState {
		return err
	}
	e := v.advised(ferrule.AsError(err))
	if needsCapability(e) {
		return missingCapability(e)
	}
	return requestError(e)
}

// read reads one of the gateway's own resources.
func (v *view) read(ctx context.Context, uri string) (json.RawMessage, error) {
	if id, ok := v.watchIn(uri); ok {
		return v.readTool(ctx, uri, ferrule.GatewayID, listWatchesTool, map[string]any{"watch": id})
	}
	path, ok := strings.CutPrefix(uri, devicesURI)
	if !ok {
		return nil, noResource(uri)
	}
	if path == "" && v.device == "" {
		return v.readTool(ctx, uri, ferrule.GatewayID, "find_devices", map[string]any{"limit": listedDevices})
	}
	steps := strings.Split(path, "/")[1:]
	for i := range steps {
		var err error
		if steps[i], err = url.PathUnescape(steps[i]); err != nil {
			return nil, noResource(uri)
		}
	}
	if len(steps) == 0 || v.device != "" && steps[0] != v.device {
		return nil, noResource(uri)
	}
	switch {
	case len(steps) == 1:
		return v.readTool(ctx, uri, ferrule.GatewayID, "describe_device", map[string]any{"device": steps[0]})
	case len(steps) == 2 && steps[1] == "state":
		return v.readTool(ctx, uri, ferrule.GatewayID, "device_state", map[string]any{"device": steps[0]})
	case len(steps) == 3 && steps[1] == "pins":
		return v.readPin(v.server.seenBy(ctx), uri, steps[0], steps[2])
	case len(steps) == 3 && steps[1] == "readings":
		if !slices.ContainsFunc(readings(v.server.parts.Catalog.All(), steps[0]), func(t *ferrule.Tool) bool { return t.Name == steps[2] }) {
			return nil, noResource(uri)
		}
		return v.readTool(ctx, uri, steps[0], steps[2], map[string]any{})
	case len(steps) == 3 && steps[1] == "signals":
		return v.readSignal(ctx, uri, steps[0], steps[2])
	}
	return nil, noResource(uri)
}

// readTool reads a resource by calling a tool.
func (v *view) readTool(ctx context.Context, uri, device, tool string, args map[string]any) (json.RawMessage, error) {
	text, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	result, err := v.server.handle(ctx, &ferrule.Call{Principal: caller(ctx), Device: device, Tool: tool, Args: text})
	if err == nil {
		return result.Value, nil
	}
	return nil, v.readError(uri, err)
}

// readPin returns the description of a pin.
func (v *view) readPin(see catalog.View, uri, id, number string) (json.RawMessage, error) {
	_, manifest, ok := see.Lookup(id)
	if !ok || manifest == nil {
		return nil, noResource(uri)
	}
	for _, p := range manifest.Pins {
		if strconv.Itoa(p.Number) == number {
			return json.Marshal(p)
		}
	}
	return nil, noResource(uri)
}
