package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/console/draw"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema/form"
)

// maxTools limits the tools that a page shows. A manifest may have more; the filter of the
// page finds those that it has.
const maxTools = 256

// controlView is the page of a device's values and tools.
type controlView struct {
	deviceFrame
	Values []valueView
	Tools  []toolView
	// Chart is nil if nothing is measured.
	Chart *chartCard
	Calls recentCalls
	// More is the number of tools that are not shown.
	More int
	// Broken is the number of tools that cannot be used.
	Broken int
	Off    toolsOff
}

// valueView is the latest value of a signal.
type valueView struct {
	ID, Name, Number, Unit string
	Old                    bool
	Time                   time.Time
	Spark                  template.HTML
	latest                 ferrule.Latest
}

// Text returns the value with its unit.
func (v valueView) Text() string {
	if v.latest.State {
		return strings.ToLower(v.Number)
	}
	return draw.Value(v.latest.Value, v.latest.Unit)
}

// toolsOff is why tools cannot be called now.
type toolsOff struct {
	// Which is empty, "changes" if only reading is possible, or "all".
	Which string
	// Reason is a sentence; Next is what to do.
	Reason, Next, Icon string
	// Kind changes when the tools do.
	Kind ferrule.Kind
}

// toolView is a tool with its form.
type toolView struct {
	Frame deviceFrame
	Tool  *ferrule.Tool
	ID    string
	Title string
	// Row is how the tool is drawn: form, button or switch.
	Row    string
	Fields []fieldView
	Files  bool
	// Send reports whether a slider sends when it is released.
	Send bool
	Open bool
	// Off is why the person cannot call the tool; empty if it can be called.
	Off string
	// State is what the device reports for a switch: "true", "false", or "" if it is unknown.
	State string
	// Result is how the last call ended; Confirm is a call that waits for a yes.
	Result  *resultView
	Confirm *confirmView
	Others  []string
	// Once names this form, so that it cannot be sent twice. Live updates have none: they would
	// differ each time.
	Once string
}

// fieldView is a field with what it holds.
type fieldView struct {
	form.Field
	ID, Value, Error string
	// Now is what the device reports, with its unit.
	Now string
	// Secret reports whether the value must not be seen.
	Secret bool
}

// effect is the badge of a tool's effect.
type effect struct{ Word, Icon, Tone string }

func effectOf(e ferrule.Effect) effect {
	switch e {
	case ferrule.Reads:
		return effect{"Reads", "eye", ""}
	case ferrule.Endangers:
		return effect{"Endangers", "danger", "bad"}
	}
	return effect{"Changes", "change", "info"}
}

// Effect returns the badge of the tool's effect.
func (t toolView) Effect() effect { return effectOf(t.Tool.Effect) }

// Verb returns the word on the button of the tool.
func (t toolView) Verb() string {
	switch t.Tool.Effect {
	case ferrule.Reads:
		return "Read"
	case ferrule.Endangers:
		return "Run…"
	}
	return "Run"
}

// IsOff reports whether the tool cannot be called now.
func (t toolView) IsOff() bool {
	which := t.Frame.off().Which
	return which == "all" || which == "changes" && t.Tool.Effect != ferrule.Reads
}

// Stays reports whether a live update must not replace the tool: its result has to be seen.
func (t toolView) Stays() bool {
	return t.Confirm != nil || len(t.Others) > 0 || t.Result != nil && t.Result.Word != outcomeDone.Word
}

// toolID returns the ID of the element of a tool. Its name may have any characters.
func toolID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "t-" + hex.EncodeToString(sum[:6])
}

// toolTitle returns the name of a tool for people.
func toolTitle(t *ferrule.Tool) string {
	if title := strings.TrimSpace(ferrule.Clean(t.Title, ferrule.MaxWord)); title != "" {
		return title
	}
	return form.Label(strings.TrimPrefix(t.Name, "self."))
}

// control shows the values and the tools of a device.
func (c *Console) control(v *visit) error {
	f, err := c.openDevice(v, "Control")
	if err != nil {
		return err
	}
	return c.renderControl(v, http.StatusOK, f, nil)
}

// renderControl writes the page. One tool may be in another state, after a call.
func (c *Console) renderControl(v *visit, status int, f deviceFrame, called *toolView) error {
	return c.renderDevice(v, status, f, page{Live: "/live" + f.Path + "/control"}, "control", c.newControl(v, f, called))
}

