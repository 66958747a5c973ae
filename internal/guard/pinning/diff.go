package pinning

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Report shows the owner of a device what has changed since it was accepted.
type Report struct {
	Device     string       `json:"device"`
	Accepted   ferrule.Kind `json:"accepted" jsonschema:"Kind that the owner accepted"`
	Offered    ferrule.Kind `json:"offered,omitempty" jsonschema:"Kind that the device offers now; missing if it is the accepted one"`
	Waiting    int          `json:"waiting" jsonschema:"number of changes that are not in use until they are accepted"`
	Changes    []Change     `json:"changes"`
	Incomplete bool         `json:"incomplete,omitempty" jsonschema:"there is too much to show all of it"`
	Note       string       `json:"note,omitempty"`
	// Since is set if the device is compared with that Kind, and Now is its Kind then.
	Since ferrule.Kind `json:"since,omitempty" jsonschema:"Kind that the changes are compared with, if you named one"`
	Now   ferrule.Kind `json:"now,omitempty" jsonschema:"Kind of the device now, if you named one to compare with"`
}

// Change is one difference between what was accepted and what is offered.
type Change struct {
	What   string  `json:"what" jsonschema:"tool, resource, prompt, pin, operation or device"`
	Name   string  `json:"name"`
	Change string  `json:"change" jsonschema:"added, removed or changed"`
	Waits  bool    `json:"waits,omitempty" jsonschema:"it is not in use until it is accepted"`
	Fields []Field `json:"fields,omitempty"`
}

// Field is one property of something that changed.
type Field struct {
	Name  string `json:"name"`
	Edits []Edit `json:"edits,omitempty" jsonschema:"the text in parts; missing if there is too much to show"`
	Note  string `json:"note,omitempty" jsonschema:"stricter or milder, for an effect"`
}

// Edit is a part of a text: both versions have it, or one of them.
type Edit struct {
	Op   string `json:"op" jsonschema:"one of =, -, +"`
	Text string `json:"text" jsonschema:"a long part that both have is shortened"`
}

// The operations of an Edit.
const (
	Same    = "="
	Removed = "-"
	Added   = "+"
)

// maxReport limits the names and texts in a report, in bytes.
const maxReport = 256 << 10

// field is a property of something, as text.
type field struct{ name, text string }

// item is something that a manifest lists.
type item struct {
	what, name string
	fields     []field
	tool       *ferrule.Tool // nil if it is something else
}

func (i item) key() [2]string { return [2]string{i.what, i.name} }

// Diff returns the changes from an accepted manifest to an offered one, those that wait
// first. If the accepted one is nil, everything is new. It reports whether some of it is
// missing, because there is too much.
func Diff(accepted, offered *ferrule.Manifest) (changes []Change, incomplete bool) {
	if accepted == nil {
		accepted = &ferrule.Manifest{}
	}
	before := make(map[[2]string]item)
	for _, i := range items(accepted) {
		if _, twice := before[i.key()]; !twice {
			before[i.key()] = i
		}
	}
	d := differ{left: maxReport, cells: maxCells}
	seen := make(map[[2]string]bool)
	for _, now := range items(offered) {
		if seen[now.key()] {
			continue
		}
		seen[now.key()] = true
		was, known := before[now.key()]
		if c, differs := compareItems(was, now, known); differs {
			d.add(c, was.fields, now.fields)
		}
	}
	for _, was := range items(accepted) {
		if !seen[was.key()] {
			seen[was.key()] = true
			d.add(Change{What: was.what, Name: was.name, Change: "removed"}, nil, nil)
		}
	}
	return d.finish()
}

// compareItems returns how an item has changed, without its fields.
func compareItems(was, now item, known bool) (c Change, differs bool) {
	c = Change{What: now.what, Name: now.name, Change: "added", Waits: now.name != versionField}
	if !known {
		return c, true
	}
	if slices.Equal(was.fields, now.fields) {
		return c, false
	}
	c.Change = "changed"
	if now.tool != nil && sameTool(was.tool, now.tool) && compareEffects(was.tool, now.tool) != milder {
		c.Waits = false
	}
	return c, true
}

// versionField is the one thing about a whole device that does not wait.
const versionField = "version"

