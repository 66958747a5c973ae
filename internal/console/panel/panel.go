// Package panel has the panels for chat programs (MCP Apps): HTML documents that a program
// draws in a frame beside the result of a tool.
//
//	host ── postMessage, JSON-RPC ── view.js ── device.js, history.js, approval.js
//	  └─ tools/call ─▶ gateway
//
// A panel contains no data, because programs fetch it early and keep it: it draws the
// structured content of the result, and asks for newer data with read-only tools. It makes
// no request of its own. Style and icons are those of the console, in the colors of the host.
//
// What a panel calls is a call of its agent: nothing in it tells the two apart. So no panel
// approves anything.
package panel

import (
	"embed"
	"fmt"
	"strings"
	"sync"

	"github.com/ferrulehq/ferrule/internal/console/static"
	"github.com/ferrulehq/ferrule/internal/console/templates"
)

//go:embed *.js *.css
var files embed.FS

// MaxSize is the size limit of a panel in bytes.
const MaxSize = 100 << 10

// Device returns the panel of show_device: values and controls of a device.
func Device() string { return device() }

// History returns the panel of history: curves with gaps.
func History() string { return history() }

// Approval returns the panel of approval_status: what waits for a person.
func Approval() string { return approval() }

var (
	device   = document("Device", "device.js")
	history  = document("History", "history.js")
	approval = document("Approval", "approval.js")
)

// styles are the files of the console's style sheet that panels use.
var styles = []string{"10-tokens.css", "20-base.css", "40-controls.css", "45-cards.css", "50-tables.css", "60-charts.css", "70-pages.css"}

// document returns a function that makes a document.
func document(title, script string) func() string {
	return sync.OnceValue(func() string {
		return fmt.Sprintf(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>%s · Ferrule</title>
<style>
%s%s</style>
</head>
<body>
%s
<main class="panel" id="panel"></main>
<script>
(() => {
"use strict";
%s
%s
})();
</script>
</body>
</html>
`, title, static.CSS(styles...), text("panel.css"), strings.TrimSpace(templates.Icons()), text("view.js"), text(script))
	})
}

func text(name string) string {
	data, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(data)
}