func (c *Console) newControl(v *visit, f deviceFrame, called *toolView) controlView {
	p := controlView{deviceFrame: f, Values: c.values(v.ctx(), f), Off: f.off(), Calls: c.recentCalls(f)}
	c.addCurves(v, &p)
	if f.Manifest == nil {
		return p
	}
	for i := range f.Manifest.Tools {
		t := f.Tool(f.Who, f.Manifest.Tools[i].Name)
		switch {
		case t == nil:
			continue
		case t.Quarantine != "":
			p.Broken++
			continue
		case len(p.Tools) == maxTools:
			p.More++
			continue
		}
		view := newTool(f, t, p.Values)
		view.Once = rand.Text()
		if called != nil && called.Tool.Name == t.Name {
			view = *called
		}
		p.Tools = append(p.Tools, view)
	}
	if called == nil {
		for i := range p.Tools {
			if p.Tools[i].Row == "form" {
				p.Tools[i].Open = true
				break
			}
		}
	}
	return p
}

// newTool returns a tool as it is drawn before a call.
func newTool(f deviceFrame, t *ferrule.Tool, values []valueView) toolView {
	view := toolView{Frame: f, Tool: t, ID: toolID(t.Name), Title: toolTitle(t), Row: "form"}
	fields := toolForm(t).Fields
	for i, field := range fields {
		view.Files = view.Files || field.Kind == form.File
		one := fieldView{Field: field, ID: fmt.Sprintf("%s-%d", view.ID, i), Value: field.Default, Secret: slices.Contains(t.Secrets, field.Name)}
		if now := signalFor(t, field.Name, values); now != nil {
			one.Now = now.Text()
			if one.Unit == "" {
				one.Unit = now.Unit
			}
			if one.Value == "" && field.Kind == form.Slider {
				one.Value = fmt.Sprint(now.latest.Value)
			}
		}
		if one.Value == "" && field.Kind == form.Slider {
			one.Value = field.Min
		}
		view.Fields = append(view.Fields, one)
	}
	switch {
	case len(fields) == 0:
		view.Row = "button"
	case len(fields) == 1 && fields[0].Kind == form.Switch && fields[0].Name != "":
		view.Row = "switch"
		if now := signalFor(t, fields[0].Name, values); now != nil {
			view.State = fmt.Sprint(now.latest.Value != 0)
		}
	case len(fields) == 1 && fields[0].Kind == form.Slider:
		view.Send = t.Effect != ferrule.Endangers
	}
	if lacks := f.Who.Lacks(f.Device, ferrule.CallTool, t); lacks != 0 {
		view.Off = fmt.Sprintf("Your role does not permit this: it needs the scope %s.", lacks)
	}
	return view
}

// toolForm returns the form of a tool.
func toolForm(t *ferrule.Tool) form.Form {
	if len(t.FullInput) > 0 {
		return form.For(t.FullInput)
	}
	return form.For(t.Input)
}

// signalFor returns the value that an argument of a tool sets: it has the same name, or that
// of the tool without its verb.
func signalFor(t *ferrule.Tool, argument string, values []valueView) *valueView {
	tool := strings.ToLower(t.Name)
	for _, verb := range []string{"set_", "turn_", "switch_"} {
		tool = strings.TrimPrefix(tool, verb)
	}
	for _, name := range []string{strings.ToLower(argument), strings.TrimSuffix(tool, "_set")} {
		i := slices.IndexFunc(values, func(v valueView) bool { return strings.EqualFold(v.latest.Signal, name) })
		if i >= 0 && name != "" {
			return &values[i]
		}
	}
	return nil
}

// off returns why tools cannot be called now.
func (f deviceFrame) off() toolsOff {
	dev := f.Device
	off := toolsOff{Kind: dev.Kind}
	switch {
	case dev.Trust == ferrule.TrustPending:
		off.Which, off.Icon, off.Reason, off.Next = "all", "pending", dev.ID+" is new and not adopted.", "Adopt it on the page Devices to use its tools."
	case dev.State != ferrule.StateOnline:
		e := dev.OfflineError()
		off.Which, off.Icon, off.Reason, off.Next = "all", "off", plain(e.Message)+".", "Ferrule reconnects by itself."
	case f.Stopped != "":
		off.Which, off.Icon, off.Reason, off.Next = "changes", "stop", plain(f.Stopped)+".", "Tools that read can be used."
	}
	return off
}

// plain bounds a reason, without the period at its end.
func plain(text string) string { return strings.TrimSuffix(ferrule.Clean(text, ferrule.MaxText), ".") }

