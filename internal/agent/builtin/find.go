package builtin

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// CatalogFor returns the catalog as a caller sees it.
type CatalogFor func(who ferrule.Principal) Catalog

// Catalog searches devices and tools. Results are shared and read-only.
type Catalog interface {
	FindDevices(query string, limit int) (found []*ferrule.Device, total int)
	FindTools(query, device string, limit int) (found []ferrule.Offer, total int)
	// Offer returns the tool that agents call by that name.
	Offer(name string) (ferrule.Offer, error)
}

const (
	defaultFound = 20
	maxFound     = 100
)

func foundLimit(limit int) int {
	if limit <= 0 {
		return defaultFound
	}
	return min(limit, maxFound)
}

// FindDevicesInput has the arguments of find_devices.
type FindDevicesInput struct {
	Query string `json:"query,omitempty" jsonschema:"words in names, models and labels; empty for all devices"`
	Limit int    `json:"limit,omitempty" jsonschema:"maximum number of results, default 20"`
}

// FindDevicesOutput is the result of find_devices.
type FindDevicesOutput struct {
	Devices []FoundDevice `json:"devices" jsonschema:"best matches first"`
	Total   int           `json:"total" jsonschema:"number of matches"`
}

// FoundDevice is one result of find_devices.
type FoundDevice struct {
	ID     string            `json:"id"`
	Title  string            `json:"title,omitempty" jsonschema:"what the device calls itself"`
	Model  string            `json:"model,omitempty"`
	State  string            `json:"state" jsonschema:"online, offline, or released to other programs"`
	Reason string            `json:"reason,omitempty" jsonschema:"why it is not online"`
	Labels map[string]string `json:"labels,omitempty"`
	Claims map[string]string `json:"claims,omitempty" jsonschema:"what the device says about itself, such as its area"`
}

// FindDevices returns the tool find_devices.
func FindDevices(catalog CatalogFor) Tool {
	const text = "Searches devices by words in names, models and labels."
	return Typed("find_devices", text, ferrule.Reads, func(_ context.Context, call *ferrule.Call, in FindDevicesInput) (FindDevicesOutput, error) {
		found, total := catalog(call.Principal).FindDevices(in.Query, foundLimit(in.Limit))
		out := FindDevicesOutput{Devices: []FoundDevice{}, Total: total}
		for _, d := range found {
			out.Devices = append(out.Devices, FoundDevice{ID: d.ID, Title: d.Title, Model: d.Model, State: string(d.State), Reason: d.Reason, Labels: d.Labels, Claims: d.Claims})
		}
		return out, nil
	})
}

// FindToolsInput has the arguments of find_tools.
type FindToolsInput struct {
	Query  string `json:"query,omitempty" jsonschema:"words in names and descriptions of tools and devices; empty for all tools"`
	Device string `json:"device,omitempty" jsonschema:"only tools of the device with this ID"`
	Limit  int    `json:"limit,omitempty" jsonschema:"maximum number of results, default 20"`
}

// FindToolsOutput is the result of find_tools.
type FindToolsOutput struct {
	Tools []FoundTool `json:"tools" jsonschema:"best matches first"`
	Total int         `json:"total" jsonschema:"number of matches"`
}

// FoundTool is one result of find_tools.
type FoundTool struct {
	Name    string `json:"name" jsonschema:"name to call it by"`
	Tool    string `json:"tool" jsonschema:"the device's own name for it, for call_many"`
	Text    string `json:"text"`
	Effect  string `json:"effect" jsonschema:"reads, changes or endangers"`
	Devices int    `json:"devices" jsonschema:"number of devices that have it"`
}

// FindTools returns the tool find_tools.
func FindTools(catalog CatalogFor) Tool {
	const text = "Searches device tools by words, such as 'led' or 'temperature kitchen'. Call a found tool by the returned name."
	return Typed("find_tools", text, ferrule.Reads, func(_ context.Context, call *ferrule.Call, in FindToolsInput) (FindToolsOutput, error) {
		const brief = 200
		found, total := catalog(call.Principal).FindTools(in.Query, in.Device, foundLimit(in.Limit))
		out := FindToolsOutput{Tools: []FoundTool{}, Total: total}
		for _, o := range found {
			out.Tools = append(out.Tools, FoundTool{Name: o.Name, Tool: o.Tool.Name, Text: ferrule.Clean(o.Text, brief), Effect: string(o.Tool.Effect), Devices: o.Count})
		}
		return out, nil
	})
}

// DescribeToolInput has the arguments of describe_tool.
type DescribeToolInput struct {
	Name string `json:"name" jsonschema:"name of the tool, from find_tools"`
}

// DescribeToolOutput is the result of describe_tool.
type DescribeToolOutput struct {
	Name       string           `json:"name"`
	Tool       string           `json:"tool" jsonschema:"the device's own name for it, for call_many"`
	Text       string           `json:"text"`
	Effect     string           `json:"effect" jsonschema:"reads, changes or endangers"`
	Idempotent bool             `json:"idempotent,omitempty" jsonschema:"calling it twice has the same effect as once"`
	Input      schema.AnyObject `json:"input" jsonschema:"JSON Schema of the arguments"`
	Output     schema.AnyObject `json:"output,omitempty" jsonschema:"JSON Schema of the result"`
	Devices    []string         `json:"devices" jsonschema:"some of the devices that have it"`
	Count      int              `json:"count" jsonschema:"number of devices that have it"`
}

// DescribeTool returns the tool describe_tool.
func DescribeTool(catalog CatalogFor) Tool {
	const text = "Returns arguments, effect and devices of a tool."
	return Typed("describe_tool", text, ferrule.Reads, func(_ context.Context, call *ferrule.Call, in DescribeToolInput) (DescribeToolOutput, error) {
		o, err := catalog(call.Principal).Offer(in.Name)
		if err != nil {
			return DescribeToolOutput{}, err
		}
		return DescribeToolOutput{
			Name: o.Name, Tool: o.Tool.Name, Text: o.Text, Effect: string(o.Tool.Effect), Idempotent: o.Tool.Idempotent,
			Input: schema.AnyObject(o.Input), Output: schema.AnyObject(o.Tool.Output), Devices: append([]string{}, o.Devices...), Count: o.Count,
		}, nil
	})
}
