package agent

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule"
)

// The resources, by URI. A reading is what a tool answers that only looks and
// needs no arguments.
const (
	scheme        = "ferrule://"
	devicesURI    = scheme + "devices"
	deviceURI     = scheme + "devices/{device}"
	stateTemplate = scheme + "devices/{device}/state"
	pinURI        = scheme + "devices/{device}/pins/{pin}"
	readingURI    = scheme + "devices/{device}/readings/{reading}"
	jsonType      = "application/json"
	listedDevices = 50 // more are found by the template
)

// templates are the resources that there are many of.
var templates = []*mcp.ResourceTemplate{
	{Name: "device", URITemplate: deviceURI, MIMEType: jsonType, Description: "What a device is, its tools, pins and readings."},
	{Name: "state", URITemplate: stateTemplate, MIMEType: jsonType, Description: "Whether a device can be reached, and what it last told by itself. It can be subscribed to."},
	{Name: "pin", URITemplate: pinURI, MIMEType: jsonType, Description: "What a pin of a device is for. It is not read."},
	{Name: "reading", URITemplate: readingURI, MIMEType: jsonType, Description: "What a device measures, asked for now."},
}

// listTemplates answers resources/templates/list.
func (v *view) listTemplates() *mcp.ListResourceTemplatesResult {
	return &mcp.ListResourceTemplatesResult{ResourceTemplates: templates, Cacheable: fresh}
}

// listResources answers resources/list.
func (v *view) listResources(ctx context.Context, req *mcp.ListResourcesRequest) (*mcp.ListResourcesResult, error) {
	var cursor string
	if req.Params != nil {
		cursor = req.Params.Cursor
	}
	page, next, err := paged(v.resources(), func(r *mcp.Resource) string { return r.URI }, cursor, pageBytes(ctx))
	if err != nil {
		return nil, err
	}
	return &mcp.ListResourcesResult{Resources: page, NextCursor: next, Cacheable: fresh}, nil
}

// resources are the first devices, each with what it measures, by URI.
func (v *view) resources() []*mcp.Resource {
	var all []*mcp.Resource
	if v.device == "" {
		all = append(all, &mcp.Resource{Name: "devices", URI: devicesURI, MIMEType: jsonType, Description: "Which devices there are: the first " + strconv.Itoa(listedDevices) + "."})
	}
	for _, dev := range v.devices() {
		at := devicesURI + "/" + dev.ID
		all = append(all, &mcp.Resource{Name: dev.ID, URI: at, MIMEType: jsonType, Description: "What " + dev.ID + " is, its tools, pins and readings."})
		all = append(all, &mcp.Resource{Name: dev.ID + " state", URI: stateURI(dev.ID), MIMEType: jsonType, Description: "Whether " + dev.ID + " can be reached, and what it last told by itself."})
		for _, r := range v.readings(dev.ID) {
			all = append(all, &mcp.Resource{Name: dev.ID + " " + r.Name, URI: at + "/readings/" + url.PathEscape(r.Name), MIMEType: jsonType, Description: r.Text})
		}
	}
	slices.SortFunc(all, func(a, b *mcp.Resource) int { return strings.Compare(a.URI, b.URI) })
	return all
}

// devices are those that are listed here.
func (v *view) devices() []*ferrule.Device {
	if v.device == "" {
		return v.front.parts.Catalog.Devices("", listedDevices)
	}
	if dev, _, ok := v.front.parts.Catalog.Lookup(v.device); ok {
		return []*ferrule.Device{dev}
	}
	return nil
}

// readings are the tools of a device that only look and need no arguments.
func (v *view) readings(id string) []*ferrule.Tool {
	var found []*ferrule.Tool
	for _, o := range v.front.parts.Catalog.Of(id) {
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
func (v *view) readResource(ctx context.Context, _ *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri, _ := ctx.Value(meantKey{}).(string)
	value, err := v.read(ctx, uri)
	if err != nil {
		return nil, err
	}
	return &mcp.ReadResourceResult{
		Contents:  []*mcp.ResourceContents{{URI: uri, MIMEType: jsonType, Text: string(plain(value))}},
		Cacheable: fresh,
	}, nil
}

// read is what a URI stands for.
func (v *view) read(ctx context.Context, uri string) (json.RawMessage, error) {
	path, ok := strings.CutPrefix(uri, devicesURI)
	if !ok {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	if path == "" && v.device == "" {
		return v.ask(ctx, uri, ferrule.GatewayID, "find_devices", map[string]any{"limit": listedDevices})
	}
	steps := strings.Split(path, "/")[1:]
	for i := range steps {
		var err error
		if steps[i], err = url.PathUnescape(steps[i]); err != nil {
			return nil, mcp.ResourceNotFoundError(uri)
		}
	}
	if len(steps) == 0 || v.device != "" && steps[0] != v.device {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	switch {
	case len(steps) == 1:
		return v.ask(ctx, uri, ferrule.GatewayID, "describe_device", map[string]any{"device": steps[0]})
	case len(steps) == 2 && steps[1] == "state":
		return v.ask(ctx, uri, ferrule.GatewayID, "device_state", map[string]any{"device": steps[0]})
	case len(steps) == 3 && steps[1] == "pins":
		return v.readPin(uri, steps[0], steps[2])
	case len(steps) == 3 && steps[1] == "readings":
		if !slices.ContainsFunc(v.readings(steps[0]), func(t *ferrule.Tool) bool { return t.Name == steps[2] }) {
			return nil, mcp.ResourceNotFoundError(uri)
		}
		return v.ask(ctx, uri, steps[0], steps[2], map[string]any{})
	}
	return nil, mcp.ResourceNotFoundError(uri)
}

// ask reads by calling a tool, on the road.
func (v *view) ask(ctx context.Context, uri, device, tool string, args map[string]any) (json.RawMessage, error) {
	text, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	result, err := v.front.handle(ctx, &ferrule.Call{Principal: caller(ctx), Device: device, Tool: tool, Args: text})
	if err == nil {
		return result.Value, nil
	}
	e := ferrule.AsError(err)
	if e.Code == ferrule.NotFound {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	return nil, requestError(v.advised(e))
}

// readPin is what a pin is for.
func (v *view) readPin(uri, id, number string) (json.RawMessage, error) {
	_, manifest, ok := v.front.parts.Catalog.Lookup(id)
	if !ok || manifest == nil {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	for _, p := range manifest.Pins {
		if strconv.Itoa(p.Number) == number {
			return json.Marshal(p)
		}
	}
	return nil, mcp.ResourceNotFoundError(uri)
}
