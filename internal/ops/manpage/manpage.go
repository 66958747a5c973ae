// Package manpage writes manual pages in the format of man(7).
package manpage

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Date returns the date on the pages: SOURCE_DATE_EPOCH, for reproducible packages,
// else today.
func Date() (string, error) {
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

// Page builds a manual page in the format of man(7).
type Page struct{ strings.Builder }

// Head begins the page of a command or file, for a version of Ferrule.
func (p *Page) Head(name string, section int, date, version, short string) {
	fmt.Fprintf(p, ".TH \"%s\" %d %s \"ferrule %s\" Ferrule\n", roff(strings.ToUpper(name)), section, date, roff(version))
	p.Section("NAME")
	fmt.Fprintf(p, "%s \\- %s\n", roff(name), roff(strings.ToLower(short[:1])+short[1:]))
}

// Section begins a section.
func (p *Page) Section(title string) { fmt.Fprintf(p, ".SH %s\n", title) }

// Text writes paragraphs. Indented lines are not filled.
func (p *Page) Text(text string) {
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			p.WriteString(".PP\n")
		}
		if strings.HasPrefix(paragraph, "  ") {
			p.Literal(paragraph)
			continue
		}
		for line := range strings.Lines(paragraph) {
			p.WriteString(roffLine(strings.TrimRight(line, "\n")) + "\n")
		}
	}
}

// Literal writes lines that are not filled.
func (p *Page) Literal(text string) {
	p.WriteString(".nf\n")
	for line := range strings.Lines(text) {
		p.WriteString(roffLine(strings.TrimRight(line, "\n")) + "\n")
	}
	p.WriteString(".fi\n")
}

// Item writes a term and its explanation.
func (p *Page) Item(word, text string) {
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
