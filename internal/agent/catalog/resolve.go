package catalog

import (
	"encoding/json"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// Resolve returns the device, tool and arguments of a call by name. It does not check the
// device of a plain name: the pipeline has the better error.
func (c *Catalog) Resolve(name string, args json.RawMessage) (device, tool string, rest json.RawMessage, err error) {
	if name == callTool.Name {
		if name, args, err = unwrap(args); err != nil {
			return "", "", nil, err
		}
	}
	prefix, tool, ok := strings.Cut(name, separator)
	switch {
	case !ok:
		return "", "", nil, unknownTool(name)
	case strings.Contains(prefix, foldMark):
		return c.resolveFolded(name, prefix, tool, args)
	}
	return c.idOf(prefix), c.toolOn(prefix, prefix, tool), args, nil
}

// idOf returns the ID of a device that is given by its ID or an earlier one. An unknown ID
// is returned as it is.
func (c *Catalog) idOf(id string) string {
	if e := c.entry(id); e != nil {
		return e.id
	}
	return id
}

// ResolveOn returns the tool of a device for a name from Of.
func (c *Catalog) ResolveOn(device, name string) (tool string) {
	return c.toolOn(device, "", name)
}

// toolOn returns a tool's own name for its name after a prefix. An unknown name is
// returned as it is.
func (c *Catalog) toolOn(device, prefix, name string) string {
	if e := c.entry(device); e != nil && e.group != nil {
		if i := e.group.find(prefix, name); i >= 0 {
			return e.group.tools[i].Name
		}
	}
	return name
}

// unwrap decodes the arguments of call_tool.
func unwrap(args json.RawMessage) (name string, rest json.RawMessage, err error) {
	values, _, err := schema.DecodeArgs(args)
	if err != nil {
		return "", nil, ferrule.Errorf(ferrule.Invalid, "invalid arguments for %s: %w", callTool.Name, err)
	}
	name, _ = values["name"].(string)
	inner, given := values["arguments"]
	_, object := inner.(map[string]any)
	delete(values, "name")
	delete(values, "arguments")
	if name == "" || given && !object || len(values) > 0 {
		return "", nil, ferrule.Errorf(ferrule.Invalid, "%s takes only name and arguments (an object)", callTool.Name).
			WithHint("Put the arguments of the tool into \"arguments\".")
	}
	if name == callTool.Name {
		return "", nil, ferrule.Errorf(ferrule.Invalid, "%s cannot call itself", callTool.Name)
	}
	if !given {
		return name, nil, nil
	}
	if rest, err = schema.Encode(inner); err != nil {
		return "", nil, ferrule.Errorf(ferrule.Internal, "encoding the arguments of %s: %w", callTool.Name, err)
	}
	return name, rest, nil
}

// resolveFolded resolves the name of a folded tool. A tool that was listed for one Kind is
// never called on a device of another.
func (c *Catalog) resolveFolded(name, prefix, tool string, args json.RawMessage) (string, string, json.RawMessage, error) {
	shown := ferrule.Clean(name, ferrule.MaxWord)
	values, _, err := schema.DecodeArgs(args)
	if err != nil {
		return "", "", nil, ferrule.Errorf(ferrule.Invalid, "invalid arguments for %s: %w", shown, err)
	}
	c.mu.RLock()
	g := c.folded(prefix)
	c.mu.RUnlock()
	if g == nil { // all of its devices may be gone
		if e, _ := c.withoutDevice(values); e != nil && e.group == nil {
			return "", "", nil, e.device.OfflineError()
		}
		return "", "", nil, unknownTool(name)
	}
	i := g.find(prefix, tool)
	if i < 0 {
		if e, rest := c.withoutDevice(values); e != nil {
			return e.id, tool, rest, nil // the pipeline refuses and records it
		}
		return "", "", nil, unknownTool(name)
	}
	argument := g.input(i).argument
	id, _ := values[argument].(string)
	if id == "" {
		return "", "", nil, ferrule.Errorf(ferrule.Invalid, "%s needs a device ID in %q", shown, argument).
			WithHint("Find the device with %s.", Name("find_devices"))
	}
	e := c.entry(id)
	switch {
	case e == nil || id == ferrule.GatewayID:
		return "", "", nil, ferrule.UnknownDevice(id)
	case e.group == nil:
		return "", "", nil, e.device.OfflineError()
	case e.group.fingerprint != g.fingerprint && !e.group.agrees(g.kind, g.tools[i]):
		return "", "", nil, ferrule.Errorf(ferrule.Invalid, "%s is not of the Kind of %s", id, shown).
			WithHint("Find its tools with %s.", Name("find_tools"))
	}
	delete(values, argument)
	rest, err := schema.Encode(values)
	if err != nil {
		return "", "", nil, ferrule.Errorf(ferrule.Internal, "encoding the arguments of %s: %w", shown, err)
	}
	return e.id, g.tools[i].Name, rest, nil
}

// withoutDevice returns a device named in arguments, if it is unknown which argument has
// it, and the other arguments. A tool with a device argument of its own has the device in
// a later one.
func (c *Catalog) withoutDevice(values map[string]any) (*entry, json.RawMessage) {
	const limit = 8
	for n := limit - 1; n >= 0; n-- {
		argument := deviceArgument(n)
		id, ok := values[argument].(string)
		if !ok {
			continue
		}
		if e := c.entry(id); e != nil {
			delete(values, argument)
			if rest, err := schema.Encode(values); err == nil {
				return e, rest
			}
		}
	}
	return nil, nil
}

func unknownTool(name string) error {
	return ferrule.Errorf(ferrule.NotFound, "unknown tool %q", ferrule.Clean(name, ferrule.MaxWord)).
		WithHint("Find tools with %s.", Name("find_tools"))
}

// Offer returns the offer with a name, including its devices. What is hidden is unknown.
func (v View) Offer(name string) (ferrule.Offer, error) {
	c := v.c
	if name == callTool.Name {
		return callTool, nil
	}
	prefix, tool, ok := strings.Cut(name, separator)
	if !ok {
		return ferrule.Offer{}, unknownTool(name)
	}
	if strings.Contains(prefix, foldMark) {
		c.mu.Lock()
		g := c.folded(prefix)
		var members snapshot
		if g != nil {
			members = g.members.take()
		}
		c.mu.Unlock()
		if g != nil {
			if i := g.find(prefix, tool); i >= 0 {
				if o := v.describe(g.offerFolded(prefix, i), members); o.Count > 0 {
					return o, nil
				}
			}
		}
		return ferrule.Offer{}, unknownTool(name)
	}
	e := v.entry(prefix)
	switch {
	case e == nil:
		return ferrule.Offer{}, ferrule.UnknownDevice(prefix)
	case e.group == nil:
		return ferrule.Offer{}, e.device.OfflineError()
	}
	i := e.group.find(prefix, tool)
	if i < 0 || !v.seen.Tool(e.device, e.group.tools[i]) {
		return ferrule.Offer{}, unknownTool(name)
	}
	return e.group.offerOn(e.device, i, prefix+separator+e.group.namesFor(prefix)[i]), nil
}
