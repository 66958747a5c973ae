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

// group is the devices that share a laid manifest and are online.
type group struct {
	kind     ferrule.Kind
	manifest *ferrule.Manifest
	tools    []*ferrule.Tool // those that agents can use, by name
	size     int             // bytes of its tools in a list
	// print is the hash of what agents see of the group: its Kind, and what is
	// laid on its tools.
	print string
	// short and long are what may stand before the names of its tools where they
	// are folded. Another group may have the same short one.
	short, long string

	members order // guarded by the catalog's mu

	mu      sync.Mutex // stands behind the catalog's
	names   map[int][]string
	inputs  []foldedInput
	prompts map[int][]string // their names
}

// foldedInput is what a tool takes where it is folded.
type foldedInput struct {
	schema   json.RawMessage // nil until it is asked for
	argument string
}

func newGroup(kind ferrule.Kind, m *ferrule.Manifest) *group {
	const shortDigits, longDigits = 6, 12
	g := &group{kind: kind, manifest: m, names: make(map[int][]string), prompts: make(map[int][]string)}
	for i := range m.Tools {
		if t := &m.Tools[i]; t.Quarantine == "" && anAgent.CanCall(t) {
			g.tools = append(g.tools, t)
		}
	}
	slices.SortStableFunc(g.tools, func(a, b *ferrule.Tool) int { return cmp.Compare(a.Name, b.Name) })
	g.tools = slices.CompactFunc(g.tools, func(a, b *ferrule.Tool) bool { return a.Name == b.Name })
	g.inputs = make([]foldedInput, len(g.tools))
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
	g.print = hex.EncodeToString(sum.Sum(nil))
	g.short = foldedPrefix(m.Model, string(kind[:min(shortDigits, len(kind))]), longest)
	g.long = foldedPrefix(m.Model, g.print[:longDigits], longest)
	return g
}

// namesWithin are the names of the group's tools behind a prefix, in the order of
// tools. They are made once for each length of a prefix.
func (g *group) namesWithin(prefix string) []string {
	room := maxName - len(prefix) - len(separator)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.names[room] == nil {
		own := make([]string, len(g.tools))
		for i, t := range g.tools {
			own[i] = t.Name
		}
		g.names[room] = portableNames(own, room)
	}
	return g.names[room]
}

// find is which of the group's tools has a name behind a prefix, or has it as its
// own; -1 if none.
func (g *group) find(prefix, name string) int {
	if i := slices.Index(g.namesWithin(prefix), name); i >= 0 {
		return i
	}
	return slices.IndexFunc(g.tools, func(t *ferrule.Tool) bool { return t.Name == name })
}

// offerOn is a tool on one device. The prefix of its name is the device's ID,
// unless it stands alone.
func (g *group) offerOn(dev *ferrule.Device, i int, name string) ferrule.Offer {
	t := g.tools[i]
	return ferrule.Offer{
		Name: name, Text: textOf(t, dev.Model), Input: inputOf(t), Tool: t,
		Devices: []string{dev.ID}, Count: 1,
	}
}

// offersOn are the tools of one device, with its ID in front of their names.
func (g *group) offersOn(dev *ferrule.Device) []ferrule.Offer {
	offers := make([]ferrule.Offer, len(g.tools))
	for i, name := range g.namesWithin(dev.ID) {
		offers[i] = g.offerOn(dev, i, dev.ID+separator+name)
	}
	return offers
}

// offerFolded is a tool of all devices in the group, which takes one more
// argument: on which device. It does not tell how many these are, so that a list
// stays as it is when there is one more.
func (g *group) offerFolded(prefix string, i int) ferrule.Offer {
	t, input := g.tools[i], g.input(i)
	return ferrule.Offer{
		Name: prefix + separator + g.namesWithin(prefix)[i], Text: textOf(t, g.manifest.Model),
		Input: input.schema, Tool: t, Argument: input.argument,
	}
}

// input is what a tool takes where it is folded.
func (g *group) input(i int) foldedInput {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inputs[i].schema == nil {
		more, argument := withDevice(inputOf(g.tools[i]))
		g.inputs[i] = foldedInput{more, argument}
	}
	return g.inputs[i]
}

// describe adds to a folded offer which devices it is about.
func describe(o ferrule.Offer, members view) ferrule.Offer {
	const most = 10
	for _, dev := range members.behind("", most) {
		o.Devices = append(o.Devices, dev.ID)
	}
	o.Count = members.length
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

// deviceArgument is the argument that tells the device: the first of these names
// that the tool has no argument of.
func deviceArgument(n int) string {
	switch n {
	case 0:
		return "device"
	case 1:
		return "on_device"
	}
	return fmt.Sprintf("on_device_%d", n)
}

// withDevice adds to a schema the argument that tells the device.
func withDevice(input json.RawMessage) (more json.RawMessage, argument string) {
	var root map[string]any
	dec := json.NewDecoder(bytes.NewReader(input))
	dec.UseNumber()
	if err := dec.Decode(&root); err != nil || root == nil { // it was made by us
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
	properties[argument] = map[string]any{"type": "string", "description": "ID of the device; " + Name("find_devices") + " finds it"}
	root["properties"], root["required"] = properties, append([]any{argument}, required...)
	if more, err := schema.Encode(root); err == nil {
		return more, argument
	}
	return input, argument
}
