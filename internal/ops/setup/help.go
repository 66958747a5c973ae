package setup

import (
	"fmt"
	"strings"
)

// Help returns the help text of `ferrule setup`, with a list of the clients.
func Help() string {
	var b strings.Builder
	b.WriteString(help)
	for _, c := range Clients() {
		fmt.Fprintf(&b, "  %-16s %s\n", c.Name, c.Title)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

const help = `Add Ferrule to the configuration of an agent program, so that it starts ` + "`ferrule mcp`" + `
by itself. If the packaged service runs, the agent program uses it, and starts no second
gateway. With --http it connects to the gateway that ` + "`ferrule up`" + ` runs, with a token
that is made for it, or rotated if there is one. Without a client, list the clients and
which of them are set up. For the devices of a Home Assistant, see
` + "`ferrule setup homeassistant --help`" + `.

The flags after -- are those of ` + "`ferrule mcp`" + `; the default is --serial auto. The client
starts this binary by its path: the one in PATH if there is one, because it survives
updates. Project files name just ferrule if it is in PATH.

Nothing else in the file changes: comments and your additions to Ferrule's entry stay.
Before the first change a backup FILE.ferrule-backup is written, later ones have a
number, and no backup is overwritten. A file that cannot be parsed is not changed.

`

// Text says what was done to the file of a client.
func (d Done) Text(client Client, server string, remove bool) (text string) {
	switch {
	case !d.Changed && remove:
		text = fmt.Sprintf("%s is not in %s.\n", server, d.Path)
	case !d.Changed:
		text = fmt.Sprintf("%s is already in %s.\n", server, d.Path)
	case remove:
		text = fmt.Sprintf("Removed %s from %s.\n", server, d.Path)
	default:
		text = fmt.Sprintf("Added %s to %s. %s\n", server, d.Path, client.Next)
	}
	if d.Backup != "" {
		text += fmt.Sprintf("Backup saved to %s.\n", d.Backup)
	}
	return text
}
