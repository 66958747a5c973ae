package catalog

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"unicode"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// FindDevices returns up to limit devices that match words, best first, and the number of
// matches. Without words it returns all devices in the order of IDs.
// For a caller from whom something is hidden, only the best matches are looked at.
func (v View) FindDevices(query string, limit int) (found []*ferrule.Device, total int) {
	want := queryOf(query)
	all := v.c.all()
	if len(want) == 0 && !v.Restricted() {
		return all.after("", limit), all.length
	}
	kinds := make(map[*ferrule.Manifest]fit) // each manifest is scored once
	best := ranking[*entry]{limit: limit}
	if v.Restricted() {
		best.limit = maxMatches
	}
	for e := range all.from("") {
		about, ok := kinds[e.manifest]
		if !ok {
			about.manifest(want, e.manifest)
			kinds[e.manifest] = about
		}
		about.device(want, e.device)
		about.words(want, 2, string(e.device.State))
		score := about.score()
		if len(want) == 0 {
			score = 1
		}
		best.add(e, e.device.ID, score)
	}
	total = best.total
	if v.Restricted() {
		total = 0
	}
	for _, e := range best.top() {
		if v.Restricted() {
			if !v.seen.Device(e.device, e.manifest) {
				continue
			}
			total++
		}
		if len(found) < limit {
			found = append(found, e.device)
		}
	}
	return found, total
}

// maxMatches is how many matches of a search are checked for whether they are shown.
const maxMatches = 10_000

// FindTools returns up to limit tools that match words, best first, under names that can
// be called. Devices of one Kind share one result. With a device, only its tools are
// searched. Of the built-in tools, those for measured values are included.
func (v View) FindTools(query, device string, limit int) (found []ferrule.Offer, total int) {
	want := queryOf(query)
	best := ranking[candidate]{limit: limit}
	for _, s := range v.candidates(device) {
		var about fit
		about.manifest(want, s.group.manifest)
		v.members(s, want, &about)
		for i, name := range s.group.namesFor(s.prefix) {
			fits, t := about, s.group.tools[i]
			fits.words(want, 4, t.Name)
			fits.words(want, 1, t.Text)
			if score := fits.score(); (score > 0 || len(want) == 0) && v.finds(s, t) {
				s.tool = i
				best.add(s, s.prefix+separator+name, max(1, score))
			}
		}
	}
	for _, s := range best.top() {
		found = append(found, v.offer(s))
	}
	return found, best.total
}

// candidate is a group of tools in a search.
type candidate struct {
	group  *group
	prefix string
	only   *ferrule.Device // nil if folded
	all    snapshot
	tool   int
}

// finds reports whether a tool of a candidate is shown.
func (v View) finds(s candidate, tool *ferrule.Tool) bool {
	if s.only != nil {
		return v.seen.Tool(s.only, tool)
	}
	return v.any(s.all, tool)
}

// candidates returns the groups to search: of one device, or all.
func (v View) candidates(device string) []candidate {
	c := v.c
	if device != "" {
		if e := c.entry(device); e != nil && e.group != nil && device != ferrule.GatewayID {
			return []candidate{{group: e.group, prefix: device, only: e.device}}
		}
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]candidate, 0, len(c.groups))
	seen := make(map[string]bool) // groups may have equal prefixes
	for _, g := range c.groups {
		s := candidate{group: g, all: g.members.take()}
		if s.all.length == 1 {
			s.only = s.all.chunks[0].entries[0].device
			s.prefix = s.only.ID
		} else if s.prefix = c.prefixOf(g); seen[s.prefix] {
			continue
		}
		seen[s.prefix] = true
		all = append(all, s)
	}
	if c.measureTools != nil && c.measuring > 0 {
		all = append(all, candidate{group: c.measureTools, prefix: ferrule.GatewayID, only: c.own.device})
	}
	return all
}

// members scores names and labels of the devices, unless there are too many.
func (v View) members(s candidate, want query, about *fit) {
	const limit = 100
	if s.only != nil {
		about.device(want, s.only)
	} else if s.all.length <= limit {
		for e := range s.all.from("") {
			if v.seen.Device(e.device, e.manifest) {
				about.device(want, e.device)
			}
		}
	}
}

