package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/pinning"
)

// Limits of the page.
const (
	maxChanges   = 128
	maxDiffLines = 400 // of one change
)

// manifestView is what a device says about itself, and what waits for its owner.
type manifestView struct {
	deviceFrame
	Changes []changeView
	// Waits is the number of changes that are not in use until they are accepted, and Same
	// are tools that are not affected.
	Waits int
	Same  []string
	// More is the number of changes that are not shown.
	More       int
	Incomplete bool
	Note       string
	// Milder are tools whose effect would become milder.
	Milder []milderTool
	Kinds  []kindView
	Tools  []describedTool
	// Problem says why the changes cannot be shown.
	Problem *ferrule.Error
}

// changeView is one difference.
type changeView struct {
	Badge     badge
	ID, What  string
	Name      string
	Effect    *effect
	Lines     []diffLine
	Cut       bool
	Waits     bool
	Orders    bool   // its text gives orders to an agent
	Milder    string // the effect that it had
	TooLong   []string
	IsRemoval bool
}

// milderTool is a tool whose effect would become milder.
type milderTool struct{ Name, Was string }

// diffLine is a line of a difference: in both, removed or added.
type diffLine struct {
	Op    string // =, - or +
	Parts []diffPart
}

// diffPart is a part of a line. Marked is what differs.
type diffPart struct {
	Text   string
	Marked bool
}

// kindView is a Kind that the device had.
type kindView struct {
	Kind  ferrule.Kind
	Text  string
	Badge badge
}

// describedTool is a tool as the device says.
type describedTool struct {
	*ferrule.Tool
	ID, Title, Input, Output string
	Effect                   effect
	Orders                   bool
}

// manifest shows what a device says about itself.
func (c *Console) manifest(v *visit) error {
	f, err := c.openDevice(v, "Manifest")
	if err != nil {
		return err
	}
	return c.renderManifest(v, http.StatusOK, f, nil)
}

func (c *Console) renderManifest(v *visit, status int, f deviceFrame, problem *ferrule.Error) error {
	p := manifestView{deviceFrame: f, Kinds: kindsOf(f.Device), Problem: problem}
	if f.Device.Waiting > 0 && f.IsOwner() {
		report, err := c.api.Changes(v.ctx(), v.who, builtin.DeviceChangesInput{Device: f.Device.ID})
		if err != nil {
			p.Problem = ferrule.AsError(err)
		}
		p.addReport(report)
	}
	p.describe()
	return c.renderDevice(v, status, f, page{}, "manifest", p)
}

// describe adds the tools that are in use.
func (p *manifestView) describe() {
	if p.Manifest == nil {
		return
	}
	for i := range p.Manifest.Tools {
		t := p.Tool(p.Who, p.Manifest.Tools[i].Name)
		if t == nil || len(p.Tools) == maxTools {
			continue
		}
		changed := slices.ContainsFunc(p.Changes, func(c changeView) bool { return c.What == "tool" && c.Name == t.Name })
		if changed { // it is shown as a difference
			continue
		}
		p.Tools = append(p.Tools, describedTool{t, toolID(t.Name), toolTitle(t), indented(t.Input), indented(t.Output), effectOf(t.Effect), givesOrders(t.Text)})
		if t.Quarantine == "" {
			p.Same = append(p.Same, t.Name)
		}
	}
}

func indented(raw json.RawMessage) string {
	var out bytes.Buffer
	if len(raw) == 0 || json.Indent(&out, raw, "", "  ") != nil {
		return ""
	}
	return ferrule.Clean(out.String(), ferrule.MaxSchema)
}

// addReport adds the changes that wait, and others.
func (p *manifestView) addReport(r pinning.Report) {
	p.Incomplete, p.Note = r.Incomplete, r.Note
	for _, change := range r.Changes {
		if change.Waits {
			p.Waits++
		}
		if len(p.Changes) == maxChanges {
			p.More++
			continue
		}
		view := newChange(change)
		if tool := p.Manifest; change.What == "tool" && tool != nil && tool.Tool(change.Name) != nil {
			e := effectOf(tool.Tool(change.Name).Effect)
			view.Effect = &e
		}
		if view.Milder != "" {
			p.Milder = append(p.Milder, milderTool{change.Name, view.Milder})
		}
		p.Changes = append(p.Changes, view)
	}
}

