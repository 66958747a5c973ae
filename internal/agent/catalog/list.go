package catalog

import (
	"encoding/json"
	"slices"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Shape is how the list shows device tools.
type Shape string

// The shapes.
const (
	Plain  Shape = "plain"  // each tool of each device
	Folded Shape = "folded" // one tool per Kind, with a device argument
	Search Shape = "search" // tools that search and call all others
)

// Built-in tools in the list, by shape.
var (
	alwaysListed   = []string{"status", "show_device", "approval_status", ferrule.StopTool}
	listedIfFolded = []string{"find_devices"}
	listedIfSearch = []string{"find_devices", "find_tools", "describe_tool", "call_many"}
)

// maxBytes is the maximum size of device tools in the list: a few tools can be as large
// as many.
const maxBytes = 64 << 10

// List returns the listed tools, sorted by name, and the shape, before the policy is asked.
// The result is shared and read-only.
func (c *Catalog) List() ([]ferrule.Offer, Shape) {
	list, shape, _ := c.current()
	return list, shape
}

// current returns the list, its shape and the generation of the catalog.
func (c *Catalog) current() ([]ferrule.Offer, Shape, uint64) {
	c.mu.RLock()
	list, shape, generation := c.list, c.shape, c.generation
	c.mu.RUnlock()
	if list != nil {
		return list, shape, generation
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.list == nil {
		c.makeList()
	}
	return c.list, c.shape, c.generation
}

// extent is the size of a list.
type extent struct{ tools, bytes int }

func (x *extent) add(g *group, times int) {
	x.tools += len(g.tools) * times
	x.bytes += g.size * times
}

func (c *Catalog) fits(x extent) bool { return x.tools <= c.config.Budget && x.bytes <= maxBytes }

// makeList builds the list. It is called with mu held.
func (c *Catalog) makeList() {
	var plain, folded extent
	var listed []*group
	large := false
	for _, g := range c.groups {
		var alone extent
		if alone.add(g, 1); !c.fits(alone) {
			large = true
			continue
		}
		plain.add(g, g.members.length)
		folded.add(g, 1)
		listed = append(listed, g)
	}
	switch {
	case large && folded.tools == 0 || !c.fits(folded):
		c.shape, c.list = Search, []ferrule.Offer{}
	case c.fits(plain):
		c.shape, c.list = Plain, plainOffers(listed)
	default:
		c.shape, c.list = Folded, c.foldedOffers(listed)
	}
	c.list = append(c.list, c.ownOffers(alwaysListed)...)
	switch {
	case large || c.shape == Search:
		c.list = append(c.list, c.ownOffers(listedIfSearch)...)
		c.list = append(c.list, callTool)
	case c.shape == Folded:
		c.list = append(c.list, c.ownOffers(listedIfFolded)...)
	}
	switch {
	case c.measuring == 0 || c.shape == Search: // found by search
	case c.shape == Folded:
		c.list = append(c.list, c.ownOffers(listedIfMeasuringFolded)...)
	default:
		c.list = append(c.list, c.ownOffers(listedIfMeasuring)...)
	}
	slices.SortFunc(c.list, byName)
}

func plainOffers(groups []*group) []ferrule.Offer {
	list := []ferrule.Offer{}
	for _, g := range groups {
		for e := range g.members.from("") {
			list = append(list, g.offersOn(e.device)...)
		}
	}
	return list
}

// foldedOffers returns the folded tools of Kinds with several devices, and the tools of
// single devices.
func (c *Catalog) foldedOffers(groups []*group) []ferrule.Offer {
	list := []ferrule.Offer{}
	seen := make(map[string]bool) // groups may have equal prefixes
	for _, g := range groups {
		if g.members.length == 1 {
			list = append(list, plainOffers([]*group{g})...)
			continue
		}
		prefix := c.prefixOf(g)
		if seen[prefix] {
			continue
		}
		seen[prefix] = true
		for i := range g.tools {
			list = append(list, g.offerFolded(prefix, i))
		}
	}
	return list
}

// ownOffers returns built-in tools by name.
func (c *Catalog) ownOffers(names []string) []ferrule.Offer {
	if c.own == nil {
		return nil
	}
	var offers []ferrule.Offer
	for _, o := range c.own.group.offersOn(c.own.device) {
		if slices.Contains(names, o.Tool.Name) {
			offers = append(offers, o)
		}
	}
	return offers
}

// CallTool is the name of the tool that calls any other tool by name.
var CallTool = Name("call_tool")

// callTool calls any other tool by name.
var callTool = ferrule.Offer{
	Name: CallTool,
	Text: "Calls a tool by the name that " + Name("find_tools") + " returned. Its effect is that of the called tool.",
	Input: json.RawMessage(`{"type":"object","properties":{` +
		`"name":{"type":"string","description":"name of the tool, such as robot__gpio_write"},` +
		`"arguments":{"type":"object","description":"arguments of the tool; see ` + Name("describe_tool") + `"}},` +
		`"required":["name"],"additionalProperties":false}`),
	Tool: &ferrule.Tool{Name: "call_tool", Effect: ferrule.Endangers}, Count: 1, Devices: []string{ferrule.GatewayID},
}
