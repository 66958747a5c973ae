package catalog

import (
	"encoding/json"
	"strings"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/schema"
)

// Resolve tells which tool of which device a name means, and with which
// arguments. The device need not be there: the road says so better.
func (c *Catalog) Resolve(name string, args json.RawMessage) (device, tool string, rest json.RawMessage, err error) {
	if name == callTool.Name {
		if name, args, err = unwrap(args); err != nil {
			return "", "", nil, err
		}
	}
	prefix, tool, ok := strings.Cut(name, separator)
	switch {
	case !ok || name == callTool.Name:
		return "", "", nil, noTool(name)
	case strings.Contains(prefix, foldMark):
		return c.resolveFolded(name, prefix, tool, args)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.toolOn(prefix, prefix, tool); t != nil {
		tool = t.Name
	}
	return prefix, tool, args, nil
}

// ResolveOn tells which tool of a device is meant by a name that Of gave it.
func (c *Catalog) ResolveOn(device, name string) (tool string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.toolOn(device, "", name); t != nil {
		return t.Name
	}
	return name
}

// toolOn finds a tool of a device by the name that it has behind a prefix.
func (c *Catalog) toolOn(device, prefix, name string) *ferrule.Tool {
	if e := c.entry(device); e != nil && e.group != nil {
		return e.group.tool(prefix, name)
	}
	return nil
}

// unwrap reads the arguments of call_tool.
func unwrap(args json.RawMessage) (name string, rest json.RawMessage, err error) {
	var in struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := json.Unmarshal(args, &in); err != nil || in.Name == "" {
		return "", nil, ferrule.Errorf(ferrule.Invalid, "%s takes the name of a tool, and its arguments as an object", callTool.Name)
	}
	return in.Name, in.Arguments, nil
}

// resolveFolded finds the one device of a Kind that is meant. A tool that was
// listed for one Kind is never called on a device of another.
func (c *Catalog) resolveFolded(name, prefix, tool string, args json.RawMessage) (string, string, json.RawMessage, error) {
	values, _, err := schema.Object(args)
	if err != nil {
		return "", "", nil, ferrule.Errorf(ferrule.Invalid, "the arguments of %s cannot be used: %w", ferrule.Clean(name, ferrule.MaxWord), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	offer := c.foldedOffer(prefix, tool)
	if offer == nil {
		if id, _ := values[deviceArgument].(string); c.entry(id) != nil && c.entry(id).group == nil {
			return "", "", nil, c.entry(id).device.OfflineError()
		}
		return "", "", nil, noTool(name)
	}
	id, _ := values[offer.Argument].(string)
	if id == "" {
		return "", "", nil, ferrule.Errorf(ferrule.Invalid, "%s takes the ID of the device that is meant, in %q", name, offer.Argument).
			WithHint("%s finds devices", Name("find_devices"))
	}
	e := c.entry(id)
	if e == nil {
		return "", "", nil, ferrule.NoDevice(id)
	}
	if e.group == nil {
		return "", "", nil, e.device.OfflineError()
	}
	if e.group.prefix != prefix {
		return "", "", nil, ferrule.Errorf(ferrule.Invalid, "%s is of another Kind than %s is for", id, name).
			WithHint("%s tells its tools", Name("find_tools"))
	}
	delete(values, offer.Argument)
	rest, err := schema.Encode(values)
	if err != nil {
		return "", "", nil, ferrule.Errorf(ferrule.Internal, "the arguments of %s cannot be told: %w", name, err)
	}
	return id, offer.Tool.Name, rest, nil
}

// foldedOffer finds what a name means that is folded.
func (c *Catalog) foldedOffer(prefix, tool string) *ferrule.Offer {
	name := prefix + separator + tool
	for _, g := range c.groups {
		if g.prefix != prefix {
			continue
		}
		for i, o := range g.offersFolded() {
			if o.Name == name || o.Tool.Name == tool {
				return &g.folded[i]
			}
		}
	}
	return nil
}

func noTool(name string) error {
	return ferrule.Errorf(ferrule.NotFound, "there is no tool %q", ferrule.Clean(name, ferrule.MaxWord)).
		WithHint("%s finds tools", Name("find_tools"))
}

// Offer is what a name offers, with all that a caller has to know.
func (c *Catalog) Offer(name string) (ferrule.Offer, error) {
	if name == callTool.Name {
		return callTool, nil
	}
	prefix, tool, ok := strings.Cut(name, separator)
	if !ok {
		return ferrule.Offer{}, noTool(name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if strings.Contains(prefix, foldMark) {
		o := c.foldedOffer(prefix, tool)
		if o == nil {
			return ferrule.Offer{}, noTool(name)
		}
		for _, g := range c.groups {
			if g.prefix == prefix {
				return g.describe(*o), nil
			}
		}
	}
	e := c.entry(prefix)
	switch {
	case e == nil:
		return ferrule.Offer{}, ferrule.NoDevice(prefix)
	case e.group == nil:
		return ferrule.Offer{}, e.device.OfflineError()
	}
	for _, o := range e.group.offersOn(e.device) {
		if o.Name == name || o.Tool.Name == tool {
			return o, nil
		}
	}
	return ferrule.Offer{}, noTool(name)
}
