package catalog

import (
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Prompt is a prompt of a device, under the name that agents see.
type Prompt struct {
	Name string
	*ferrule.Prompt
}

// Prompts returns the prompts of one device, named with its ID as prefix. It is empty
// unless the device is online.
func (v View) Prompts(id string) []Prompt { return v.promptsOf(id, id) }

// PromptsOf returns them under their own names, made portable for all clients.
func (v View) PromptsOf(id string) []Prompt { return v.promptsOf(id, "") }

func (v View) promptsOf(id, prefix string) []Prompt {
	e := v.c.entry(id)
	if e == nil || e.group == nil {
		return nil
	}
	list := []Prompt{}
	for i, name := range e.group.promptsFor(prefix) {
		if !v.seen.Item(e.device, e.manifest, ferrule.GetPrompt, e.manifest.Prompts[i].Name) {
			continue
		}
		if prefix != "" {
			name = prefix + separator + name
		}
		list = append(list, Prompt{name, &e.manifest.Prompts[i]})
	}
	slices.SortFunc(list, func(a, b Prompt) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// ResolvePrompt returns the device and prompt of a name. It does not check the device:
// the pipeline has the better error.
func (c *Catalog) ResolvePrompt(name string) (device, prompt string, err error) {
	device, prompt, ok := strings.Cut(name, separator)
	if !ok {
		return "", "", ferrule.Errorf(ferrule.NotFound, "unknown prompt %q", ferrule.Clean(name, ferrule.MaxWord))
	}
	return c.idOf(device), c.promptOn(device, device, prompt), nil
}

// ResolvePromptOn returns the prompt of a device for a name from PromptsOf.
func (c *Catalog) ResolvePromptOn(device, name string) (prompt string) {
	return c.promptOn(device, "", name)
}

// promptOn returns a prompt's own name for its name after a prefix. An unknown name is
// returned as it is.
func (c *Catalog) promptOn(device, prefix, name string) string {
	if e := c.entry(device); e != nil && e.group != nil {
		if i := slices.Index(e.group.promptsFor(prefix), name); i >= 0 {
			return e.manifest.Prompts[i].Name
		}
	}
	return name
}

// promptsFor returns the names of the group's prompts after a prefix, in their order.
func (g *group) promptsFor(prefix string) []string {
	room := maxName - len(prefix) - len(separator)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.prompts[room] == nil {
		own := make([]string, len(g.manifest.Prompts))
		for i := range g.manifest.Prompts {
			own[i] = g.manifest.Prompts[i].Name
		}
		if g.prompts == nil {
			g.prompts = make(map[int][]string)
		}
		g.prompts[room] = portableNames(own, room)
	}
	return g.prompts[room]
}
