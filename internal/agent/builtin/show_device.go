package builtin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// ShowDeviceTool is the name of show_device. A panel draws its result.
const ShowDeviceTool = "show_device"

// OffersOn returns the tools of a device under the names by which a caller's list has them.
// Through is the listed tool that calls them, if the list does not have them.
type OffersOn func(who ferrule.Principal, device string) (offers []ferrule.Offer, through string)

// ShowDeviceInput has the arguments of show_device.
type ShowDeviceInput struct {
	Device string `json:"device" jsonschema:"ID of the device"`
	Brief  bool   `json:"brief,omitempty" jsonschema:"only state and values"`
}

// ShowDeviceOutput is the result of show_device, for a program that draws it.
type ShowDeviceOutput struct {
	Device     PanelDevice  `json:"device"`
	Time       time.Time    `json:"time"`
	Values     []PanelValue `json:"values"`
	MoreValues int          `json:"more_values,omitempty"`
	Tools      []PanelTool  `json:"tools,omitempty"`
	MoreTools  int          `json:"more_tools,omitempty"`
}

// PanelDevice is the head of a panel.
type PanelDevice struct {
	ID      string    `json:"id"`
	Title   string    `json:"title,omitempty"`
	Model   string    `json:"model,omitempty"`
	Version string    `json:"version,omitempty"`
	State   string    `json:"state"`
	Since   time.Time `json:"since"`
	Reason  string    `json:"reason,omitempty"`
	Stopped string    `json:"stopped,omitempty"`
}

// PanelValue is the latest value of a signal, and its curve of the last hour.
type PanelValue struct {
	Name  string    `json:"name"`
	Value float64   `json:"value"`
	Unit  string    `json:"unit,omitempty"`
	Time  time.Time `json:"time"`
	// Curve has times in milliseconds and values; Gaps has begins and ends.
	Curve [][2]float64 `json:"curve,omitempty"`
	Gaps  [][2]float64 `json:"gaps,omitempty"`
}

// PanelTool is a tool that a panel can call. The arguments of the call are Arguments, and
// what the person entered: in them, or in the argument Into.
type PanelTool struct {
	Name      string           `json:"name"`
	Tool      string           `json:"tool"`
	Title     string           `json:"title,omitempty"`
	Text      string           `json:"text,omitempty"`
	Effect    string           `json:"effect"`
	Input     schema.AnyObject `json:"input,omitempty"`
	Arguments map[string]any   `json:"arguments,omitempty"`
	Into      string           `json:"into,omitempty"`
}

// Limits of a panel.
const (
	panelValues  = 6
	panelCurves  = 3
	panelPoints  = 40
	panelTools   = 24
	panelSchemas = 16 << 10 // bytes in total
	panelText    = 240
)

// ShowDevice returns the tool show_device. It reads measured values by calls of other
// built-in tools, so that the caller gets no others than with these.
func ShowDevice(fleet Fleet, see See, offers OffersOn, pipeline ferrule.Handler) Tool {
	const text = "Shows the user a device: state, values and controls."
	return Shown(ShowDeviceTool, text, ferrule.Reads, func(ctx context.Context, call *ferrule.Call, in ShowDeviceInput) (*ferrule.Result, error) {
		id, err := visible(call, fleet, see, in.Device)
		if err != nil {
			return nil, err
		}
		dev, manifest, _ := fleet.Lookup(id)
		out := ShowDeviceOutput{Device: panelDevice(describe(fleet, dev, manifest, see.of(call))), Time: time.Now().UTC(), Values: []PanelValue{}}
		out.addValues(ctx, call, pipeline, in.Brief)
		if !in.Brief {
			out.addTools(offers(call.Principal, id))
		}
		value, err := json.Marshal(out)
		if err != nil {
			return nil, fmt.Errorf("encoding the panel of %s: %w", id, err)
		}
		return &ferrule.Result{Value: value, Content: []ferrule.Content{{Type: ferrule.TextContent, Text: out.Text()}}}, nil
	})
}

func panelDevice(d DescribedDevice) PanelDevice {
	return PanelDevice{ID: d.ID, Title: d.Title, Model: d.Model, Version: d.Version, State: d.State, Since: d.Since.UTC(), Reason: d.Reason, Stopped: d.Stopped}
}

