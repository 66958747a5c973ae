package api

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// DevicesInput has the arguments of Devices.
type DevicesInput struct {
	Q     string `json:"q,omitempty" jsonschema:"words to search for in names, models, labels, addresses and tools"`
	State string `json:"state,omitempty" jsonschema:"all, online, needs or offline; default: all. needs is for devices that wait for a person"`
	Label string `json:"label,omitempty" jsonschema:"key of a label, or key=value"`
	Trust string `json:"trust,omitempty" jsonschema:"adopted or pending; default: both"`
	Kind  string `json:"kind,omitempty" jsonschema:"Kind, or its first digits"`
	Node  string `json:"node,omitempty" jsonschema:"name of a node"`
	Hub   string `json:"hub,omitempty" jsonschema:"name of a broker or Home Assistant; - for devices that are not behind one"`
	View  string `json:"view,omitempty" jsonschema:"devices, or kinds to get one row for all devices of a Kind; default: devices"`
	Sort  string `json:"sort,omitempty" jsonschema:"name, state, model or node; default: name, and with words, the best match first"`
	After string `json:"after,omitempty" jsonschema:"return rows after this key; use next of the previous result"`
	Limit int    `json:"limit,omitempty" jsonschema:"maximum number of rows, default 100"`
}

// DevicesOutput is a page of a list of devices.
type DevicesOutput struct {
	Rows   []DeviceRow  `json:"rows"`
	Counts DeviceCounts `json:"counts"`
	// First is the position of the first row, beginning with 1, and Total the number of rows
	// on all pages.
	First    int     `json:"first"`
	Total    int     `json:"total"`
	Next     string  `json:"next,omitempty" jsonschema:"pass this as after to get more rows"`
	Previous *string `json:"previous,omitempty" jsonschema:"pass this as after to get the rows before; missing on the first page"`
}

// DeviceCounts counts the devices that match all filters but the state.
type DeviceCounts struct {
	All     int `json:"all"`
	Online  int `json:"online"`
	Needs   int `json:"needs"`
	Offline int `json:"offline"`
}

// Limits of a page.
const (
	DefaultRows = 100
	maxRows     = 1000
	maxWords    = 8
)

// found is a row of a result before it is drawn.
type found struct {
	rank  string // sorts before the ID
	entry *deviceEntry
	fold  *KindFold
}

func (f found) compare(rank, id string) int {
	return cmp.Or(strings.Compare(f.rank, rank), strings.Compare(f.entry.dev.ID, id))
}

// key returns what the row is found by. IDs have no line feed.
func (f found) key() string { return f.rank + "\n" + f.entry.dev.ID }

// Devices returns a page of the devices that a person is shown.
func (a *API) Devices(ctx context.Context, who ferrule.Principal, in DevicesInput) (DevicesOutput, error) {
	if err := in.check(); err != nil {
		return DevicesOutput{}, err
	}
	seen, s, devices := a.visible(who), newSearch(in), a.devices.sorted()
	all := make([]found, 0, len(devices))
	var counts DeviceCounts
	take := func(e *deviceEntry) {
		if !who.CanSee(e.dev) || !seen.Device(e.dev, e.manifest) {
			return
		}
		rank, ok := s.match(e, seen)
		if ok && counts.add(e, in.State) {
			all = append(all, found{rank: rank, entry: e})
		}
	}
	for _, e := range devices {
		take(e)
	}
	for _, e := range a.codeEntries(who) {
		take(e)
	}
	if in.View == "kinds" {
		all = fold(all)
	}
	slices.SortFunc(all, func(x, y found) int { return x.compare(y.rank, y.entry.dev.ID) })
	out := DevicesOutput{Rows: []DeviceRow{}, Counts: counts, Total: len(all)}
	page := out.page(all, in)
	shown := make([]*ferrule.Device, len(page))
	for i, f := range page {
		row := a.row(f.entry, seen)
		row.Fold, shown[i] = f.fold, f.entry.dev
		out.Rows = append(out.Rows, row)
	}
	err := a.addValues(ctx, out.Rows, func(i int) (*ferrule.Manifest, ferrule.Visibility) { return page[i].entry.manifest, seen }, shown, who)
	return out, err
}

// check returns an error if an argument is not one of those that are possible.
func (in DevicesInput) check() error {
	for _, c := range []struct {
		name, value string
		possible    []string
	}{
		{"state", in.State, []string{"", "all", "online", "needs", "offline"}},
		{"trust", in.Trust, []string{"", "adopted", "pending"}},
		{"view", in.View, []string{"", "devices", "kinds"}},
		{"sort", in.Sort, []string{"", "name", "state", "model", "node"}},
	} {
		if !slices.Contains(c.possible, c.value) {
			return ferrule.Errorf(ferrule.Invalid, "%s must be one of %s, got %q", c.name, strings.Join(c.possible[1:], ", "), ferrule.Clean(c.value, ferrule.MaxWord))
		}
	}
	return nil
}

