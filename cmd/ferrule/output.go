package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/terminal"
	"github.com/ferrulehq/ferrule/internal/ops/table"
)

// The styles of text on a terminal.
const (
	bold  = terminal.Bold
	green = terminal.Green
	red   = terminal.Red
	faint = terminal.Faint
)

// style adds a style to text, if the output is a terminal that supports it.
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
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull) // a character device too
	return err != nil || !os.SameFile(info, null)
}

// terminal returns a function that returns the size of the terminal, or nil if the output
// is not a terminal on which lines can be redrawn.
func (a *app) terminal() (size func() (width, height int)) {
	f, ok := a.stdout.(*os.File)
	if !ok || a.json || !isTerminal(f) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	if _, _, ok := terminal.Size(f); !ok {
		return nil
	}
	return func() (int, int) {
		width, height, _ := terminal.Size(f)
		return width, height
	}
}

// printJSON prints a value as JSON: indented on a terminal, else in one line.
func (a *app) printJSON(v any) error {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if isTerminal(a.stdout) {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := a.stdout.Write(ferrule.EscapeHidden(out.Bytes())) // a device may have written it
	return err
}

// jsonLines returns an encoder that prints one value per line.
func (a *app) jsonLines() *json.Encoder {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	return enc
}

// deviceName returns the name of a device, with its node if the gateway is in a cluster.
func deviceName(device, node string, cluster bool) string {
	if cluster {
		return device + " on " + node
	}
	return device
}

// table prints rows in columns, which fit the terminal if it is one: spare columns are left
// out. Style is applied to cells after they are aligned.
func (a *app) table(header string, rows [][]string, style func(column, cell string) string, spare ...string) error {
	width := 0
	if size := a.terminal(); size != nil {
		width, _ = size()
	}
	_, err := io.WriteString(a.stdout, table.Format(strings.Fields(header), rows, width, style, spare...))
	return err
}
