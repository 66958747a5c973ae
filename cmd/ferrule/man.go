package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/ops/config"
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
			date, err := manDate()
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

// manDate returns the date on the pages: SOURCE_DATE_EPOCH, for reproducible packages,
// else today.
func manDate() (string, error) {
	at := time.Now()
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return "", fmt.Errorf("SOURCE_DATE_EPOCH must be a number of seconds, got %q", epoch)
		}
		at = time.Unix(seconds, 0)
	}
	return at.UTC().Format(time.DateOnly), nil
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
	var p page
	p.head(manName(cmd), 1, date, cmd.Short)
	p.section("SYNOPSIS")
	p.literal(cmd.UseLine())
	p.section("DESCRIPTION")
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	p.text(text)
	if cmd.HasAvailableSubCommands() {
		p.section("COMMANDS")
		for _, sub := range cmd.Commands() {
			if !sub.Hidden {
				p.item(sub.Name(), sub.Short+".")
			}
		}
	}
	const width = 72
	if flags := cmd.LocalFlags().FlagUsagesWrapped(width); flags != "" {
		p.section("OPTIONS")
		p.literal(strings.TrimRight(flags, "\n"))
	}
	if flags := cmd.InheritedFlags().FlagUsagesWrapped(width); flags != "" {
		p.section("GLOBAL OPTIONS")
		p.literal(strings.TrimRight(flags, "\n"))
	}
	if cmd.Example != "" {
		p.section("EXAMPLES")
		p.literal(cmd.Example)
	}
	var also []string
	if cmd.HasParent() {
		also = append(also, manName(cmd.Parent())+"(1)")
	}
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			also = append(also, manName(sub)+"(1)")
		}
	}
	p.section("SEE ALSO")
	p.text(strings.Join(append(also, "ferrule.yaml(5)"), ", "))
	return p.String()
}

func manOfFile(date string) string {
	var p page
	p.head("ferrule.yaml", 5, date, "configuration of Ferrule")
	p.section("DESCRIPTION")
	p.text("The configuration file of `ferrule up` and `ferrule mcp`: " + configName +
		", or the file that --config names. The packaged service reads /etc/ferrule/ferrule.yaml.")
	p.section("EXAMPLE")
	p.literal(strings.TrimRight(string(config.Sample), "\n"))
	p.section("SEE ALSO")
	p.text("ferrule-up(1), ferrule-mcp(1)")
	return p.String()
}

// page builds a manual page in the format of man(7).
type page struct{ strings.Builder }

func (p *page) head(name string, section int, date, short string) {
	fmt.Fprintf(p, ".TH \"%s\" %d %s \"ferrule %s\" Ferrule\n", roff(strings.ToUpper(name)), section, date, roff(version()))
	p.section("NAME")
	fmt.Fprintf(p, "%s \\- %s\n", roff(name), roff(strings.ToLower(short[:1])+short[1:]))
}

func (p *page) section(title string) { fmt.Fprintf(p, ".SH %s\n", title) }

// text writes paragraphs. Indented lines are not filled.
func (p *page) text(text string) {
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			p.WriteString(".PP\n")
		}
		if strings.HasPrefix(paragraph, "  ") {
			p.literal(paragraph)
			continue
		}
		for line := range strings.Lines(paragraph) {
			p.WriteString(roffLine(strings.TrimRight(line, "\n")) + "\n")
		}
	}
}

// literal writes lines that are not filled.
func (p *page) literal(text string) {
	p.WriteString(".nf\n")
	for line := range strings.Lines(text) {
		p.WriteString(roffLine(strings.TrimRight(line, "\n")) + "\n")
	}
	p.WriteString(".fi\n")
}

// item writes a term and its explanation.
func (p *page) item(word, text string) {
	fmt.Fprintf(p, ".TP\n%s\n%s\n", roffLine(word), roffLine(text))
}

// roffLine escapes a line so that it does not begin a macro.
func roffLine(line string) string {
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		return `\&` + roff(line)
	}
	return roff(line)
}

// roff escapes text.
func roff(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '"':
			b.WriteString(`\(dq`)
		case r == '\'':
			b.WriteString(`\(aq`)
		case r == '`':
			b.WriteString(`\(ga`)
		case r == '^':
			b.WriteString(`\(ha`)
		case r == '~':
			b.WriteString(`\(ti`)
		case r > '~':
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
