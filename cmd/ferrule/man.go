package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/ops/manpage"
)

// manCommand writes manual pages for packages. Cobra's generator goes through Markdown,
// which needs another library and breaks our tables.
func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages into a directory",
		Hidden: true,
		Args:   exactly(1),
		RunE: func(_ *cobra.Command, args []string) error {
			date, err := manpage.Date()
			if err != nil {
				return usageError{err}
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			for name, text := range manPages(a.root(), date) {
				if err := os.WriteFile(filepath.Join(args[0], name), []byte(text), 0o644); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// manPages returns the pages by file name: one for each command, and one for the
// configuration file.
func manPages(root *cobra.Command, date string) map[string]string {
	pages := map[string]string{"ferrule.yaml.5": manOfFile(date)}
	var add func(*cobra.Command)
	add = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		pages[manName(cmd)+".1"] = manOfCommand(cmd, date)
		for _, sub := range cmd.Commands() {
			add(sub)
		}
	}
	add(root)
	return pages
}

// manName returns the name of a command's page, such as ferrule-audit-verify.
func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

func manOfCommand(cmd *cobra.Command, date string) string {
	const width = 72
	c := manpage.Command{
		Name: manName(cmd), Short: cmd.Short, Use: cmd.UseLine(), Long: cmd.Long, Example: cmd.Example,
		Flags: cmd.LocalFlags().FlagUsagesWrapped(width), Inherited: cmd.InheritedFlags().FlagUsagesWrapped(width),
	}
	if cmd.HasParent() {
		c.Parent = manName(cmd.Parent())
	}
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			c.Commands = append(c.Commands, manpage.Command{Word: sub.Name(), Name: manName(sub), Short: sub.Short})
		}
	}
	return c.Page(date, version())
}

func manOfFile(date string) string {
	var p manpage.Page
	p.Head("ferrule.yaml", 5, date, version(), "configuration of Ferrule")
	p.Section("DESCRIPTION")
	p.Text("The configuration file of `ferrule up` and `ferrule mcp`: " + configName +
		", or the file that --config names. The packaged service reads /etc/ferrule/ferrule.yaml.")
	p.Section("EXAMPLE")
	p.Literal(strings.TrimRight(string(config.Sample), "\n"))
	p.Section("SEE ALSO")
	p.Text("ferrule-up(1), ferrule-mcp(1)")
	return p.String()
}