// addValues adds the latest values, with curves unless brief. A device without measured
// values has none, and neither has a caller who may not ask for them.
func (out *ShowDeviceOutput) addValues(ctx context.Context, call *ferrule.Call, pipeline ferrule.Handler, brief bool) {
	var latest LatestOutput
	if !ask(ctx, call, pipeline, "latest", LatestInput{Device: out.Device.ID}, &latest) {
		return
	}
	var names []string
	for _, s := range latest.Signals {
		if len(out.Values) == panelValues {
			out.MoreValues++
			continue
		}
		out.Values = append(out.Values, PanelValue{Name: s.Name, Value: s.Value, Unit: s.Unit, Time: s.Time})
		if len(names) < panelCurves {
			names = append(names, s.Name)
		}
	}
	var past HistoryOutput
	if brief || names == nil || !ask(ctx, call, pipeline, "history", HistoryInput{RangeInput: RangeInput{Device: out.Device.ID, Signals: names}, Points: panelPoints}, &past) {
		return
	}
	ms := func(t time.Time) float64 { return float64(t.UnixMilli()) }
	for i, s := range past.Signals[:min(len(past.Signals), len(names))] {
		for _, p := range s.Points {
			out.Values[i].Curve = append(out.Values[i].Curve, [2]float64{ms(p.Time), p.Value})
		}
		for _, g := range s.Gaps {
			out.Values[i].Gaps = append(out.Values[i].Gaps, [2]float64{ms(g.From), ms(g.To)})
		}
	}
}

// ask calls another built-in tool for the caller, and reports whether it answered.
func ask(ctx context.Context, by *ferrule.Call, pipeline ferrule.Handler, tool string, in, out any) bool {
	args, err := json.Marshal(in)
	if err != nil {
		return false
	}
	result, err := pipeline(ctx, &ferrule.Call{Principal: by.Principal, Client: by.Client, Session: by.Session, Device: ferrule.GatewayID, Tool: tool, Args: args})
	return err == nil && json.Unmarshal(result.Value, out) == nil
}

// addTools adds tools as long as they fit.
func (out *ShowDeviceOutput) addTools(offers []ferrule.Offer, through string) {
	size := 0
	for _, o := range offers {
		t := o.Tool
		if size+len(t.Input) > panelSchemas || len(out.Tools) == panelTools {
			out.MoreTools++
			continue
		}
		size += len(t.Input)
		tool := PanelTool{
			Name: o.Name, Tool: t.Name, Title: t.Title, Text: ferrule.Clean(t.Text, panelText), Effect: string(t.Effect), Input: schema.AnyObject(t.Input),
		}
		switch {
		case through != "":
			tool.Name, tool.Arguments, tool.Into = through, map[string]any{"name": o.Name}, "arguments"
		case o.Argument != "":
			tool.Arguments = map[string]any{o.Argument: out.Device.ID}
		}
		out.Tools = append(out.Tools, tool)
	}
}

// Text returns the result for models, and for programs that do not draw it.
func (out *ShowDeviceOutput) Text() string {
	var b strings.Builder
	d := out.Device
	fmt.Fprintf(&b, "%s is %s since %s", d.ID, d.State, ferrule.FormatTime(d.Since))
	for _, more := range []string{d.Reason, d.Stopped} {
		if more != "" {
			b.WriteString("; " + more)
		}
	}
	b.WriteString(".")
	for _, v := range out.Values {
		fmt.Fprintf(&b, "\n%s: %s, measured %s", v.Name, strings.TrimSpace(fmt.Sprintf("%.6g %s", v.Value, v.Unit)), ferrule.FormatTime(v.Time))
	}
	if out.MoreValues > 0 {
		fmt.Fprintf(&b, "\n%d more values.", out.MoreValues)
	}
	for i, t := range out.Tools {
		if i == 0 {
			b.WriteString("\nTools:")
		}
		name := t.Name
		if inner, ok := t.Arguments["name"].(string); ok && t.Into != "" {
			name = inner
		}
		fmt.Fprintf(&b, "\n- %s (%s)", name, cmp.Or(t.Effect, string(ferrule.Changes)))
	}
	if out.MoreTools > 0 {
		fmt.Fprintf(&b, "\n%d more tools.", out.MoreTools)
	}
	return b.String()
}
