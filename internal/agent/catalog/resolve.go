package catalog

import (
	"encoding/json"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
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
	case !ok:
		return "", "", nil, noTool(name)
	case strings.Contains(prefix, foldMark):
		return c.resolveFolded(name, prefix, tool, args)
	}
	return prefix, c.toolOn(prefix, prefix, tool), args, nil
}

// ResolveOn tells which tool of a device is meant by a name that Of gave it.
func (c *Catalog) ResolveOn(device, name string) (tool string) {
	return c.toolOn(device, "", name)
}

// toolOn is a tool's own name, by the one that it has behind a prefix. What is
// not known stays as it is.
func (c *Catalog) toolOn(device, prefix, name string) string {
	if e := c.entry(device); e != nil && e.group != nil {
		if i := e.group.find(prefix, name); i >= 0 {
			return e.group.tools[i].Name
		}
	}
	return name
}

// unwrap reads the arguments of call_tool.
func unwrap(args json.RawMessage) (name string, rest json.RawMessage, err error) {
	values, _, err := schema.DecodeArgs(args)
	if err != nil {
		return "", nil, ferrule.Errorf(ferrule.Invalid, "the arguments of %s cannot be used: %w", callTool.Name, err)
	}
	name, _ = values["name"].(string)
	inner, given := values["arguments"]
	_, object := inner.(map[string]any)
	delete(values, "name")
	delete(values, "arguments")
	if name == "" || given && !object || len(values) > 0 {
		return "", nil, ferrule.Errorf(ferrule.Invalid, "%s takes the name of a tool, its arguments as an object, and nothing else", callTool.Name).
			WithHint("what the tool itself takes stands in \"arguments\"")
	}
	if name == callTool.Name {
		return "", nil, ferrule.Errorf(ferrule.Invalid, "%s does not call itself", callTool.Name)
	}
	if !given {
		return name, nil, nil
	}
	if rest, err = schema.Encode(inner); err != nil {
		return "", nil, ferrule.Errorf(ferrule.Internal, "the arguments of %s cannot be told: %w", callTool.Name, err)
	}
	return name, rest, nil
}

// resolveFolded finds the one device of a Kind that is meant. A tool that was
// listed for one Kind is never called on a device of another.
func (c *Catalog) resolveFolded(name, prefix, tool string, args json.RawMessage) (string, string, json.RawMessage, error) {
	shown := ferrule.Clean(name, ferrule.MaxWord)
	values, _, err := schema.DecodeArgs(args)
	if err != nil {
		return "", "", nil, ferrule.Errorf(ferrule.Invalid, "the arguments of %s cannot be used: %w", shown, err)
	}
	c.mu.RLock()
	g := c.folded(prefix)
	c.mu.RUnlock()
	if g == nil { // all of them may have gone
		if e := c.anyIn(values); e != nil && e.group == nil {
			return "", "", nil, e.device.OfflineError()
		}
		return "", "", nil, noTool(name)
	}
	i := g.find(prefix, tool)
	if i < 0 {
		if e := c.anyIn(values); e != nil {
			return e.device.ID, tool, args, nil // the road refuses it, and the journal has it
		}
		return "", "", nil, noTool(name)
	}
	argument := g.input(i).argument
	id, _ := values[argument].(string)
	if id == "" {
		return "", "", nil, ferrule.Errorf(ferrule.Invalid, "%s takes the ID of the device that is meant, in %q", shown, argument).
			WithHint("%s finds devices", Name("find_devices"))
	}
	e := c.entry(id)
	switch {
	case e == nil || id == ferrule.GatewayID:
		return "", "", nil, ferrule.UnknownDevice(id)
	case e.group == nil:
		return "", "", nil, e.device.OfflineError()
	case e.group.print != g.print:
		return "", "", nil, ferrule.Errorf(ferrule.Invalid, "%s is not of the Kind that %s is for", id, shown).
			WithHint("%s tells its tools", Name("find_tools"))
	}
	delete(values, argument)
	rest, err := schema.Encode(values)
	if err != nil {
		return "", "", nil, ferrule.Errorf(ferrule.Internal, "the arguments of %s cannot be told: %w", shown, err)
	}
	return id, g.tools[i].Name, rest, nil
}

// anyIn is a device that arguments name, where it is no longer known in which of
// them a tool takes it.
func (c *Catalog) anyIn(values map[string]any) *entry {
	const most = 8
	for n := range most {
		if id, ok := values[deviceArgument(n)].(string); ok {
			if e := c.entry(id); e != nil {
				return e
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
	if strings.Contains(prefix, foldMark) {
		c.mu.Lock()
		g := c.folded(prefix)
		var members view
		if g != nil {
			members = g.members.look()
		}
		c.mu.Unlock()
		if g != nil {
			if i := g.find(prefix, tool); i >= 0 {
				return describe(g.offerFolded(prefix, i), members), nil
			}
		}
		return ferrule.Offer{}, noTool(name)
	}
	e := c.entry(prefix)
	switch {
	case e == nil:
		return ferrule.Offer{}, ferrule.UnknownDevice(prefix)
	case e.group == nil:
		return ferrule.Offer{}, e.device.OfflineError()
	}
	i := e.group.find(prefix, tool)
	if i < 0 {
		return ferrule.Offer{}, noTool(name)
	}
	return e.group.offerOn(e.device, i, prefix+separator+e.group.namesWithin(prefix)[i]), nil
}
