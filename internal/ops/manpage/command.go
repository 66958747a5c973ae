package manpage

import (
	"cmp"
	"strings"
)

// Command is a command that has a page.
type Command struct {
	Name string // of the page, such as ferrule-audit-verify
	Word string // as it is typed, such as verify
	// Short, Use, Long and Example are the help of the command; Flags and Inherited are
	// the descriptions of its flags.
	Short, Use, Long, Example string
	Flags, Inherited          string
	Parent                    string // the Name of the command above it
	Commands                  []Command
}

// Page returns the page of a command.
func (c Command) Page(date, version string) string {
	var p Page
	p.Head(c.Name, 1, date, version, c.Short)
	p.Section("SYNOPSIS")
	p.Literal(c.Use)
	p.Section("DESCRIPTION")
	p.Text(cmp.Or(c.Long, c.Short+"."))
	if len(c.Commands) > 0 {
		p.Section("COMMANDS")
		for _, sub := range c.Commands {
			p.Item(sub.Word, sub.Short+".")
		}
	}
	for _, s := range []struct{ title, text string }{
		{"OPTIONS", strings.TrimRight(c.Flags, "\n")}, {"GLOBAL OPTIONS", strings.TrimRight(c.Inherited, "\n")}, {"EXAMPLES", c.Example},
	} {
		if s.text != "" {
			p.Section(s.title)
			p.Literal(s.text)
		}
	}
	var also []string
	if c.Parent != "" {
		also = append(also, c.Parent+"(1)")
	}
	for _, sub := range c.Commands {
		also = append(also, sub.Name+"(1)")
	}
	p.Section("SEE ALSO")
	p.Text(strings.Join(append(also, "ferrule.yaml(5)"), ", "))
	return p.String()
}