// items returns everything that a manifest says, in an order that does not depend on the
// device.
func items(m *ferrule.Manifest) (all []item) {
	for i := range m.Tools {
		t := &m.Tools[i]
		all = append(all, item{"tool", t.Name, toolFields(t), t})
	}
	for i := range m.Resources {
		r := steady(&m.Resources[i])
		what := "resource"
		if r.Template {
			what = "resource template"
		}
		all = append(all, item{what, r.URI, []field{
			{"description", r.Text}, {"title", r.Title}, {"name", r.Name}, {"type", r.MIME}, {"annotations", text(r.Annotations)}, {"icons", text(r.Icons)},
		}, nil})
	}
	for _, p := range m.Prompts {
		all = append(all, item{"prompt", p.Name, []field{{"description", p.Text}, {"title", p.Title}, {"arguments", indented(text(p.Arguments))}, {"icons", text(p.Icons)}}, nil})
	}
	for _, p := range m.Pins {
		all = append(all, item{"pin", fmt.Sprint(p.Number), []field{
			{"name", p.Name}, {"type", p.Type}, {"description", p.Text}, {"abilities", text(p.Abilities)}, {"sampling", text(p.Sampling)},
		}, nil})
	}
	for _, op := range m.Operations {
		all = append(all, item{"operation", string(op), nil, nil})
	}
	for _, f := range append(texts(m), field{versionField, m.Version}) {
		if f.text != "" {
			all = append(all, item{"device", f.name, []field{{"text", f.text}}, nil})
		}
	}
	slices.SortStableFunc(all, func(a, b item) int { return cmp.Or(cmp.Compare(a.what, b.what), cmp.Compare(a.name, b.name)) })
	return all
}

func toolFields(t *ferrule.Tool) []field {
	effect := string(t.Effect)
	if effect == "" {
		effect = string(ferrule.Changes)
	}
	poll := ""
	if t.Poll > 0 {
		poll = t.Poll.String()
	}
	broken := ""
	if t.Quarantine != "" {
		broken = "cannot be used"
	}
	return []field{
		{"description", t.Text}, {"title", t.Title}, {effectField, effect}, {idempotentField, yes(t.Idempotent)}, {userOnlyField, yes(t.UserOnly)},
		{"arguments", indented(string(t.Input))}, {"result", indented(string(t.Output))}, {"poll", poll}, {"icons", text(t.Icons)}, {"view", text(t.View)}, {"state", broken},
		{"class", t.Class}, {"secrets", strings.Join(t.Secrets, ", ")},
	}
}

// The fields of a tool that can become stricter.
const (
	effectField     = "effect"
	idempotentField = "idempotent"
	userOnlyField   = "user_only"
)

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// indented returns JSON in lines, with sorted members.
func indented(raw string) string {
	data, err := ferrule.CanonicalJSON([]byte(raw))
	if err != nil {
		return raw
	}
	var out bytes.Buffer
	if json.Indent(&out, data, "", "  ") != nil {
		return raw
	}
	return out.String()
}

// differ collects changes within limits.
type differ struct {
	waiting, others []Change
	left            int // bytes that may still be shown
	cells           int // of comparisons of words that may still be made
	incomplete      bool
}

// add adds a change with the fields that differ.
func (d *differ) add(c Change, was, now []field) {
	const overhead = 32 // of an edit or a change in JSON
	if d.left -= len(c.Name) + overhead; d.left < 0 {
		d.incomplete = true
		return
	}
	for i, is := range now {
		before := ""
		if was != nil {
			before = was[i].text
		}
		if before == is.text || was == nil && is.text == yes(false) {
			continue
		}
		f := Field{Name: is.name}
		if was != nil {
			f.Note = strictness(is.name, before, is.text)
		}
		f.Edits = words(before, is.text, &d.cells)
		for _, e := range f.Edits {
			d.left -= len(e.Text) + overhead
		}
		if d.left < 0 {
			f.Edits, d.incomplete = nil, true
		}
		c.Fields = append(c.Fields, f)
	}
	if c.Waits {
		d.waiting = append(d.waiting, c)
	} else {
		d.others = append(d.others, c)
	}
}

// strictness says whether an effect became stricter or milder.
func strictness(name, was, is string) string {
	tool := func(text string) *ferrule.Tool {
		return &ferrule.Tool{
			Effect:     map[bool]ferrule.Effect{true: ferrule.Effect(text)}[name == effectField],
			Idempotent: name == idempotentField && text == yes(true),
			UserOnly:   name == userOnlyField && text == yes(true),
		}
	}
	switch compareEffects(tool(was), tool(is)) {
	case milder:
		return "milder"
	case stricter:
		return "stricter"
	}
	return ""
}

func (d *differ) finish() ([]Change, bool) {
	all := append(d.waiting, d.others...)
	if all == nil {
		all = []Change{}
	}
	return all, d.incomplete
}
