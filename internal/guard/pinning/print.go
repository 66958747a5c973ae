package pinning

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// MinKind is the length of the shortest prefix of a Kind that can be accepted.
const MinKind = 12

// Print returns a report as text for a terminal. Style adds a style to a text: it is
// called with Removed, Added, and with "" for names. What a device wrote cannot look like
// a part of the report: hidden characters and markers are escaped, and lines are indented.
func (r Report) Print(style func(op, text string) string) string {
	if r.Since != "" {
		return r.printSince(style)
	}
	var b strings.Builder
	if r.Offered == "" {
		fmt.Fprintf(&b, "%s is as you accepted it (%s).\n", r.Device, r.Accepted.Short())
		return b.String()
	}
	fmt.Fprintf(&b, "%s says something else than you accepted; %s.\n", r.Device, r.waiting())
	if len(r.Changes) == 0 {
		b.WriteString("All of it is in use. Effects may have become stricter.\n")
	}
	if r.Note != "" {
		fmt.Fprintln(&b, r.Note)
	}
	r.printChanges(&b, style)
	fmt.Fprintf(&b, "\nAccepted is %s, offered is %s.\n", r.Accepted.Short(), r.Offered.Short())
	if r.Incomplete {
		b.WriteString("There is more than can be shown here. Accept it only if you trust the source of the change.\n")
	}
	fmt.Fprintf(&b, "To accept all of it, run `ferrule accept %s --kind %s`.\n", r.Device, r.Offered.Short())
	return b.String()
}

// printSince is Print for a comparison with an earlier Kind.
func (r Report) printSince(style func(op, text string) string) string {
	var b strings.Builder
	if r.Now == r.Since {
		fmt.Fprintf(&b, "%s says the same about itself as before (%s).\n", r.Device, r.Now.Short())
		return b.String()
	}
	fmt.Fprintf(&b, "%s has changed: it is %s, and was %s; %s.\n", r.Device, r.Now.Short(), r.Since.Short(), r.waiting())
	if r.Note != "" {
		fmt.Fprintln(&b, r.Note)
	}
	r.printChanges(&b, style)
	if r.Incomplete {
		b.WriteString("\nThere is more than can be shown here.\n")
	}
	if r.Waiting > 0 {
		fmt.Fprintf(&b, "\nTo accept all of it, run `ferrule accept %s --kind %s`.\n", r.Device, r.Offered.Short())
	}
	return b.String()
}

// waiting says how many changes are not in use.
func (r Report) waiting() string {
	switch r.Waiting {
	case 0:
		return "no change waits"
	case 1:
		return "1 change is not in use until you accept it"
	}
	return fmt.Sprintf("%d changes are not in use until you accept them", r.Waiting)
}

func (r Report) printChanges(b *strings.Builder, style func(op, text string) string) {
	for _, c := range r.Changes {
		fmt.Fprintf(b, "\n%-8s %s %s", c.Change, c.What, style("", escape(c.Name, "")))
		if c.Waits {
			b.WriteString("  (waits)")
		}
		b.WriteByte('\n')
		for _, f := range c.Fields {
			b.WriteString("    " + f.Name + ": " + f.print(style))
			if f.Note != "" {
				b.WriteString("  (" + f.Note + ")")
			}
			b.WriteByte('\n')
		}
	}
}

func (f Field) print(style func(op, text string) string) string {
	const indent = "\n        "
	if f.Edits == nil {
		return "(too long to show)"
	}
	var b strings.Builder
	for _, e := range groups(f.Edits) {
		text := escape(e.Text, indent)
		switch e.Op {
		case Removed:
			text = style(Removed, "[-"+text+"-]")
		case Added:
			text = style(Added, "{+"+text+"+}")
		}
		b.WriteString(text)
	}
	return b.String()
}

// markers are the characters that mark a removed or added text.
var markers = strings.NewReplacer("[-", `[\-`, "-]", `-\]`, "{+", `{\+`, "+}", `+\}`)

// escape makes a text of a device safe to print. Line breaks become indent.
func escape(text, indent string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == '\n' && indent != "":
			b.WriteString(indent)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case r == 0x7f || !ferrule.Visible(string(r)):
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteRune(r)
		}
		text = text[n:]
	}
	return markers.Replace(b.String())
}
