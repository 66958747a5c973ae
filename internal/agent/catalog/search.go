package catalog

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"unicode"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// FindDevices lists the devices that fit some words best: limit at most, and how
// many fit. Without any words, that is all of them, by ID.
func (c *Catalog) FindDevices(query string, limit int) (found []*ferrule.Device, total int) {
	want := queryOf(query)
	c.mu.Lock()
	all := c.order.look()
	c.mu.Unlock()
	if len(want) == 0 {
		return all.behind("", limit), all.length
	}
	kinds := make(map[*ferrule.Manifest]fit) // looked at once, however many devices there are
	best := ranking[*ferrule.Device]{limit: limit}
	for e := range all.from("") {
		about, ok := kinds[e.manifest]
		if !ok {
			about.manifest(want, e.manifest)
			kinds[e.manifest] = about
		}
		about.device(want, e.device)
		about.words(want, 2, string(e.device.State))
		best.add(e.device, e.device.ID, about.score())
	}
	return best.top(), best.total
}

// FindTools lists the tools that fit some words best, under names that can be
// called: of a Kind that several devices are of, once. With a device, only its
// own are looked at. Of the gateway's own, those are found that tell what was measured.
func (c *Catalog) FindTools(query, device string, limit int) (found []ferrule.Offer, total int) {
	want := queryOf(query)
	best := ranking[sight]{limit: limit}
	for _, s := range c.sights(device) {
		var about fit
		about.manifest(want, s.group.manifest)
		s.members(want, &about)
		for i, name := range s.group.namesWithin(s.prefix) {
			fits, t := about, s.group.tools[i]
			fits.words(want, 4, t.Name)
			fits.words(want, 1, t.Text)
			if score := fits.score(); score > 0 || len(want) == 0 {
				s.tool = i
				best.add(s, s.prefix+separator+name, max(1, score))
			}
		}
	}
	for _, s := range best.top() {
		found = append(found, s.offer())
	}
	return found, best.total
}

// sight is the tools of a group as a search sees them.
type sight struct {
	group  *group
	prefix string
	only   *ferrule.Device // nil if they are folded
	all    view
	tool   int
}

// sights are the tools of one device, or of all Kinds and of what was measured.
func (c *Catalog) sights(device string) []sight {
	if device != "" {
		if e := c.entry(device); e != nil && e.group != nil && device != ferrule.GatewayID {
			return []sight{{group: e.group, prefix: device, only: e.device}}
		}
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]sight, 0, len(c.groups))
	seen := make(map[string]bool) // groups may be alike
	for _, g := range c.groups {
		s := sight{group: g, all: g.members.look()}
		if s.all.length == 1 {
			s.only = s.all.pieces[0].entries[0].device
			s.prefix = s.only.ID
		} else if s.prefix = c.prefixOf(g); seen[s.prefix] {
			continue
		}
		seen[s.prefix] = true
		all = append(all, s)
	}
	if c.past != nil && c.measure > 0 {
		all = append(all, sight{group: c.past, prefix: ferrule.GatewayID, only: c.own.device})
	}
	return all
}

// members adds the names and labels of the devices, as far as it is worth the
// time.
func (s sight) members(want query, about *fit) {
	const most = 100
	if s.only != nil {
		about.device(want, s.only)
	} else if s.all.length <= most {
		for e := range s.all.from("") {
			about.device(want, e.device)
		}
	}
}

func (s sight) offer() ferrule.Offer {
	if s.only != nil {
		return s.group.offerOn(s.only, s.tool, s.prefix+separator+s.group.namesWithin(s.prefix)[s.tool])
	}
	return describe(s.group.offerFolded(s.prefix, s.tool), s.all)
}

// query is the words that are looked for, each of them once.
type query []string

// maxQuery is how many words of a query are looked for.
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

// fit is how well something fits a query: each of its words, at the best place
// where it was found.
type fit [maxQuery]int

// words looks at a text, which counts as much as weight.
func (f *fit) words(want query, weight int, text string) {
	for w := range words(text) {
		for i, q := range want {
			f[i] = max(f[i], weight*closeness(w, q))
		}
	}
}

// manifest looks at what a manifest says of all devices that share it.
func (f *fit) manifest(want query, m *ferrule.Manifest) {
	if m != nil {
		f.words(want, 3, m.Model)
		f.words(want, 3, m.Platform)
		f.words(want, 3, m.Version)
	}
}

// device looks at the name and the labels of a device.
func (f *fit) device(want query, dev *ferrule.Device) {
	f.words(want, 4, dev.ID)
	for key, value := range dev.Labels {
		f.words(want, 3, key)
		f.words(want, 3, value)
	}
}

// score is how well it fits: zero if it has none of the words. That another word
// was found at all counts more than any places where they can be found.
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

// closeness is how much it counts that a word is one of the query's, begins with
// it, or has it within.
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

// words yields the words of a text, in lower case: tempSensor_2 is three. Of a
// long text, the first ones will do.
func words(text string) iter.Seq[string] {
	const most = 256
	return func(yield func(string) bool) {
		start, n, lower := -1, 0, false
		for i, r := range text {
			letter := unicode.IsLetter(r) || unicode.IsDigit(r)
			if start >= 0 && (!letter || lower && unicode.IsUpper(r)) {
				if n++; n > most || !yield(strings.ToLower(text[start:i])) {
					return
				}
				start = -1
			}
			if letter && start < 0 {
				start = i
			}
			lower = unicode.IsLower(r)
		}
		if start >= 0 && n < most {
			yield(strings.ToLower(text[start:]))
		}
	}
}

// ranking is the best of what was found, best first, and by name where they are
// as good.
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

// add takes in what was found, if it has a score.
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
