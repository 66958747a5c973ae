package main

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"unicode/utf8"
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
	if !isTerminal(a.stdout) || !isTerminal(a.stderr) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
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

// terminal tells how wide and high the terminal is that is written to; nil if it is none
// on which lines can be drawn anew.
func (a *app) terminal() (size func() (width, height int)) {
	f, ok := a.stdout.(*os.File)
	if !ok || a.json || !isTerminal(f) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	if _, _, ok := terminalSize(f); !ok {
		return nil
	}
	return func() (int, int) {
		width, height, _ := terminalSize(f)
		return width, height
	}
}

// printJSON writes a value as JSON: for people to read, or in one line.
func (a *app) printJSON(v any) error {
	enc := a.jsonLines()
	if isTerminal(a.stdout) {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(v)
}

// jsonLines writes values as JSON, one in a line.
func (a *app) jsonLines() *json.Encoder {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	return enc
}

// ofNode is the name of a device, with its node if there are several.
func ofNode(device, node string, several bool) string {
	if several {
		return device + " at " + node
	}
	return device
}

// table writes rows in columns. Cells are styled when their width is known.
func (a *app) table(header string, rows [][]string, style func(column, cell string) string) error {
	columns := strings.Fields(header)
	rows = append([][]string{columns}, rows...)
	width := make([]int, len(columns))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var out strings.Builder
	for n, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			padding := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)+2)
			if n > 0 {
				cell = style(columns[i], cell)
			}
			line.WriteString(cell + padding)
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(a.stdout, out.String())
	return err
}

// oneLine shortens a text for a table.
func oneLine(text string, most int) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