// values returns the latest values of a device, those with a unit first. Without a history
// there are none.
func (c *Console) values(ctx context.Context, f deviceFrame) (all []valueView) {
	latest := c.api.Newest(ctx, f.Found)
	if len(latest) == 0 { // another node may have them
		out, err := c.api.Latest(ctx, f.Who, builtin.LatestInput{Device: f.Device.ID})
		if err != nil {
			c.parts.Log.Debug("no values", "device", f.Device.ID, "err", err)
		}
		for _, s := range out.Signals {
			latest = append(latest, ferrule.Latest{Signal: s.Name, Unit: s.Unit, Sample: ferrule.Sample{Time: s.Time, Value: s.Value}})
		}
	}
	for _, one := range latest {
		all = append(all, newValue(one, f.Device.State))
	}
	slices.SortStableFunc(all, func(a, b valueView) int { return cmp.Compare(b.rank(), a.rank()) })
	return all
}

// rank is higher for values that say more.
func (v valueView) rank() int {
	switch {
	case v.latest.State:
		return 0
	case v.Unit == "":
		return 1
	}
	return 2
}

// addCurves adds the curves of the last hour, and the chart of the main value.
func (c *Console) addCurves(v *visit, p *controlView) {
	var latest builtin.LatestOutput
	for i := range p.Shown() {
		value := &p.Values[i]
		if !value.latest.State {
			value.Spark = c.sparks.one(v.ctx(), c.api, sparkKey{p.Device.ID, value.latest.Signal})
			latest.Signals = append(latest.Signals, builtin.LatestSignal{Name: value.latest.Signal, Unit: value.latest.Unit})
		}
	}
	if card, ok := c.controlChart(v, p.deviceFrame, latest); ok {
		p.Chart = &card
	}
}

// maxValues is the number of values that the page shows; the History tab has all.
const maxValues = 8

func newValue(s ferrule.Latest, state ferrule.State) valueView {
	sum := sha256.Sum256([]byte(s.Signal))
	v := valueView{
		ID: "v-" + hex.EncodeToString(sum[:6]), Name: signalName(s.Signal), Number: draw.Number(s.Value), Unit: draw.Unit(s.Unit),
		Old: state != ferrule.StateOnline, Time: s.Time, latest: s,
	}
	if s.State {
		v.Number, v.Unit = stateWord(s.Value), ""
	}
	return v
}

// Shown returns the values that the page shows.
func (p controlView) Shown() []valueView {
	n := min(len(p.Values), maxValues)
	if n > perRow {
		n -= n % perRow
	}
	return p.Values[:n]
}

// Fillers returns the classes of empty cells that complete the row of values; a phone has
// two in a row.
func (p controlView) Fillers() []string {
	switch len(p.Shown()) % perRow {
	case 1:
		return []string{"fill", "fill wide", "fill wide"}
	case 2:
		return []string{"fill wide", "fill wide"}
	case 3:
		return []string{"fill"}
	}
	return nil
}

// perRow is the number of values in a row.
const perRow = 4

// controlLive keeps values, switches and what cannot be called current.
type controlLive struct {
	deviceLive
	// switches are the tools of the manifest that are switches.
	switches []*ferrule.Tool
	manifest *ferrule.Manifest

	mu    sync.Mutex
	heard map[string]ferrule.Latest // since the page was drawn
}

// maxHeard limits the signals of a device that a page follows.
const maxHeard = 256

// heardKey is the key of a change of values.
const heardKey = "values"

func (c *Console) newControlLive(v *visit) (live, error) {
	f, err := c.openDevice(v, "Control")
	if err != nil {
		return nil, err
	}
	l := &controlLive{deviceLive: deviceLive{Console: c, v: v, id: f.Device.ID}, heard: make(map[string]ferrule.Latest)}
	l.more = l.updateControl
	return together{l, c.curvesOf(f, v.who)}, nil
}

func (l *controlLive) watch(changed func(string)) func() {
	stop := l.deviceLive.watch(changed)
	stopCalls := l.hub.subscribe(changed, callsTopic+l.id)
	stopSamples := l.parts.Streams.Samples(l.id, "", func(r ferrule.Reading) {
		l.mu.Lock()
		for _, b := range r.Batches {
			if _, known := l.heard[b.Signal]; len(b.Samples) > 0 && (known || len(l.heard) < maxHeard) {
				l.heard[b.Signal] = ferrule.Latest{Signal: b.Signal, Unit: b.Unit, State: b.State, Sample: b.Samples[len(b.Samples)-1]}
			}
		}
		l.mu.Unlock()
		changed(heardKey)
	})
	return func() { stop(); stopCalls(); stopSamples() }
}

