package devicetext

import (
	"fmt"
	"strings"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/terminal"
	"github.com/ferrulehq/ferrule/internal/measure/gauges"
)

// Description is what `ferrule describe` prints.
type Description struct {
	builtin.DescribeDeviceOutput
	Signals []builtin.LatestSignal `json:"signals"`
}

// Print returns a description for a terminal: what the device is, where it is connected,
// whether it is trusted, what it can do and what it measures.
func (d Description) Print(style terminal.Style) string {
	var b strings.Builder
	head(&b, d.Device, style)
	for _, line := range [][2]string{
		{"title", d.Device.OtherTitle()},
		{"earlier names", strings.Join(d.Device.Aliases, ", ")},
		{"connected", connection(d.Device)},
		{"state", d.Device.State + " since " + ferrule.FormatTime(d.Device.Since)},
		{"trust", trust(d.Device)},
		{"stopped", d.Device.Stopped},
	} {
		if line[1] != "" {
			fmt.Fprintf(&b, "  %-14s %s\n", line[0], clean(line[1]))
		}
	}
	tools(&b, d.DescribeDeviceOutput, style)
	d.pins(&b, style)
	d.signals(&b, style)
	return b.String()
}

func clean(text string) string { return ferrule.OneLine(ferrule.Clean(text, ferrule.MaxText), 200) }

// connection says where a device is connected.
func connection(d builtin.DescribedDevice) string {
	text := fmt.Sprintf("%s at %s", d.Transport, d.Address)
	if d.Protocol != "" {
		text += ", protocol " + d.Protocol
	}
	if d.Node != "" {
		text += ", on node " + d.Node
	}
	return text
}

// trust says whether a device may be used, and as what.
func trust(d builtin.DescribedDevice) string {
	text := d.Trust
	if d.Kind != "" {
		text += " as " + ferrule.Kind(d.Kind).Short()
	}
	if d.Changed != nil {
		text += ", changed at " + ferrule.FormatTime(*d.Changed)
	}
	if d.Asks {
		text += ", may ask its callers questions"
	}
	return text
}

// pins lists the pins.
func (d Description) pins(b *strings.Builder, style terminal.Style) {
	if len(d.Pins) == 0 {
		return
	}
	fmt.Fprintf(b, "\n  %s\n", style(terminal.Bold, "pins"))
	for _, p := range d.Pins {
		text := fmt.Sprintf("%d %s %s %s", p.Number, p.Name, p.Type, p.Text)
		if p.Interval != "" {
			text += ", sampled every " + p.Interval
		}
		fmt.Fprintf(b, "    %s\n", clean(text))
	}
}

// signals lists what is measured.
func (d Description) signals(b *strings.Builder, style terminal.Style) {
	if len(d.Signals) == 0 {
		return
	}
	fmt.Fprintf(b, "\n  %s\n", style(terminal.Bold, "signals"))
	for _, s := range d.Signals {
		fmt.Fprintf(b, "    %s\n", clean(fmt.Sprintf("%s %s at %s", s.Name, gauges.Value(s.Value, s.Unit), ferrule.FormatTime(s.Time))))
	}
}