// page returns the rows after a key, and sets where they are.
func (out *DevicesOutput) page(all []found, in DevicesInput) []found {
	limit := min(cmp.Or(max(in.Limit, 0), DefaultRows), maxRows)
	start := 0
	if in.After != "" {
		cut := strings.LastIndexByte(in.After, '\n')
		rank, id := in.After[:max(cut, 0)], in.After[cut+1:]
		var exact bool
		if start, exact = slices.BinarySearchFunc(all, id, func(f found, id string) int { return f.compare(rank, id) }); exact {
			start++
		}
	}
	end := min(start+limit, len(all))
	if end < len(all) && end > 0 {
		out.Next = all[end-1].key()
	}
	if start > 0 {
		before := ""
		if start > limit {
			before = all[start-limit-1].key()
		}
		out.Previous = &before
	}
	if end > start {
		out.First = start + 1
	}
	return all[start:end]
}

// add counts a device, and reports whether it has the wanted state.
func (c *DeviceCounts) add(e *deviceEntry, state string) bool {
	online := e.dev.State == ferrule.StateOnline
	needs := e.needsPerson()
	c.All++
	if online {
		c.Online++
	} else {
		c.Offline++
	}
	if needs {
		c.Needs++
	}
	switch state {
	case "online":
		return online
	case "offline":
		return !online
	case "needs":
		return needs
	}
	return true
}

// fold replaces the devices of each Kind by one row. A Kind with one device stays a device.
func fold(all []found) []found {
	type place struct {
		at int
		n  KindFold
	}
	kinds := make(map[ferrule.Kind]*place)
	var out []found
	for _, f := range all {
		kind := f.entry.dev.Kind
		p := kinds[kind]
		if p == nil || kind == "" {
			p = &place{at: len(out)}
			kinds[kind] = p
			out = append(out, f)
		}
		p.n.Devices++
		if f.entry.dev.State == ferrule.StateOnline {
			p.n.Online++
		} else {
			p.n.Offline++
		}
		if f.entry.needsPerson() {
			p.n.Needs++
		}
		if p.n.Devices > 1 {
			out[p.at].fold = &p.n
		}
		if first := &out[p.at]; f.rank < first.rank {
			first.rank = f.rank
		}
	}
	return out
}

// search decides which devices match.
type search struct {
	in         DevicesInput
	words      []string
	key, value string // of the label
	tools      map[*ferrule.Manifest][]toolMatch
}

// toolMatch has the tools of a manifest that match a word.
type toolMatch []*ferrule.Tool

func newSearch(in DevicesInput) *search {
	s := &search{in: in, tools: make(map[*ferrule.Manifest][]toolMatch)}
	s.words = strings.Fields(strings.ToLower(ferrule.Clean(in.Q, ferrule.MaxText)))
	s.words = s.words[:min(len(s.words), maxWords)]
	s.key, s.value, _ = strings.Cut(in.Label, "=")
	return s
}

// match reports whether a device matches, and what sorts it among others.
func (s *search) match(e *deviceEntry, seen ferrule.Visibility) (rank string, ok bool) {
	d := e.dev
	switch {
	case s.in.Kind != "" && !strings.HasPrefix(string(d.Kind), s.in.Kind),
		s.in.Trust != "" && string(d.Trust) != s.in.Trust,
		s.in.Node != "" && d.Node != s.in.Node,
		s.in.Hub == "-" && d.Hub != "",
		s.in.Hub != "" && s.in.Hub != "-" && d.Hub != s.in.Hub,
		s.key != "" && !s.labelled(d):
		return "", false
	}
	near := 0
	for i, word := range s.words {
		switch inText := strings.Contains(e.text, word); { // the text has the name
		case !inText && !s.tool(e, i, seen):
			return "", false
		case !inText:
			near += 8
		case e.name == word:
		case strings.HasPrefix(e.name, word):
			near += 1
		case strings.Contains(e.name, word):
			near += 2
		default:
			near += 4
		}
	}
	switch s.in.Sort {
	case "state":
		return e.stateRank(), true
	case "model":
		return e.model, true
	case "node":
		return d.Node, true
	case "name":
		return "", true
	}
	if len(s.words) == 0 {
		return "", true
	}
	const ranks = "abcdefghijklmnopqrstuvwxyz"
	near = min(near, len(ranks)-1)
	return ranks[near : near+1], true
}

// labelled reports whether a device has the wanted label, or says so itself.
func (s *search) labelled(d *ferrule.Device) bool {
	for _, labels := range []map[string]string{d.Labels, d.Claims} {
		if value, ok := labels[s.key]; ok && (s.value == "" || value == s.value) {
			return true
		}
	}
	return false
}

