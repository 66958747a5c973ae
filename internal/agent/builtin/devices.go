package builtin

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// Fleet looks up devices. Results are shared and read-only.
type Fleet interface {
	// Devices returns all devices, sorted by ID.
	Devices() []*ferrule.Device
	Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool)
}

// ListDevicesInput has the arguments of list_devices.
type ListDevicesInput struct {
	After string `json:"after,omitempty" jsonschema:"return devices after this ID; use next of the previous result"`
	Limit int    `json:"limit,omitempty" jsonschema:"maximum number of devices, default 100"`
}

// ListDevicesOutput is the result of list_devices.
type ListDevicesOutput struct {
	Devices []DescribedDevice `json:"devices"`
	Total   int               `json:"total" jsonschema:"number of devices"`
	Next    string            `json:"next,omitempty" jsonschema:"pass this as after to get more devices"`
}

// DescribedDevice is the description of a device in results.
type DescribedDevice struct {
	ID        string            `json:"id"`
	Title     string            `json:"title,omitempty" jsonschema:"what the device calls itself"`
	Aliases   []string          `json:"aliases,omitempty" jsonschema:"earlier IDs, which can still be used"`
	State     string            `json:"state" jsonschema:"online, offline, or released to other programs"`
	Since     time.Time         `json:"since"`
	Reason    string            `json:"reason,omitempty" jsonschema:"why it is not online"`
	Trust     string            `json:"trust" jsonschema:"adopted or pending"`
	Model     string            `json:"model,omitempty"`
	Version   string            `json:"version,omitempty"`
	Kind      string            `json:"kind,omitempty"`
	Transport string            `json:"transport"`
	Address   string            `json:"address"`
	Node      string            `json:"node,omitempty" jsonschema:"gateway that holds it"`
	Protocol  string            `json:"protocol,omitempty"`
	Tools     int               `json:"tools" jsonschema:"number of usable tools"`
	Unusable  int               `json:"unusable,omitempty" jsonschema:"number of quarantined tools, without those for pins that the device does not have"`
	Resources int               `json:"resources,omitempty" jsonschema:"number of resources"`
	Prompts   int               `json:"prompts,omitempty"`
	Restarted *time.Time        `json:"restarted,omitempty" jsonschema:"when opening its port may have reset it, with outputs at their defaults"`
	Changed   *time.Time        `json:"changed,omitempty" jsonschema:"when its Kind changed"`
	Previous  string            `json:"previous,omitempty" jsonschema:"Kind before the change"`
	Waiting   int               `json:"waiting,omitempty" jsonschema:"number of changes that its owner has not accepted yet"`
	Notes     []string          `json:"notes,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Claims    map[string]string `json:"claims,omitempty" jsonschema:"what the device says about itself, such as its area"`
	Stopped   string            `json:"stopped,omitempty" jsonschema:"who stopped it and why: changes are denied"`
	Asks      bool              `json:"asks,omitempty" jsonschema:"its owner lets it ask the users of its callers questions"`
}

const (
	defaultPage = 100
	maxPage     = 1000
)

// ListDevices returns the tool list_devices. People see all devices, and agents see a
// device if they may use anything of it.
func ListDevices(fleet Fleet, see See) Tool {
	const text = "Returns all devices with state, model and transport."
	return Typed("list_devices", text, ferrule.Reads, func(_ context.Context, call *ferrule.Call, in ListDevicesInput) (ListDevicesOutput, error) {
		seen := see.of(call)
		all := slices.DeleteFunc(fleet.Devices(), func(d *ferrule.Device) bool {
			if !call.Principal.CanSee(d) || seen.Shows == nil {
				return !call.Principal.CanSee(d)
			}
			_, manifest, _ := fleet.Lookup(d.ID)
			return !seen.Device(d, manifest)
		})
		out := ListDevicesOutput{Devices: []DescribedDevice{}, Total: len(all)}
		start, found := slices.BinarySearchFunc(all, in.After, func(d *ferrule.Device, id string) int { return strings.Compare(d.ID, id) })
		if found {
			start++
		}
		if in.Limit <= 0 {
			in.Limit = defaultPage
		}
		end := min(start+min(in.Limit, maxPage), len(all))
		for _, d := range all[start:end] {
			_, manifest, _ := fleet.Lookup(d.ID)
			out.Devices = append(out.Devices, describe(fleet, d, manifest, seen))
		}
		if end < len(all) {
			out.Next = all[end-1].ID
		}
		return out, nil
	})
}

// DescribeDeviceInput has the arguments of describe_device.
type DescribeDeviceInput struct {
	Device string `json:"device" jsonschema:"ID of the device"`
}

// DescribeDeviceOutput is the result of describe_device.
type DescribeDeviceOutput struct {
	Device DescribedDevice `json:"device"`
	Tools  []DescribedTool `json:"tools"`
	Pins   []DescribedPin  `json:"pins"`
	// Names of the first resources and prompts, and the number of further ones.
	Resources     []string `json:"resources,omitempty" jsonschema:"URIs and URI templates"`
	MoreResources int      `json:"more_resources,omitempty"`
	Prompts       []string `json:"prompts,omitempty"`
	MorePrompts   int      `json:"more_prompts,omitempty"`
}

// Limits of resource and prompt names in a result.
const (
	maxNames     = 50
	maxNameBytes = 4 << 10 // in total
)

// DescribedTool is a tool of a device.
type DescribedTool struct {
	Name       string           `json:"name"`
	Text       string           `json:"text,omitempty"`
	Effect     string           `json:"effect" jsonschema:"reads, changes or endangers"`
	Idempotent bool             `json:"idempotent,omitempty"`
	UserOnly   bool             `json:"user_only,omitempty"`
	Class      string           `json:"class,omitempty" jsonschema:"what it does to which sort of thing, for overlays"`
	Input      schema.AnyObject `json:"input,omitempty" jsonschema:"JSON Schema of the arguments; unknown if missing"`
	Output     schema.AnyObject `json:"output,omitempty"`
	Poll       string           `json:"poll,omitempty" jsonschema:"interval at which the device asks to be polled"`
	Deadline   string           `json:"deadline,omitempty"`
	Cache      string           `json:"cache,omitempty" jsonschema:"how long a result is cached, if the owner set it"`
	Quarantine string           `json:"quarantine,omitempty" jsonschema:"why the tool cannot be used"`
}

// DescribedPin is a pin of a device.
type DescribedPin struct {
	Number    int      `json:"number"`
	Name      string   `json:"name,omitempty"`
	Type      string   `json:"type,omitempty"`
	Text      string   `json:"text,omitempty"`
	Abilities []string `json:"abilities,omitempty"`
	Interval  string   `json:"interval,omitempty" jsonschema:"sampling interval"`
	Samples   int      `json:"samples,omitempty" jsonschema:"number of buffered samples"`
}

// DescribeDevice returns the tool describe_device.
func DescribeDevice(fleet Fleet, see See) Tool {
	const text = "Returns one device with its tools (arguments, effects), pins, resources and prompts."
	return Typed("describe_device", text, ferrule.Reads, func(_ context.Context, call *ferrule.Call, in DescribeDeviceInput) (DescribeDeviceOutput, error) {
		dev, manifest, ok := fleet.Lookup(in.Device)
		if !ok || !see.device(call, dev, manifest) {
			return DescribeDeviceOutput{}, ferrule.UnknownDevice(in.Device)
		}
		seen := see.of(call)
		out := DescribeDeviceOutput{Device: describe(fleet, dev, manifest, seen), Tools: []DescribedTool{}, Pins: []DescribedPin{}}
		if manifest == nil {
			return out, nil
		}
		for i := range manifest.Tools {
			if t := &manifest.Tools[i]; call.Principal.CanCall(t) && seen.Tool(dev, t) {
				out.Tools = append(out.Tools, describeTool(t))
			}
		}
		for _, p := range manifest.Pins {
			out.Pins = append(out.Pins, describePin(p))
		}
		out.Resources, out.MoreResources = names(shownNames(dev, manifest, seen, ferrule.ReadResource))
		out.Prompts, out.MorePrompts = names(shownNames(dev, manifest, seen, ferrule.GetPrompt))
		return out, nil
	})
}

// shownNames returns the URIs of resources, or the names of prompts, that are shown.
func shownNames(dev *ferrule.Device, m *ferrule.Manifest, seen ferrule.Visibility, op ferrule.Operation) []string {
	var all []string
	if op == ferrule.ReadResource {
		for _, r := range m.Resources {
			all = append(all, r.URI)
		}
	} else {
		for _, p := range m.Prompts {
			all = append(all, p.Name)
		}
	}
	return slices.DeleteFunc(all, func(name string) bool { return !seen.Item(dev, m, op, name) })
}

// names returns the first names, and the number of further ones.
func names(all []string) (some []string, more int) {
	size := 0
	for i, n := range all {
		if size += len(n); len(some) == maxNames || size > maxNameBytes {
			return some, len(all) - i
		}
		some = append(some, n)
	}
	return some, 0
}

// stopper is a Fleet whose devices can be stopped.
type stopper interface {
	// Stopped says why changes of a device are denied, or "".
	Stopped(dev *ferrule.Device) string
}

func describe(fleet Fleet, d *ferrule.Device, manifest *ferrule.Manifest, seen ferrule.Visibility) DescribedDevice {
	out := DescribedDevice{
		ID: d.ID, Title: d.Title, Aliases: d.Aliases, State: string(d.State), Since: d.Since, Reason: d.Reason, Trust: string(d.Trust),
		Model: d.Model, Version: d.Version, Kind: string(d.Kind), Transport: d.Transport, Address: d.Address, Node: d.Node,
		Protocol: d.Protocol, Previous: string(d.Previous), Notes: d.Notes, Labels: d.Labels, Claims: d.Claims,
	}
	if s, ok := fleet.(stopper); ok {
		out.Stopped = s.Stopped(d)
	}
	if note := d.WaitingNote(); note != "" {
		out.Waiting, out.Notes = d.Waiting, slices.Concat([]string{note}, d.Notes)
	}
	if !d.Changed.IsZero() {
		out.Changed = &d.Changed
	}
	if !d.Restarted.IsZero() {
		out.Restarted = &d.Restarted
	}
	if manifest != nil {
		out.Asks = manifest.Questions.Elicitation.Count > 0
		out.Resources, out.Prompts = len(manifest.Resources), len(manifest.Prompts)
		if seen.Shows != nil {
			out.Resources, out.Prompts = len(shownNames(d, manifest, seen, ferrule.ReadResource)), len(shownNames(d, manifest, seen, ferrule.GetPrompt))
		}
		for i := range manifest.Tools {
			switch t := &manifest.Tools[i]; {
			case !seen.Tool(d, t):
			case t.Quarantine == "":
				out.Tools++
			case !t.LacksPin():
				out.Unusable++
			}
		}
	}
	return out
}

func describeTool(t *ferrule.Tool) DescribedTool {
	out := DescribedTool{
		Name: t.Name, Text: t.Text, Effect: string(t.Effect), Idempotent: t.Idempotent, UserOnly: t.UserOnly, Class: t.Class,
		Input: schema.AnyObject(t.Input), Output: schema.AnyObject(t.Output), Poll: duration(t.Poll), Deadline: duration(t.Deadline), Quarantine: t.Quarantine,
	}
	if t.Cache != nil {
		out.Cache = t.Cache.String()
	}
	return out
}

func describePin(p ferrule.Pin) DescribedPin {
	out := DescribedPin{Number: p.Number, Name: p.Name, Type: p.Type, Text: p.Text, Abilities: p.Abilities}
	if p.Sampling != nil {
		out.Interval, out.Samples = duration(p.Sampling.Interval), p.Sampling.Size
	}
	return out
}

// duration returns d as text, or "" for zero.
func duration(d ferrule.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// Traits returns what people should know before they call the tool, in a few words.
func (t DescribedTool) Traits() string {
	words := []string{t.Effect}
	if t.Idempotent {
		words = append(words, "idempotent")
	}
	if t.UserOnly {
		words = append(words, "people only")
	}
	if t.Poll != "" {
		words = append(words, "polled every "+t.Poll)
	}
	if t.Deadline != "" {
		words = append(words, "deadline "+t.Deadline)
	}
	switch t.Cache {
	case "":
	case "0s":
		words = append(words, "never cached")
	default:
		words = append(words, "cached for "+t.Cache)
	}
	return strings.Join(words, ", ")
}
