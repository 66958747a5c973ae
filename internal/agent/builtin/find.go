package builtin

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// Catalog finds devices and tools by words. What it returns is shared and read
// only.
type Catalog interface {
	FindDevices(query string, limit int) (found []*ferrule.Device, total int)
	FindTools(query, device string, limit int) (found []ferrule.Offer, total int)
	// Offer tells all about the tool of that name.
	Offer(name string) (ferrule.Offer, error)
}

const (
	usualFinds = 20
	maxFinds   = 100
)

// finds is how many to tell.
func finds(limit int) int {
	if limit <= 0 {
		return usualFinds
	}
	return min(limit, maxFinds)
}

// FindDevicesInput is the arguments of find_devices.
type FindDevicesInput struct {
	Query string `json:"query,omitempty" jsonschema:"words in names, models and labels of devices; all devices without any"`
	Limit int    `json:"limit,omitempty" jsonschema:"how many at most, 20 unless said"`
}

// FindDevicesOutput is the result of find_devices.
type FindDevicesOutput struct {
	Devices []FoundDevice `json:"devices" jsonschema:"those that fit best come first"`
	Total   int           `json:"total" jsonschema:"how many fit"`
}

// FoundDevice is a device that was found.
type FoundDevice struct {
	ID     string            `json:"id"`
	Model  string            `json:"model,omitempty"`
	State  string            `json:"state" jsonschema:"online, offline, or released to other programs"`
	Reason string            `json:"reason,omitempty" jsonschema:"why it is not online"`
	Labels map[string]string `json:"labels,omitempty"`
}

// FindDevices is the tool that finds devices among many.
func FindDevices(catalog Catalog) Tool {
	const text = "Find devices by words in their names, models and labels."
	return Typed("find_devices", text, ferrule.Reads, func(_ context.Context, _ *ferrule.Call, in FindDevicesInput) (FindDevicesOutput, error) {
		found, total := catalog.FindDevices(in.Query, finds(in.Limit))
		out := FindDevicesOutput{Devices: []FoundDevice{}, Total: total}
		for _, d := range found {
			out.Devices = append(out.Devices, FoundDevice{ID: d.ID, Model: d.Model, State: string(d.State), Reason: d.Reason, Labels: d.Labels})
		}
		return out, nil
	})
}

// FindToolsInput is the arguments of find_tools.
type FindToolsInput struct {
	Query  string `json:"query,omitempty" jsonschema:"words in names and texts of tools, and of their devices; all tools without any"`
	Device string `json:"device,omitempty" jsonschema:"ID of a device whose tools are meant"`
	Limit  int    `json:"limit,omitempty" jsonschema:"how many at most, 20 unless said"`
}

// FindToolsOutput is the result of find_tools.
type FindToolsOutput struct {
	Tools []FoundTool `json:"tools" jsonschema:"those that fit best come first"`
	Total int         `json:"total" jsonschema:"how many fit"`
}

// FoundTool is a tool that was found.
type FoundTool struct {
	Name    string `json:"name" jsonschema:"by which it is called"`
	Tool    string `json:"tool" jsonschema:"its own name, as call_many takes it"`
	Text    string `json:"text"`
	Effect  string `json:"effect" jsonschema:"reads, changes or endangers"`
	Devices int    `json:"devices" jsonschema:"on how many devices it can be called"`
}

// FindTools is the tool that finds tools among many.
func FindTools(catalog Catalog) Tool {
	const text = "Find tools of devices by words, such as 'led' or 'temperature kitchen'. They are called by the names that it tells."
	return Typed("find_tools", text, ferrule.Reads, func(_ context.Context, _ *ferrule.Call, in FindToolsInput) (FindToolsOutput, error) {
		const brief = 200
		found, total := catalog.FindTools(in.Query, in.Device, finds(in.Limit))
		out := FindToolsOutput{Tools: []FoundTool{}, Total: total}
		for _, o := range found {
			out.Tools = append(out.Tools, FoundTool{Name: o.Name, Tool: o.Tool.Name, Text: ferrule.Clean(o.Text, brief), Effect: string(o.Tool.Effect), Devices: o.Count})
		}
		return out, nil
	})
}

// DescribeToolInput is the arguments of describe_tool.
type DescribeToolInput struct {
	Name string `json:"name" jsonschema:"name of the tool, as find_tools tells it"`
}

// DescribeToolOutput is the result of describe_tool.
type DescribeToolOutput struct {
	Name       string           `json:"name"`
	Tool       string           `json:"tool" jsonschema:"its own name, as call_many takes it"`
	Text       string           `json:"text"`
	Effect     string           `json:"effect" jsonschema:"reads, changes or endangers"`
	Idempotent bool             `json:"idempotent,omitempty" jsonschema:"calling it twice does what calling it once does"`
	Input      schema.AnyObject `json:"input" jsonschema:"JSON Schema of the arguments"`
	Output     schema.AnyObject `json:"output,omitempty" jsonschema:"JSON Schema of the answer"`
	Devices    []string         `json:"devices" jsonschema:"on which devices it can be called, the first few of them"`
	Count      int              `json:"count" jsonschema:"on how many devices it can be called"`
}

// DescribeTool is the tool that tells all about a tool.
func DescribeTool(catalog Catalog) Tool {
	const text = "Tell all about a tool: its arguments, what it does to the world, and on which devices it can be called."
	return Typed("describe_tool", text, ferrule.Reads, func(_ context.Context, _ *ferrule.Call, in DescribeToolInput) (DescribeToolOutput, error) {
		o, err := catalog.Offer(in.Name)
		if err != nil {
			return DescribeToolOutput{}, err
		}
		return DescribeToolOutput{
			Name: o.Name, Tool: o.Tool.Name, Text: o.Text, Effect: string(o.Tool.Effect), Idempotent: o.Tool.Idempotent,
			Input: schema.AnyObject(o.Input), Output: schema.AnyObject(o.Tool.Output), Devices: append([]string{}, o.Devices...), Count: o.Count,
		}, nil
	})
}
