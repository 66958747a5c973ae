package catalog

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// group is the online devices that share an effective manifest.
type group struct {
	kind     ferrule.Kind
	manifest *ferrule.Manifest
	tools    []*ferrule.Tool // usable by agents, sorted by name
	size     int             // bytes of its tools in the list
	// fingerprint is the hash of what agents see: the Kind, and the tools with overlays.
	fingerprint string
	// short and long are possible prefixes of folded tools. Another group may have the
	// same short one.
	short, long string

	members order // guarded by the catalog's mu

	mu      sync.Mutex       // locked after the catalog's
	names   map[int][]string // this and the next are nil until they are needed
	inputs  []foldedInput
	prompts map[int][]string
}

// foldedInput is the input schema of a folded tool.
type foldedInput struct {
	schema   json.RawMessage // nil until it is needed
	argument string
}

func newGroup(kind ferrule.Kind, m *ferrule.Manifest) *group {
	const shortDigits, longDigits = 6, 12
	g := &group{kind: kind, manifest: m}
	g.tools = make([]*ferrule.Tool, 0, len(m.Tools))
	for i := range m.Tools {
		if t := &m.Tools[i]; t.Quarantine == "" && anyAgent.CanCall(t) {
			g.tools = append(g.tools, t)
		}
	}
	slices.SortStableFunc(g.tools, func(a, b *ferrule.Tool) int { return cmp.Compare(a.Name, b.Name) })
	g.tools = slices.CompactFunc(g.tools, func(a, b *ferrule.Tool) bool { return a.Name == b.Name })
	longest := 0
	sum := sha256.New()
	fmt.Fprintf(sum, "%q", kind)
	for _, t := range g.tools {
		longest = max(longest, len(t.Name))
		g.size += len(t.Name) + len(t.Text) + len(t.Input) + len(t.Output) + len(t.Title)
		for _, icon := range t.Icons {
			g.size += len(icon.Source)
		}
		fmt.Fprintf(sum, "%d %d %d %d %s %t\n", len(t.Name), len(t.Text), len(t.Input), len(t.Output), t.Effect, t.Idempotent)
		for _, part := range [][]byte{[]byte(t.Name), []byte(t.Text), t.Input, t.Output} {
			sum.Write(part)
		}
	}
	g.fingerprint = hex.EncodeToString(sum.Sum(nil))
	g.short = foldedPrefix(m.Model, string(kind[:min(shortDigits, len(kind))]), longest)
	g.long = foldedPrefix(m.Model, g.fingerprint[:longDigits], longest)
	return g
}

// namesFor returns the names of the group's tools after a prefix, in the order of tools.
// They are computed once per length of prefix.
func (g *group) namesFor(prefix string) []string {
	room := maxName - len(prefix) - len(separator)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.names[room] == nil {
		own := make([]string, len(g.tools))
		for i, t := range g.tools {
			own[i] = t.Name
		}
		if g.names == nil {
			g.names = make(map[int][]string)
		}
		g.names[room] = portableNames(own, room)
	}
	return g.names[room]
}

// find returns the index of the tool with that name after a prefix, or with that own
// name, or -1.
func (g *group) find(prefix, name string) int {
	if i := slices.Index(g.namesFor(prefix), name); i >= 0 {
		return i
	}
	return slices.IndexFunc(g.tools, func(t *ferrule.Tool) bool { return t.Name == name })
}

// agrees reports whether the group has the same tool as another one of its Kind. If the
// tool is hidden on its devices, the pipeline refuses the call.
func (g *group) agrees(kind ferrule.Kind, tool *ferrule.Tool) bool {
	i := slices.IndexFunc(g.tools, func(t *ferrule.Tool) bool { return t.Name == tool.Name })
	return g.kind == kind && (i < 0 || sameTool(g.tools[i], tool))
}

// sameTool reports whether two tools are the same to an agent.
func sameTool(a, b *ferrule.Tool) bool {
	return a.Text == b.Text && bytes.Equal(a.Input, b.Input) && bytes.Equal(a.Output, b.Output) && a.Effect == b.Effect && a.Idempotent == b.Idempotent
}

// offerOn returns the offer of a tool on one device.
func (g *group) offerOn(dev *ferrule.Device, i int, name string) ferrule.Offer {
	t := g.tools[i]
	return ferrule.Offer{
		Name: name, Text: textOf(t, dev.Model), Input: inputOf(t), Tool: t,
		Devices: []string{dev.ID}, Count: 1,
	}
}

// offersOn returns the tools of one device, named with its ID as prefix.
func (g *group) offersOn(dev *ferrule.Device) []ferrule.Offer {
	offers := make([]ferrule.Offer, len(g.tools))
	for i, name := range g.namesFor(dev.ID) {
		offers[i] = g.offerOn(dev, i, dev.ID+separator+name)
	}
	return offers
}

// offerFolded returns the offer of a tool on all devices in the group, with a device
// argument. It does not contain the number of devices, so that the list stays the same
// when one more appears.
func (g *group) offerFolded(prefix string, i int) ferrule.Offer {
	t, input := g.tools[i], g.input(i)
	return ferrule.Offer{
		Name: prefix + separator + g.namesFor(prefix)[i], Text: textOf(t, g.manifest.Model),
		Input: input.schema, Tool: t, Argument: input.argument,
	}
}

// input returns the input schema of a folded tool.
func (g *group) input(i int) foldedInput {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inputs == nil {
		g.inputs = make([]foldedInput, len(g.tools))
	}
	if g.inputs[i].schema == nil {
		more, argument := withDevice(inputOf(g.tools[i]))
		g.inputs[i] = foldedInput{more, argument}
	}
	return g.inputs[i]
}

// textOf returns the description of a tool, which is never empty.
func textOf(t *ferrule.Tool, model string) string {
	return cmp.Or(strings.TrimSpace(t.Text), fmt.Sprintf("%s of a %s. The device does not describe it.", t.Name, cmp.Or(model, "device")))
}

// anyInput is the schema of a tool that declares none.
var anyInput = json.RawMessage(`{"properties":{},"type":"object"}`)

func inputOf(t *ferrule.Tool) json.RawMessage {
	if len(t.Input) == 0 {
		return anyInput
	}
	return t.Input
}

// deviceArgument returns the n-th candidate for the name of the device argument. The first
// one that is not an argument of the tool is used.
func deviceArgument(n int) string {
	switch n {
	case 0:
		return "device"
	case 1:
		return "on_device"
	}
	return fmt.Sprintf("on_device_%d", n)
}

// withDevice adds the device argument to a schema.
func withDevice(input json.RawMessage) (more json.RawMessage, argument string) {
	var root map[string]any
	dec := json.NewDecoder(bytes.NewReader(input))
	dec.UseNumber()
	if err := dec.Decode(&root); err != nil || root == nil { // never: it was compiled before
		root = map[string]any{"type": "object"}
	}
	properties, _ := root["properties"].(map[string]any)
	if properties == nil {
		properties = make(map[string]any)
	}
	required, _ := root["required"].([]any)
	for n := 0; ; n++ {
		argument = deviceArgument(n)
		if _, taken := properties[argument]; !taken && !slices.Contains(required, any(argument)) {
			break
		}
	}
	properties[argument] = map[string]any{"type": "string", "description": "device ID, from " + Name("find_devices")}
	root["properties"], root["required"] = properties, append([]any{argument}, required...)
	if more, err := schema.Encode(root); err == nil {
		return more, argument
	}
	return input, argument
}
