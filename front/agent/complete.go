package agent

import (
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// complete answers completion/complete: for the parts of the URIs of resources.
func (v *view) complete(req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	const most = 100
	p := req.Params
	if p.Ref == nil || p.Argument.Name == "" {
		return nil, badParams("want a ref, and the name of an argument")
	}
	var values []string
	total := 0
	switch {
	case p.Ref.Type != "ref/resource":
	case p.Argument.Name == "device" && v.device == "":
		values, total = v.front.parts.Catalog.Complete(p.Argument.Value, most)
	default:
		for _, word := range v.completions(p) {
			if strings.HasPrefix(word, p.Argument.Value) {
				values = append(values, word)
			}
		}
		total = len(values)
		values = values[:min(most, len(values))]
	}
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{
		Values: append([]string{}, values...), Total: total, HasMore: total > len(values),
	}}, nil
}

// completions are what an argument can be, for the device that was said before.
func (v *view) completions(p *mcp.CompleteParams) []string {
	device := v.device
	if device == "" && p.Context != nil {
		device = p.Context.Arguments["device"]
	}
	var all []string
	switch p.Argument.Name {
	case "device":
		all = append(all, v.device)
	case "pin":
		if _, manifest, ok := v.front.parts.Catalog.Lookup(device); ok && manifest != nil {
			for _, pin := range manifest.Pins {
				all = append(all, strconv.Itoa(pin.Number))
			}
		}
	case "reading":
		for _, t := range v.readings(device) {
			all = append(all, t.Name)
		}
	}
	slices.Sort(all)
	return all
}