// newChange returns a difference as it is drawn.
func newChange(change pinning.Change) changeView {
	view := changeView{ID: toolID(change.What + " " + change.Name), What: change.What, Name: ferrule.Clean(change.Name, ferrule.MaxURI), Waits: change.Waits}
	switch change.Change {
	case "added":
		view.Badge = badge{Word: "Added", Icon: "plus", Tone: "ok"}
	case "removed":
		view.Badge, view.IsRemoval = badge{Word: "Removed", Icon: "x"}, true
	default:
		view.Badge = badge{Word: "Changed", Icon: "changed", Tone: "warn"}
	}
	for _, field := range change.Fields {
		if field.Edits == nil {
			view.TooLong = append(view.TooLong, field.Name)
			continue
		}
		was, is := sides(field.Edits)
		switch {
		case field.Note == "milder" && field.Name == "effect":
			view.Milder = was
		case field.Note == "milder":
			view.Milder = field.Name + " " + was
		case field.Name == "effect" && change.What == "tool" && change.Change == "added":
			e := effectOf(ferrule.Effect(is))
			view.Effect = &e
		}
		view.Orders = view.Orders || givesOrders(is) && !givesOrders(was)
		view.Lines = append(view.Lines, shortened(diffLines(field.Name, field.Edits))...)
	}
	if view.Cut = len(view.Lines) > maxDiffLines; view.Cut {
		view.Lines = view.Lines[:maxDiffLines]
	}
	return view
}

// sides returns both versions of a text, as far as they are known.
func sides(edits []pinning.Edit) (was, is string) {
	for _, e := range edits {
		if e.Op != pinning.Added {
			was += e.Text
		}
		if e.Op != pinning.Removed {
			is += e.Text
		}
	}
	return was, is
}

// orders are phrases that tell an agent what to do. The text of a tool should only say what
// the tool does. This finds what is plain; a person reads the rest.
var orders = regexp.MustCompile(`(?i)\b(always (call|use|run|do)|never (ask|tell|mention)|without asking|(do not|don't) (ask|tell|mention|inform)|ignore (all|any|the|your|previous|earlier)|you (must|should|have to) (always|never|first|also|call|use)|before (using|calling) any|instead of (other|any)|system prompt|as an? (ai|assistant|agent|model))\b`)

func givesOrders(text string) bool { return orders.MatchString(text) }

// diffLines returns a field as lines. What is new or gone is marked in them.
func diffLines(name string, edits []pinning.Edit) []diffLine {
	d := differ{}
	d.both(name + ": ")
	for _, e := range edits {
		for i, text := range strings.Split(visibleText(e.Text), "\n") {
			if i > 0 {
				d.newline(e.Op)
			}
			switch {
			case text == "":
			case e.Op == pinning.Same:
				d.both(text)
			case e.Op == pinning.Removed:
				d.was, d.touched = append(d.was, diffPart{text, true}), true
			default:
				d.is, d.touched = append(d.is, diffPart{text, true}), true
			}
		}
	}
	d.newline(pinning.Same)
	return d.lines
}

// diffContext is the number of lines before and after a difference that are shown.
const diffContext = 2

// shortened leaves out lines that are far from any difference.
func shortened(lines []diffLine) (out []diffLine) {
	left := false
	for i, line := range lines {
		from, to := max(0, i-diffContext), min(len(lines), i+diffContext+1)
		near := slices.ContainsFunc(lines[from:to], func(l diffLine) bool { return l.Op != pinning.Same })
		switch {
		case near || i == 0:
			out, left = append(out, line), false
		case !left:
			out, left = append(out, diffLine{pinning.Same, []diffPart{{Text: "  …"}}}), true
		}
	}
	return out
}

// joined marks spaces between parts that are marked, so that a phrase is one.
func joined(parts []diffPart) (out []diffPart) {
	for i, part := range parts {
		n := len(out)
		space := !part.Marked && strings.TrimSpace(part.Text) == "" && n > 0 && out[n-1].Marked && i+1 < len(parts) && parts[i+1].Marked
		if n > 0 && (space || part.Marked && out[n-1].Marked) {
			out[n-1].Text += part.Text
			continue
		}
		out = append(out, part)
	}
	return out
}

