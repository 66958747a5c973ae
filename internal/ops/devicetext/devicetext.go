// Package devicetext shows devices and their tools on a terminal.
package devicetext

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/terminal"
	"github.com/ferrulehq/ferrule/internal/ops/arguments"
)

// None is what commands print if there are no devices.
const None = "No devices. Start the gateway with `ferrule up --serial auto` for boards that are plugged in, or try `ferrule sim mcpu`."

// Table returns devices as a table. Columns that say nothing are left out: the node
// if all have the same, resources and prompts if there are none.
func Table(devices []builtin.DescribedDevice) (header string, rows [][]string) {
	type device = builtin.DescribedDevice
	some := func(has func(d device) bool) bool { return slices.ContainsFunc(devices, has) }
	columns := []struct {
		name  string
		shown bool
		cell  func(d device) string
	}{
		{"DEVICE", true, func(d device) string { return d.ID }},
		{"TITLE", some(func(d device) bool { return d.OtherTitle() != "" }), device.OtherTitle},
		{"STATE", true, func(d device) string { return d.State }},
		{"TRUST", true, func(d device) string { return d.Trust }},
		{"MODEL", true, func(d device) string { return d.Model }},
		{"VERSION", true, func(d device) string { return d.Version }},
		{"TOOLS", true, func(d device) string { return strconv.Itoa(d.Tools) }},
		{"RESOURCES", some(func(d device) bool { return d.Resources > 0 }), func(d device) string { return strconv.Itoa(d.Resources) }},
		{"PROMPTS", some(func(d device) bool { return d.Prompts > 0 }), func(d device) string { return strconv.Itoa(d.Prompts) }},
		{"NODE", some(func(d device) bool { return d.Node != devices[0].Node }), func(d device) string { return d.Node }},
		{"LABELS", some(func(d device) bool { return d.LabelText() != "" }), device.LabelText},
		{"ADDRESS", true, func(d device) string { return d.Address }},
		{"REMARK", true, func(d device) string { return ferrule.OneLine(d.Remark(), 200) }},
	}
	rows = make([][]string, len(devices))
	for _, c := range columns {
		if !c.shown {
			continue
		}
		header += " " + c.name
		for i, d := range devices {
			rows[i] = append(rows[i], c.cell(d))
		}
	}
	return header[1:], rows
}

// State returns the state of a device in its color.
func State(state string, style terminal.Style) string {
	if state == string(ferrule.StateOnline) {
		return style(terminal.Green, state)
	}
	return style(terminal.Red, state)
}

// Tools lists the tools of a device with their arguments, and its resources and prompts.
func Tools(about builtin.DescribeDeviceOutput, style terminal.Style) string {
	var b strings.Builder
	head(&b, about.Device, style)
	tools(&b, about, style)
	fmt.Fprintln(&b)
	return b.String()
}

// head says what a device is and how it is.
func head(b *strings.Builder, d builtin.DescribedDevice, style terminal.Style) {
	fmt.Fprintf(b, "%s  ", style(terminal.Bold, d.ID))
	if d.Model != "" {
		fmt.Fprintf(b, "%s %s  ", d.Model, d.Version)
	}
	fmt.Fprintln(b, State(d.State, style))
	if text := d.LabelText(); text != "" {
		fmt.Fprintf(b, "  labels: %s\n", text)
	}
	if text := d.Remark(); text != "" && d.State != string(ferrule.StateOnline) {
		fmt.Fprintf(b, "  %s\n", text)
	}
	for _, note := range d.Notes {
		fmt.Fprintf(b, "  note: %s\n", note)
	}
}

// tools lists tools, resources and prompts.
func tools(b *strings.Builder, about builtin.DescribeDeviceOutput, style terminal.Style) {
	d := about.Device
	if len(about.Tools) == 0 {
		fmt.Fprintln(b, "  no tools")
	}
	pending := d.Trust == string(ferrule.TrustPending) // then schemas and overlays are not read
	if pending && len(about.Tools) > 0 {
		fmt.Fprintf(b, "  pending: run `ferrule adopt %s` to use it and to see effects and arguments\n", d.ID)
	}
	for _, t := range about.Tools {
		if pending {
			fmt.Fprintf(b, "\n  %s\n", style(terminal.Bold, t.Name))
		} else {
			fmt.Fprintf(b, "\n  %s  %s\n", style(terminal.Bold, t.Name), style(terminal.Faint, t.Traits()))
		}
		if t.Text != "" {
			fmt.Fprintf(b, "    %s\n", ferrule.OneLine(t.Text, 200))
		}
		if t.Quarantine != "" {
			fmt.Fprintf(b, "    %s %s\n", style(terminal.Red, "cannot be used:"), t.Quarantine)
		}
		if t.Quarantine != "" || pending {
			continue
		}
		for _, line := range arguments.Describe(json.RawMessage(t.Input)) {
			fmt.Fprintf(b, "    %s\n", line)
		}
	}
	names(b, style, "resources", about.Resources, about.MoreResources)
	names(b, style, "prompts", about.Prompts, about.MorePrompts)
}

// names lists resources or prompts.
func names(b *strings.Builder, style terminal.Style, what string, names []string, more int) {
	if len(names)+more == 0 {
		return
	}
	fmt.Fprintf(b, "\n  %s\n", style(terminal.Bold, what))
	for _, name := range names {
		fmt.Fprintf(b, "    %s\n", ferrule.OneLine(name, 200))
	}
	if more > 0 {
		fmt.Fprintf(b, "    and %d more\n", more)
	}
}
