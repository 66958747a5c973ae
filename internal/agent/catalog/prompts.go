package catalog

import (
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Prompt is a prompt of a device, under the name that agents have for it.
type Prompt struct {
	Name string
	*ferrule.Prompt
}

// Prompts lists the prompts of one device, with its ID in front of their names. It is
// empty unless the device is online.
func (c *Catalog) Prompts(id string) []Prompt { return c.promptsOf(id, id) }

// PromptsOf lists them under their own names, as far as every client takes them.
func (c *Catalog) PromptsOf(id string) []Prompt { return c.promptsOf(id, "") }

func (c *Catalog) promptsOf(id, prefix string) []Prompt {
	e := c.entry(id)
	if e == nil || e.group == nil {
		return nil
	}
	list := make([]Prompt, len(e.manifest.Prompts))
	for i, name := range e.group.promptsWithin(prefix) {
		if prefix != "" {
			name = prefix + separator + name
		}
		list[i] = Prompt{name, &e.manifest.Prompts[i]}
	}
	slices.SortFunc(list, func(a, b Prompt) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// ResolvePrompt tells which prompt of which device a name means. The device need not
// be there: the road says so better.
func (c *Catalog) ResolvePrompt(name string) (device, prompt string, err error) {
	device, prompt, ok := strings.Cut(name, separator)
	if !ok {
		return "", "", ferrule.Errorf(ferrule.NotFound, "there is no prompt %q", ferrule.Clean(name, ferrule.MaxWord))
	}
	return device, c.promptOn(device, device, prompt), nil
}

// ResolvePromptOn tells which prompt of a device is meant by a name that PromptsOf
// gave it.
func (c *Catalog) ResolvePromptOn(device, name string) (prompt string) {
	return c.promptOn(device, "", name)
}

// promptOn is a prompt's own name, by the one that it has behind a prefix. What is not
// known stays as it is.
func (c *Catalog) promptOn(device, prefix, name string) string {
	if e := c.entry(device); e != nil && e.group != nil {
		if i := slices.Index(e.group.promptsWithin(prefix), name); i >= 0 {
			return e.manifest.Prompts[i].Name
		}
	}
	return name
}

// promptsWithin are the names of the group's prompts behind a prefix, in their order.
func (g *group) promptsWithin(prefix string) []string {
	room := maxName - len(prefix) - len(separator)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.prompts[room] == nil {
		own := make([]string, len(g.manifest.Prompts))
		for i := range g.manifest.Prompts {
			own[i] = g.manifest.Prompts[i].Name
		}
		g.prompts[room] = portableNames(own, room)
	}
	return g.prompts[room]
}
