package console

import (
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/console/draw"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Path returns the address of the device's pages.
func (d deviceItem) Path() string { return devicePath(d.ID) }

// Key is part of the IDs of the device's elements.
func (d deviceItem) Key() string { return d.Prefix + d.ID }

// Icon returns the name of the icon of the device.
func (d deviceItem) Icon() string { return deviceIcon(d.Protocol, d.Model, d.Title, d.ID) }

// Badge returns the state of the device.
func (d deviceItem) Badge() badge {
	if d.Asks && d.Status == "online" {
		return stateOf("waiting")
	}
	return stateOf(d.Status)
}

// IsOff reports whether the values of the device are old.
func (d deviceItem) IsOff() bool { return d.State != string(ferrule.StateOnline) }

// About returns the model and version of a device, and how it is connected.
func (d deviceItem) About() string {
	model := strings.TrimSpace(d.Model + " " + d.Version)
	if model == "" {
		return transportName(d.Transport)
	}
	return model + " · " + transportName(d.Transport)
}

// Tiles returns the values that a card has room for.
func (d deviceItem) Tiles() []valueTile { return tilesOf(d.DeviceRow, d.Sparks) }

// Words returns the values in a few words.
func (d deviceItem) Words() string { return valueWords(d.Values) }

// Spark returns the curve of the first value that has one.
func (d deviceItem) Spark() template.HTML {
	for _, v := range d.Values {
		if s, ok := d.Sparks[v.Signal]; ok {
			return s
		}
	}
	return ""
}

// LabelTexts returns labels as a row shows them: the owner's, and what the device says about
// itself if the owner gave it no such label. A label that says yes is its key.
func (d deviceItem) LabelTexts() (all []string) {
	const limit = 3
	for _, labels := range []map[string]string{d.Labels, d.Claims} {
		for _, key := range slices.Sorted(maps.Keys(labels)) {
			text := labels[key]
			if text == "yes" || text == "true" {
				text = key
			}
			if len(all) < limit && !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	}
	return all
}

// ClaimText returns what the device says about itself, as labels to begin with.
func (d deviceItem) ClaimText() string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(d.Claims)) {
		if !strings.Contains(d.Claims[key], ",") {
			all = append(all, key+"="+d.Claims[key])
		}
	}
	return strings.Join(all, ", ")
}

// Suggested returns the name to adopt a device under.
func (d deviceItem) Suggested() string {
	if ferrule.CheckID(d.ID) == nil {
		return d.ID
	}
	return ferrule.Slug(d.Model)
}

// FoundText says where a new device was found.
func (d deviceItem) FoundText() string {
	text := "Found over " + transportName(d.Transport)
	if d.Hub != "" {
		text += " behind " + d.Hub
	}
	return text
}

// CodeText returns a code in two groups, as toys show it.
func (d deviceItem) CodeText() string {
	if len(d.Code) == 6 {
		return d.Code[:3] + " " + d.Code[3:]
	}
	return d.Code
}

// HeardUnix is the time of the latest value, for the script that keeps its age current.
func (d deviceItem) HeardUnix() int64 { return d.Heard.Unix() }

// valueTile is a value on a card.
type valueTile struct {
	Label, Number, Unit string
	// At is when the value was measured; empty for one of a device that is online.
	At    string
	Spark template.HTML
}

// tilesOf returns the values that a card has room for.
func tilesOf(d api.DeviceRow, sparks map[string]template.HTML) (all []valueTile) {
	const limit = 2
	for _, v := range d.Values[:min(len(d.Values), limit)] {
		t := valueTile{Label: signalName(v.Signal), Number: draw.Number(v.Value), Unit: draw.Unit(v.Unit), Spark: sparks[v.Signal]}
		if v.State {
			t.Number = stateWord(v.Value)
		}
		if d.State != string(ferrule.StateOnline) {
			t.At = shortTime(v.Time)
		}
		all = append(all, t)
	}
	return all
}

