package catalog

import (
	"slices"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// OffersOn returns the tools of a device under the names by which the caller's list has
// them. If the list does not have them, they have their full names, and through is the
// listed tool that calls them; it is empty if they can be called directly.
func (v View) OffersOn(id string) (offers []ferrule.Offer, through string) {
	e := v.entry(id)
	if e == nil || e.group == nil {
		return nil, ""
	}
	hidden := func(o ferrule.Offer) bool { return !v.who.CanCall(o.Tool) || !v.seen.Tool(e.device, o.Tool) }
	list, _ := v.c.List()
	for _, o := range list {
		if slices.Contains(e.group.tools, o.Tool) && (o.Argument != "" || o.Devices[0] == e.id) {
			offers = append(offers, o)
		}
	}
	if offers == nil {
		offers = e.group.offersOn(e.device)
		if slices.ContainsFunc(list, func(o ferrule.Offer) bool { return o.Name == callTool.Name }) {
			through = callTool.Name
		}
	}
	return slices.DeleteFunc(offers, hidden), through
}