func (v View) offer(s candidate) ferrule.Offer {
	if s.only != nil {
		return s.group.offerOn(s.only, s.tool, s.prefix+separator+s.group.namesFor(s.prefix)[s.tool])
	}
	return v.describe(s.group.offerFolded(s.prefix, s.tool), s.all)
}

// query is a set of search words.
type query []string

// maxQuery is the maximum number of search words.
const maxQuery = 16

func queryOf(text string) query {
	var q query
	for w := range words(text) {
		if len(q) < maxQuery && !slices.Contains(q, w) {
			q = append(q, w)
		}
	}
	return q
}

// fit has, for each word of a query, the score of its best match.
type fit [maxQuery]int

// words scores a text with a weight.
func (f *fit) words(want query, weight int, text string) {
	for w := range words(text) {
		for i, q := range want {
			f[i] = max(f[i], weight*closeness(w, q))
		}
	}
}

// manifest scores a manifest.
func (f *fit) manifest(want query, m *ferrule.Manifest) {
	if m != nil {
		f.words(want, 3, m.Model)
		f.words(want, 3, m.Platform)
		f.words(want, 3, m.Version)
	}
}

// device scores the names and labels of a device.
func (f *fit) device(want query, dev *ferrule.Device) {
	f.words(want, 4, dev.ID)
	for _, alias := range dev.Aliases {
		f.words(want, 3, alias)
	}
	f.words(want, 4, dev.Title)
	for _, labels := range []map[string]string{dev.Labels, dev.Claims} {
		for key, value := range labels {
			f.words(want, 3, key)
			f.words(want, 3, value)
		}
	}
}

// score returns the total, or zero without any match. One more matching word counts more
// than any better match.
func (f *fit) score() int {
	const everyWord = 1000
	score := 0
	for _, best := range f {
		if best > 0 {
			score += everyWord + best
		}
	}
	return score
}

// closeness scores a word that equals, starts with or contains a search word.
func closeness(word, query string) int {
	const same, begins, within = 4, 2, 1
	switch {
	case word == query:
		return same
	case strings.HasPrefix(word, query):
		return begins
	case len(query) > 2 && strings.Contains(word, query):
		return within
	}
	return 0
}

// words yields the words of a text in lower case; tempSensor_2 has three. Only the first
// words of a long text are used.
func words(text string) iter.Seq[string] {
	const limit = 256
	return func(yield func(string) bool) {
		start, n, lower := -1, 0, false
		for i, r := range text {
			letter := unicode.IsLetter(r) || unicode.IsDigit(r)
			if start >= 0 && (!letter || lower && unicode.IsUpper(r)) {
				if n++; n > limit || !yield(strings.ToLower(text[start:i])) {
					return
				}
				start = -1
			}
			if letter && start < 0 {
				start = i
			}
			lower = unicode.IsLower(r)
		}
		if start >= 0 && n < limit {
			yield(strings.ToLower(text[start:]))
		}
	}
}

// ranking keeps the best results, best first, then by name.
type ranking[T any] struct {
	limit int
	total int
	best  []ranked[T]
}

type ranked[T any] struct {
	thing T
	name  string
	score int
}

func (r ranked[T]) compare(other ranked[T]) int {
	return cmp.Or(cmp.Compare(other.score, r.score), cmp.Compare(r.name, other.name))
}

// add adds a result, unless its score is zero.
func (r *ranking[T]) add(thing T, name string, score int) {
	if score == 0 {
		return
	}
	r.total++
	one := ranked[T]{thing, name, score}
	n := len(r.best)
	if n >= r.limit && (n == 0 || one.compare(r.best[n-1]) > 0) {
		return
	}
	at, _ := slices.BinarySearchFunc(r.best, one, ranked[T].compare)
	r.best = slices.Insert(r.best, at, one)
	r.best = r.best[:min(len(r.best), r.limit)]
}

func (r *ranking[T]) top() []T {
	var top []T
	for _, one := range r.best {
		top = append(top, one.thing)
	}
	return top
}