// shortTime returns the time of day, or the date if it was not today.
func shortTime(t time.Time) string {
	t = t.Local()
	if y, m, d := time.Now().Date(); t.Year() != y || t.Month() != m || t.Day() != d {
		return t.Format("2 Jan")
	}
	return t.Format("15:04")
}

// Range returns which rows a table shows.
func (t deviceTable) Range() string {
	if len(t.Rows) == 0 {
		return "none"
	}
	return fmt.Sprintf("%s to %s of %s", withCommas(t.Output.First), withCommas(t.Output.First+len(t.Rows)-1), withCommas(t.Output.Total))
}

// Next returns the address of the next rows, or "".
func (t deviceTable) Next() string {
	if t.Output.Next == "" {
		return ""
	}
	return t.Page.URL("hub", t.Hub(), "after", t.Output.Next, "view", t.view())
}

// Previous returns the address of the rows before, or "".
func (t deviceTable) Previous() string {
	if t.Output.Previous == nil {
		return ""
	}
	return t.Page.URL("hub", t.Hub(), "after", *t.Output.Previous, "view", t.view())
}

// Hub returns the broker or Home Assistant of the table, or "".
func (t deviceTable) Hub() string { return t.Title }

// view is the view of the rest of a table below cards.
func (t deviceTable) view() string {
	if t.Page.View == "cards" {
		return "table"
	}
	return t.Page.Chosen
}

// Place says how many devices are behind a broker or Home Assistant, and where it is.
func (t deviceTable) Place() string {
	text := plural(t.Output.Total, "device") + " behind one broker"
	if len(t.Rows) > 0 && t.Rows[0].Transport == "homeassistant" {
		text = plural(t.Output.Total, "device") + " behind one Home Assistant"
	}
	if len(t.Nodes) == 1 {
		text += ", on " + t.Nodes[0]
	}
	return text
}

// Sorted returns the aria-sort value of a column.
func (t deviceTable) Sorted(column string) string {
	if t.Page.In.Sort == column || t.Page.In.Sort == "" && column == "name" && t.Page.In.Q == "" {
		return "ascending"
	}
	return "none"
}

// KindShort returns the first digits of the Kind.
func (d deviceItem) KindShort() string { return ferrule.Kind(d.Kind).Short() }

// filter is a choice above the list.
type filter struct {
	Name, Label, Any, Chosen string
	Choices                  []api.FilterChoice
}

func filterOf(name, label, any, chosen string, choices []api.FilterChoice) filter {
	return filter{name, label, any, chosen, choices}
}

// Known reports whether what was chosen is one of the choices.
func (f filter) Known() bool {
	return slices.ContainsFunc(f.Choices, func(c api.FilterChoice) bool { return c.Value == f.Chosen })
}

// Empty reports whether there is no device at all.
func (p *deviceList) Empty() bool {
	return p.Filters.Devices == 0 && !p.Filtered() && p.Needs.Count == 0
}

// None reports whether no device matches what the person looks for.
func (p *deviceList) None() bool {
	return !p.Empty() && p.In.State != "needs" && len(p.Cards) == 0 && len(p.Hubs) == 0 && (p.Table == nil || len(p.Table.Rows) == 0) && (p.Filtered() || p.Needs.Count == 0)
}

// withCommas returns a number with separators between thousands.
func withCommas[N int | uint64](n N) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// roundedCount returns a count as HTML: above 1,000 it is rounded, and exact on hover and for
// screen readers.
func roundedCount(n int) template.HTML {
	if n <= 1000 {
		return template.HTML(strconv.Itoa(n))
	}
	short := strconv.FormatFloat(float64(n/100)/10, 'f', 1, 64)
	return template.HTML(`<span title="` + withCommas(n) + `"><span aria-hidden="true">` + strings.TrimSuffix(short, ".0") + `k</span><span class="sr">` + withCommas(n) + `</span></span>`)
}

// plural returns a count with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return withCommas(n) + " " + noun + "s"
}