// update draws only what may have changed: samples and calls come often.
func (l *controlLive) update(ctx context.Context, keys []string, out *updates) error {
	calls, heard := slices.Contains(keys, callsTopic+l.id), slices.Contains(keys, heardKey)
	if slices.ContainsFunc(keys, func(key string) bool { return key != heardKey && key != callsTopic+l.id }) || len(keys) == 0 {
		return l.deviceLive.update(ctx, keys, out)
	}
	found, err := l.api.Find(l.v.who, l.id)
	if err != nil {
		return err
	}
	f := deviceFrame{Found: found, Who: l.v.who, CSRF: l.v.csrf, Path: devicePath(found.Device.ID)}
	if calls {
		err = out.shared("recent-calls", "recent-calls", l.recentCalls(f))
	}
	if err == nil && heard {
		err = l.updateValues(f, out)
	}
	return err
}

func (l *controlLive) updateControl(_ context.Context, f deviceFrame, out *updates) error {
	if err := out.element("tools-off", "tools-off", f.off()); err != nil {
		return err
	}
	if err := out.shared("recent-calls", "recent-calls", l.recentCalls(f)); err != nil {
		return err
	}
	return l.updateValues(f, out)
}

// updateValues draws the values that the page has heard, and the switches that show them.
func (l *controlLive) updateValues(f deviceFrame, out *updates) error {
	l.mu.Lock()
	var values []valueView
	for _, s := range l.heard {
		values = append(values, newValue(s, f.Device.State))
	}
	l.mu.Unlock()
	for _, value := range values {
		if err := out.shared(value.ID, "value-now", value); err != nil {
			return err
		}
	}
	if f.Manifest != l.manifest {
		l.manifest, l.switches = f.Manifest, switchesOf(f)
	}
	for _, t := range l.switches {
		if view := newTool(f, t, values); view.State != "" {
			if err := out.element(view.ID, "tool", view); err != nil {
				return err
			}
		}
	}
	return nil
}

// switchesOf returns the tools that are drawn as a switch.
func switchesOf(f deviceFrame) (all []*ferrule.Tool) {
	if f.Manifest == nil {
		return nil
	}
	for i := range f.Manifest.Tools {
		t := f.Tool(f.Who, f.Manifest.Tools[i].Name)
		if t != nil && t.Quarantine == "" && newTool(f, t, nil).Row == "switch" {
			all = append(all, t)
		}
	}
	return all
}

// Hint returns what the device says about an argument, and what it accepts.
func (f fieldView) Hint() string {
	var all []string
	if f.Text != "" {
		all = append(all, strings.TrimSuffix(f.Text, ".")+".")
	}
	switch {
	case f.Kind == form.Number && f.Min != "" && f.Max != "":
		all = append(all, f.Min+" to "+f.Max+".")
	case f.Kind == form.Number && f.Min != "":
		all = append(all, "At least "+f.Min+".")
	case f.Kind == form.Number && f.Max != "":
		all = append(all, "At most "+f.Max+".")
	case (f.Kind == form.Text || f.Kind == form.LongText) && f.MaxLength > 0:
		all = append(all, fmt.Sprintf("Up to %d characters.", f.MaxLength))
	case f.Kind == form.File && f.MaxLength > 0:
		all = append(all, fmt.Sprintf("Up to %d bytes.", f.MaxLength))
	case f.Kind == form.JSON && f.Name != "":
		all = append(all, "As JSON.")
	}
	if !f.Required && f.Name != "" && f.Kind != form.Switch && f.Kind != form.Slider {
		if f.Default != "" && f.Kind != form.JSON {
			all = append(all, "Optional, "+ferrule.Clean(f.Default, ferrule.MaxWord)+" if left empty.")
		} else {
			all = append(all, "Optional.")
		}
	}
	return strings.Join(all, " ")
}

// Input returns the type of the input element.
func (f fieldView) Input() string {
	if f.Secret {
		return "password"
	}
	return "text"
}

// Swatch returns a color that the browser's control accepts.
func (f fieldView) Swatch() string {
	if len(f.Value) == 7 && f.Value[0] == '#' && strings.Trim(strings.ToLower(f.Value[1:]), "0123456789abcdef") == "" {
		return f.Value
	}
	return "#000000"
}
