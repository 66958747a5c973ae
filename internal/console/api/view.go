package api

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// ViewInput has the parameters of ViewAs.
type ViewInput struct {
	As     string `json:"as" jsonschema:"name of the agent, as in the journal"`
	Device string `json:"device,omitempty" jsonschema:"show the tools of this device only, under their own names"`
	After  string `json:"after,omitempty" jsonschema:"next of the last page"`
}

// ViewOutput is what an agent sees.
type ViewOutput struct {
	Name string `json:"name"`
	// Known reports whether a credential or a connection of the agent is known. Otherwise
	// the view is that of an agent on this machine with that name.
	Known   bool         `json:"known"`
	Auth    ferrule.Auth `json:"auth,omitempty"`
	Scopes  []string     `json:"scopes,omitempty" jsonschema:"what its credential permits at most; empty if it does not limit"`
	Preset  string       `json:"preset"`
	Shape   string       `json:"shape" jsonschema:"how the list shows tools: plain, folded or search"`
	Devices []ViewDevice `json:"devices" jsonschema:"the first devices that it sees"`
	More    bool         `json:"more,omitempty" jsonschema:"whether it sees more devices"`
	Tools   []ViewTool   `json:"tools" jsonschema:"the tools in its list, one page"`
	Total   int          `json:"total" jsonschema:"how many tools its list has"`
	Next    string       `json:"next,omitempty" jsonschema:"the page after this one; empty for the last"`
}

// ViewDevice is a device that an agent sees.
type ViewDevice struct {
	ID    string        `json:"id"`
	Title string        `json:"title,omitempty"`
	State ferrule.State `json:"state"`
}

// Depends is the verdict on a tool that is listed, but forbidden without arguments, now or on
// some of its devices.
const Depends = "depends"

// ViewTool is a tool in the list of an agent.
type ViewTool struct {
	Name    string         `json:"name"`
	Title   string         `json:"title,omitempty"`
	Text    string         `json:"text" jsonschema:"its description, which the device wrote"`
	Devices []string       `json:"devices" jsonschema:"the first of its devices"`
	Count   int            `json:"count" jsonschema:"how many devices have it"`
	Effect  ferrule.Effect `json:"effect"`
	Verdict string         `json:"verdict" jsonschema:"permit, ask, or depends if the rules look at the arguments, the time or the device"`
	Reason  string         `json:"reason"`
	Rule    string         `json:"rule,omitempty"`
}

// ViewAs returns what an agent sees: its list of tools, as MCP lists them, and the verdict of
// the policy on each.
func (a *API) ViewAs(_ context.Context, who ferrule.Principal, in ViewInput) (ViewOutput, error) {
	if err := Allowed(who, ferrule.ScopeRead); err != nil {
		return ViewOutput{}, err
	}
	if in.As == "" || len(in.As) > ferrule.MaxWord {
		return ViewOutput{}, ferrule.Errorf(ferrule.Invalid, "as must be the name of an agent, with at most %d bytes", ferrule.MaxWord)
	}
	agents := a.parts.Agents
	as, known := agents.Known(in.As)
	if in.Device != "" && (!agents.Sees(as, in.Device) || !agents.Sees(who, in.Device)) {
		return ViewOutput{}, ferrule.Errorf(ferrule.NotFound, "%s sees no device %q", as.Name, ferrule.Clean(in.Device, ferrule.MaxWord))
	}
	offers, shape := agents.Offers(as, in.Device)
	out := ViewOutput{Name: as.Name, Known: known, Auth: as.Auth, Preset: agents.Preset(as.Name), Shape: shape, Devices: []ViewDevice{}, Tools: []ViewTool{}, Total: len(offers)}
	if as.Scopes.Limits() {
		out.Scopes = as.Scopes.Names()
	}
	page, next := pageAfter(offers, func(o ferrule.Offer) string { return o.Name }, in.After)
	out.Next = next
	for _, o := range page {
		if t := a.viewTool(as, o); t.Count == 0 || agents.Sees(who, t.Devices[0]) {
			out.Tools = append(out.Tools, t)
		}
	}
	devices := agents.Devices(as, maxPage+1)
	out.More = len(devices) > maxPage
	for _, d := range devices[:min(len(devices), maxPage)] {
		if agents.Sees(who, d.ID) {
			out.Devices = append(out.Devices, ViewDevice{d.ID, d.Title, d.State})
		}
	}
	return out, nil
}

// viewTool returns a tool in the list of an agent.
func (a *API) viewTool(as ferrule.Principal, o ferrule.Offer) ViewTool {
	t := ViewTool{Name: o.Name, Title: o.Tool.Title, Text: o.Text, Devices: o.Devices, Count: o.Count, Effect: o.Tool.Effect}
	if o.Argument != "" {
		if full, ok := a.parts.Agents.Offer(as, o.Name); ok {
			t.Devices, t.Count = full.Devices, full.Count
		}
	}
	for i, device := range t.Devices {
		v := a.parts.Agents.Verdict(as, device, o.Tool.Name)
		if v.Ruling == ferrule.Forbid { // it is listed, so it can be permitted
			v.Ruling = Depends
		}
		if i == 0 {
			t.Verdict, t.Reason, t.Rule = string(v.Ruling), v.Reason, v.Rule
		} else if t.Verdict != string(v.Ruling) {
			t.Verdict, t.Reason, t.Rule = Depends, "it is not the same on all of its devices", ""
		}
	}
	return t
}