// tool reports whether a word is in the name of a tool that is shown. Devices that share a
// manifest are searched once.
func (s *search) tool(e *deviceEntry, word int, seen ferrule.Visibility) bool {
	if e.manifest == nil {
		return false
	}
	matches, ok := s.tools[e.manifest]
	if !ok {
		matches = make([]toolMatch, len(s.words))
		for i := range e.manifest.Tools {
			t := &e.manifest.Tools[i]
			name := strings.ToLower(t.Name + " " + t.Title)
			for w := range s.words {
				if strings.Contains(name, s.words[w]) {
					matches[w] = append(matches[w], t)
				}
			}
		}
		s.tools[e.manifest] = matches
	}
	return slices.ContainsFunc(matches[word], func(t *ferrule.Tool) bool { return seen.Tool(e.dev, t) })
}

// DeviceFilters is what devices can be filtered by.
type DeviceFilters struct {
	Labels  []FilterChoice `json:"labels"`
	Kinds   []FilterChoice `json:"kinds"`
	Nodes   []FilterChoice `json:"nodes"`
	Hubs    []FilterChoice `json:"hubs"`
	Devices int            `json:"devices" jsonschema:"number of devices"`
	Tools   int            `json:"tools" jsonschema:"number of tools of all adopted devices"`
}

// FilterChoice is a value to filter by.
type FilterChoice struct {
	Value string `json:"value"`
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// maxChoices limits the choices of one filter: the most common ones are returned.
const maxChoices = 200

// DeviceFilters returns what the devices that a person is shown can be filtered by.
func (a *API) DeviceFilters(_ context.Context, who ferrule.Principal, _ NoInput) (DeviceFilters, error) {
	seen := a.visible(who)
	if who.Role == ferrule.Person && who.Devices == "" && (seen.Shows == nil || seen.AllDevices) {
		return a.devices.filters(), nil
	}
	return filtersOf(slices.DeleteFunc(slices.Clone(a.devices.sorted()), func(e *deviceEntry) bool {
		return !who.CanSee(e.dev) || !seen.Device(e.dev, e.manifest)
	})), nil
}

// filters returns what all devices can be filtered by. With many devices, it may be a moment
// old.
func (x *deviceIndex) filters() DeviceFilters {
	const many, age = 1000, 2 * time.Second
	all := x.sorted()
	x.mu.Lock()
	defer x.mu.Unlock()
	same := len(x.counted) == len(all) && (len(all) == 0 || &x.counted[0] == &all[0])
	if x.countedAt.IsZero() || !same && (len(all) < many || time.Since(x.countedAt) > age) {
		x.counts, x.counted, x.countedAt = filtersOf(all), all, time.Now()
	}
	return x.counts
}

func filtersOf(devices []*deviceEntry) DeviceFilters {
	labels, kinds, nodes, hubs := choices{}, choices{}, choices{}, choices{}
	var out DeviceFilters
	for _, e := range devices {
		d := e.dev
		out.Devices++
		for key, value := range d.Labels {
			labels.add(key+"="+value, key+": "+value)
		}
		for key, value := range d.Claims {
			if d.Labels[key] != value {
				labels.add(key+"="+value, key+": "+value)
			}
		}
		if d.Kind != "" {
			kinds.add(d.Kind.Short(), strings.TrimSpace(d.Model+" "+d.Version))
		}
		nodes.add(d.Node, d.Node)
		hubs.add(d.Hub, d.Hub)
		if e.manifest != nil && d.Trust == ferrule.TrustAdopted {
			out.Tools += len(e.manifest.Tools)
		}
	}
	out.Labels, out.Kinds, out.Nodes, out.Hubs = labels.list(), kinds.list(), nodes.list(), hubs.list()
	return out
}

// choices are choices by value.
type choices map[string]*FilterChoice

func (c choices) add(value, name string) {
	if value == "" {
		return
	}
	if c[value] == nil {
		c[value] = &FilterChoice{Value: value, Name: name}
	}
	c[value].Count++
}

// list returns the most common choices, sorted by name.
func (c choices) list() []FilterChoice {
	all := make([]FilterChoice, 0, len(c))
	for _, one := range c {
		all = append(all, *one)
	}
	slices.SortFunc(all, func(x, y FilterChoice) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), strings.Compare(x.Value, y.Value))
	})
	all = all[:min(len(all), maxChoices)]
	slices.SortFunc(all, func(x, y FilterChoice) int {
		return cmp.Or(strings.Compare(strings.ToLower(x.Name), strings.ToLower(y.Name)), strings.Compare(x.Value, y.Value))
	})
	return all
}
