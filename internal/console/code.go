package console

import (
	"regexp"
	"strings"
)

// codeLine is a line of source text, in parts with a class each.
type codeLine struct {
	N     int // from 1
	Hit   bool
	Parts []codePart
}

// codePart is a part of a line: a comment, a text, a keyword or anything else.
type codePart struct{ Class, Text string }

// codeParts matches what is colored in Cedar, YAML, JSON and TOML.
var codeParts = regexp.MustCompile(`(//[^\n]*|#[^\n]*)|("(?:[^"\\\n]|\\.)*")|\b(permit|forbid|when|unless|if|then|else|in|is|has|like)\b`)

// maxCode limits the source text on a page, in bytes.
const maxCode = 256 << 10

// code returns source text as lines. Those from first to last are marked.
func code(text string, first, last int) (lines []codeLine) {
	if len(text) > maxCode {
		text = text[:maxCode] + "\n// The rest is too long for this page."
	}
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		l := codeLine{N: i + 1, Hit: i+1 >= first && i+1 <= last}
		end := 0
		for _, m := range codeParts.FindAllStringSubmatchIndex(line, -1) {
			class := "k"
			switch {
			case m[2] >= 0:
				class = "c"
			case m[4] >= 0:
				class = "s"
			}
			l.Parts = append(l.Parts, codePart{"", line[end:m[0]]}, codePart{class, line[m[0]:m[1]]})
			end = m[1]
		}
		l.Parts = append(l.Parts, codePart{"", line[end:]})
		lines = append(lines, l)
	}
	return lines
}

// commands returns the parts of a message. Commands stand between backticks.
func commands(text string) (parts []codePart) {
	for i, part := range strings.Split(text, "`") {
		parts = append(parts, codePart{strings.Repeat("command", i%2), part})
	}
	return parts
}
