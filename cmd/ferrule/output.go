package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// The styles of text on a terminal.
const (
	bold  = "1"
	green = "32"
	red   = "31"
	faint = "2"
)

// style marks text, if it goes to a terminal whose owner does not mind.
func (a *app) style(style, text string) string {
	if !isTerminal(a.stdout) || !isTerminal(a.stderr) || os.Getenv("NO_COLOR") != "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// printJSON writes a value as JSON: for people to read, or in one line.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	if isTerminal(a.stdout) {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(v)
}

// table writes rows in columns.
func (a *app) table(header string, rows [][]string) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.ReplaceAll(header, " ", "\t"))
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// oneLine shortens a text for a table.
func oneLine(text string, most int) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
