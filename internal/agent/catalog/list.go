package catalog

import (
	"encoding/json"
	"slices"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Shape is how the list shows devices.
type Shape string

// The shapes.
const (
	Plain  Shape = "plain"  // the tools of each device
	Folded Shape = "folded" // the tools of each Kind that several devices are of
	Search Shape = "search" // the tools by which all others are found and called
)

// What of the gateway's own tools stands in the list, by its shape.
var (
	always    = []string{"status"}
	whenFolds = []string{"find_devices"}
	whenFinds = []string{"find_devices", "find_tools", "describe_tool", "call_many"}
)

// maxBytes is how large the tools of devices in the list may be. A few tools can
// be as large as many.
const maxBytes = 64 << 10

// List is what stands in the list, by name, and its shape. It is the same for
// every agent, and shared: read only.
func (c *Catalog) List() ([]ferrule.Offer, Shape) {
	c.mu.RLock()
	list, shape := c.list, c.shape
	c.mu.RUnlock()
	if list != nil {
		return list, shape
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.list == nil {
		c.makeList()
	}
	return c.list, c.shape
}

// extent is how much a list would hold.
type extent struct{ tools, bytes int }

func (x *extent) add(g *group, times int) {
	x.tools += len(g.tools) * times
	x.bytes += g.size * times
}

func (c *Catalog) fits(x extent) bool { return x.tools <= c.config.Budget && x.bytes <= maxBytes }

// makeList makes the list. It is called with mu held.
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
	c.list = append(c.list, c.ownOffers(always)...)
	switch {
	case large || c.shape == Search:
		c.list = append(c.list, c.ownOffers(whenFinds)...)
		c.list = append(c.list, callTool)
	case c.shape == Folded:
		c.list = append(c.list, c.ownOffers(whenFolds)...)
	}
	switch {
	case c.measure == 0 || c.shape == Search: // they are found there
	case c.shape == Folded:
		c.list = append(c.list, c.ownOffers(whenManyMeasure)...)
	default:
		c.list = append(c.list, c.ownOffers(whenMeasures)...)
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

// foldedOffers are the tools of Kinds, and of each device that is the only one of
// its Kind.
func (c *Catalog) foldedOffers(groups []*group) []ferrule.Offer {
	list := []ferrule.Offer{}
	seen := make(map[string]bool) // groups may be alike
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

// ownOffers are some of the gateway's own tools.
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

// Of lists the tools of one device under their own names, as far as every client
// takes them. It is empty unless the device is online.
func (c *Catalog) Of(id string) []ferrule.Offer {
	list := []ferrule.Offer{}
	e := c.entry(id)
	if e == nil || e.group == nil {
		return list
	}
	for i, name := range e.group.namesWithin("") {
		list = append(list, e.group.offerOn(e.device, i, name))
	}
	slices.SortFunc(list, byName)
	return list
}

// callTool is a name for all other names.
var callTool = ferrule.Offer{
	Name: Name("call_tool"),
	Text: "Call a tool by its name, as " + Name("find_tools") + " tells it. What it does to the world is what that tool does.",
	Input: json.RawMessage(`{"type":"object","properties":{` +
		`"name":{"type":"string","description":"name of the tool, such as robot__gpio_write"},` +
		`"arguments":{"type":"object","description":"what the tool takes; ` + Name("describe_tool") + ` tells it"}},` +
		`"required":["name"],"additionalProperties":false}`),
	Tool: &ferrule.Tool{Name: "call_tool", Effect: ferrule.Endangers}, Count: 1, Devices: []string{ferrule.GatewayID},
}