// visibleText shows characters that a reader would not see.
func visibleText(text string) string {
	if ferrule.Visible(text) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if s := string(r); s == "\n" || s == "\t" || ferrule.Visible(s) {
			b.WriteString(s)
		} else {
			b.WriteString(fmt.Sprintf(`\u{%x}`, r))
		}
	}
	return b.String()
}

// differ collects the two versions of a line.
type differ struct {
	lines   []diffLine
	was, is []diffPart
	touched bool
}

func (d *differ) both(text string) {
	d.was, d.is = append(d.was, diffPart{Text: text}), append(d.is, diffPart{Text: text})
}

// newline ends the line in both versions, or in one.
func (d *differ) newline(op string) {
	switch {
	case op == pinning.Removed:
		d.add(pinning.Removed, d.was)
		d.was, d.touched = nil, true
	case op == pinning.Added:
		d.add(pinning.Added, d.is)
		d.is, d.touched = nil, true
	case !d.touched:
		d.add(pinning.Same, d.is)
		d.was, d.is = nil, nil
	default:
		d.add(pinning.Removed, d.was)
		d.add(pinning.Added, d.is)
		d.was, d.is, d.touched = nil, nil, false
	}
}

// add adds a line, unless all of it is the name of a field that has another version.
func (d *differ) add(op string, parts []diffPart) {
	if len(parts) == 0 || op != pinning.Same && !slices.ContainsFunc(parts, func(p diffPart) bool { return p.Marked }) {
		return
	}
	d.lines = append(d.lines, diffLine{op, joined(parts)})
}

// kindsOf returns what is known of the Kinds of a device, the newest first.
func kindsOf(dev *ferrule.Device) (all []kindView) {
	accepted := badge{Word: "Accepted", Icon: "check", Tone: "ok"}
	if dev.Offered != "" {
		all = append(all, kindView{dev.Offered, strings.TrimSpace(dev.Version + since(dev.Changed)), badge{Word: "Changed", Icon: "changed", Tone: "warn"}})
	}
	if dev.Accepted != "" {
		text := "accepted as it was first found"
		if !dev.AcceptedAt.IsZero() {
			text = "accepted " + ferrule.FormatTime(dev.AcceptedAt)
		}
		all = append(all, kindView{dev.Accepted, text, accepted})
	} else if dev.Kind != "" {
		all = append(all, kindView{dev.Kind, "in use", badge{Word: "In use", Icon: "on"}})
	}
	if dev.Previous != "" && dev.Previous != dev.Accepted && dev.Previous != dev.Offered {
		all = append(all, kindView{dev.Previous, "until " + ferrule.FormatTime(dev.Changed), badge{Word: "Earlier", Icon: "clock"}})
	}
	return all
}

func since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return ", since " + ferrule.FormatTime(t)
}

// accept accepts what a device offers. An effect that would become milder must be allowed
// for each tool.
func (c *Console) accept(v *visit) error {
	f, err := c.openDevice(v, "Manifest")
	if err != nil {
		return err
	}
	report, err := c.api.Changes(v.ctx(), v.who, builtin.DeviceChangesInput{Device: f.Device.ID})
	if err != nil {
		return c.renderManifest(v, http.StatusForbidden, f, ferrule.AsError(err))
	}
	var p manifestView
	p.addReport(report)
	allowed := v.r.PostForm["milder"]
	for _, m := range p.Milder {
		if !slices.Contains(allowed, m.Name) {
			problem := ferrule.Errorf(ferrule.Invalid, "%s was %s, and the device now says something milder", ferrule.Clean(m.Name, ferrule.MaxToolName), m.Was).
				WithHint("allow it below to accept the changes, or keep them blocked")
			return c.renderManifest(v, http.StatusBadRequest, f, problem)
		}
	}
	if _, err := c.api.Accept(v.ctx(), v.who, builtin.AcceptInput{Device: f.Device.ID, Kind: v.r.PostFormValue("kind")}); err != nil {
		return c.renderManifest(v, http.StatusConflict, f, ferrule.AsError(err))
	}
	return v.redirect("%s/manifest", f.Path)
}

// OfferedKind returns the Kind that would be accepted.
func (p manifestView) OfferedKind() ferrule.Kind { return p.Device.Offered }
