package catalog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/schema"
)

// group is the devices that share a laid manifest and are online.
type group struct {
	kind     ferrule.Kind
	manifest *ferrule.Manifest
	tools    []*ferrule.Tool // those that agents can use, by name
	prefix   string          // of the names of its tools where they are folded
	size     int             // bytes of its tools in a list
	members  map[string]bool // by ID
	names    map[int][]string
	folded   []ferrule.Offer // nil until it is asked for
}

func newGroup(kind ferrule.Kind, m *ferrule.Manifest) *group {
	g := &group{kind: kind, manifest: m, members: make(map[string]bool), names: make(map[int][]string)}
	longest := 0
	for i := range m.Tools {
		t := &m.Tools[i]
		if t.Quarantine != "" || !anAgent.MayCall(t) {
			continue
		}
		g.tools = append(g.tools, t)
		longest = max(longest, len(t.Name))
		g.size += len(t.Name) + len(t.Text) + len(t.Input) + len(t.Output)
	}
	slices.SortStableFunc(g.tools, func(a, b *ferrule.Tool) int { return cmp.Compare(a.Name, b.Name) })
	g.prefix = foldedPrefix(m.Model, kind, longest)
	return g
}

// namesWithin are the names of the group's tools behind a prefix, in the order of
// tools. They are made once for each length of a prefix.
func (g *group) namesWithin(prefix string) []string {
	room := maxName - len(prefix) - len(separator)
	if g.names[room] == nil {
		g.names[room] = toolNames(g.tools, room)
	}
	return g.names[room]
}

// tool finds a tool by what follows the prefix in a name.
func (g *group) tool(prefix, name string) *ferrule.Tool {
	if t := g.manifest.Tool(name); t != nil {
		return t
	}
	if i := slices.Index(g.namesWithin(prefix), name); i >= 0 {
		return g.tools[i]
	}
	return nil
}

// offersOn are the tools of one device, with its ID in front of their names.
func (g *group) offersOn(dev *ferrule.Device) []ferrule.Offer {
	offers := make([]ferrule.Offer, len(g.tools))
	for i, name := range g.namesWithin(dev.ID) {
		offers[i] = plainOffer(dev, g.tools[i], dev.ID+separator+name)
	}
	return offers
}

func plainOffer(dev *ferrule.Device, t *ferrule.Tool, name string) ferrule.Offer {
	return ferrule.Offer{
		Name: name, Text: textOf(t, dev.Model), Input: inputOf(t), Tool: t,
		Devices: []string{dev.ID}, Count: 1,
	}
}

// offersFolded are the tools of all devices in the group, which take one more
// argument: on which device.
func (g *group) offersFolded() []ferrule.Offer {
	if g.folded == nil {
		g.folded = make([]ferrule.Offer, len(g.tools))
		for i, name := range g.namesWithin(g.prefix) {
			t := g.tools[i]
			input, argument := withDevice(inputOf(t))
			g.folded[i] = ferrule.Offer{
				Name: g.prefix + separator + name, Text: textOf(t, g.manifest.Model), Input: input, Tool: t, Argument: argument,
			}
		}
	}
	return g.folded
}

// describe adds to a folded offer which devices it is about.
func (g *group) describe(o ferrule.Offer) ferrule.Offer {
	const most = 10
	o.Count = len(g.members)
	o.Devices = slices.Sorted(maps.Keys(g.members))
	o.Devices = o.Devices[:min(most, len(o.Devices))]
	return o
}

// textOf says what a tool does, if only by its name.
func textOf(t *ferrule.Tool, model string) string {
	return cmp.Or(strings.TrimSpace(t.Text), fmt.Sprintf("%s of a %s. The device says no more about it.", t.Name, cmp.Or(model, "device")))
}

// anything is the schema of a tool about whose arguments nothing is known.
var anything = json.RawMessage(`{"properties":{},"type":"object"}`)

func inputOf(t *ferrule.Tool) json.RawMessage {
	if len(t.Input) == 0 {
		return anything
	}
	return t.Input
}

// deviceArgument is the argument that tells the device, unless the tool has one
// of that name.
const deviceArgument = "device"

// withDevice adds to a schema the argument that tells the device.
func withDevice(input json.RawMessage) (more json.RawMessage, argument string) {
	root, _, err := schema.Object(input)
	if err != nil { // it was made by us
		root = map[string]any{"type": "object"}
	}
	properties, _ := root["properties"].(map[string]any)
	if properties == nil {
		properties = make(map[string]any)
	}
	for _, argument = range []string{deviceArgument, "on_device", "on_this_device"} {
		if _, taken := properties[argument]; !taken {
			break
		}
	}
	properties[argument] = map[string]any{"type": "string", "description": "ID of the device; " + Name("find_devices") + " finds it"}
	required, _ := root["required"].([]any)
	root["properties"], root["required"] = properties, append([]any{argument}, required...)
	if more, err = schema.Encode(root); err != nil {
		return input, argument
	}
	return more, argument
}
