package catalog

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// FindDevices returns up to limit devices that match words, best first, and the number of
// matches. Words match what a device is called and what its tools can do. Without words it
// returns all devices in the order of IDs.
// For a caller from whom something is hidden, only the best matches are looked at.
func (v View) FindDevices(query string, limit int) (found []*ferrule.Device, total int) {
	want := queryOf(query)
	all := v.c.all()
	if len(want.terms) == 0 && !v.Restricted() {
		return all.after("", limit), all.length
	}
	best := ranking[*entry]{limit: limit}
	if v.Restricted() {
		best.limit = maxMatches
	}
	kinds := make(kindFits)
	fits := make([]fit, 0, all.length)
	for e := range all.from("") {
		kind := kinds.of(e, want)
		about := kind.device(want, e)
		about.add(kind.tools)
		fits = append(fits, about)
	}
	w, n := weigh(want, fits), 0
	for e := range all.from("") {
		best.add(e, e.device.ID, fits[n].scoreOf(want, &w))
		n++
	}
	if v.Restricted() {
		best = v.shown(best.top(), want, kinds, &w, limit)
	}
	for _, e := range best.top() {
		found = append(found, e.device)
	}
	return found, best.total
}

// shown ranks the matches that a caller sees, without what hidden tools can do. Of the tools
// of later matches it does not ask the policy.
func (v View) shown(matches []*entry, want query, kinds kindFits, w *weights, limit int) ranking[*entry] {
	best := ranking[*entry]{limit: limit}
	left := maxChecked
	for _, e := range matches {
		if !v.seen.Device(e.device, e.manifest) {
			continue
		}
		kind := kinds.of(e, want)
		about := kind.device(want, e)
		for i, t := range kind.able {
			if left--; left > 0 && v.seen.Tool(e.device, t) {
				about.add(kind.fits[i])
			}
		}
		best.add(e, e.device.ID, about.scoreOf(want, w))
	}
	return best
}

// kindFits has the scores of manifests: each is scored once.
type kindFits map[*ferrule.Manifest]*kindFit

// kindFit is the score of a manifest and of its tools.
type kindFit struct {
	manifest, tools fit
	able            []*ferrule.Tool // tools that match a word
	fits            []fit           // of these
}

// of returns the scores of the manifest of a device.
func (k kindFits) of(e *entry, want query) *kindFit {
	kind := k[e.manifest]
	if kind != nil {
		return kind
	}
	kind = &kindFit{}
	k[e.manifest] = kind
	kind.manifest.manifest(want, e.manifest)
	for i := 0; e.manifest != nil && i < len(e.manifest.Tools); i++ {
		var f fit
		t := &e.manifest.Tools[i]
		if t.Quarantine != "" || !anyAgent.CanCall(t) {
			continue
		}
		if f.tool(want, t); f != (fit{}) {
			kind.tools.add(f)
			kind.able, kind.fits = append(kind.able, t), append(kind.fits, f)
		}
	}
	return kind
}

// device scores a device without its tools.
func (k *kindFit) device(want query, e *entry) fit {
	about := k.manifest
	about.device(want, e.device)
	about.words(want, 2, string(e.device.State))
	return about
}

// maxMatches is how many matches of a search are checked for whether they are shown.
const maxMatches = 10_000

// FindTools returns up to limit tools that match words, best first, under names that can
// be called. Devices of one Kind share one result. With a device, only its tools are
// searched. Of the built-in tools, those for measured values are included.
func (v View) FindTools(query, device string, limit int) (found []ferrule.Offer, total int) {
	want := queryOf(query)
	best := ranking[candidate]{limit: limit}
	all := v.candidates(device)
	var fits []fit
	for _, s := range all {
		var about fit
		about.manifest(want, s.group.manifest)
		v.members(s, want, &about)
		for _, t := range s.group.tools {
			fits = append(fits, about)
			fits[len(fits)-1].tool(want, t)
		}
	}
	w, n := weigh(want, fits), 0
	for _, s := range all {
		for i, name := range s.group.namesFor(s.prefix) {
			score, t := fits[n].score(&w), s.group.tools[i]
			n++
			if score > 0 && want.asks && t.Effect == ferrule.Reads {
				score += asked
			}
			if (score > 0 || len(want.terms) == 0) && v.finds(s, t) {
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

// asked is what a tool that reads gains if the query is a question: as much as a word that
// every second tool has.
const asked = 100_000

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
type query struct {
	terms []term
	// asks reports whether it is a question.
	asks bool
}

// term is one search word: its text, the text without its ending, and other words for it.
type term struct {
	text, stem string
	others     []string
	weak       bool
}

// maxQuery is the maximum number of search words.
const maxQuery = 16

func queryOf(text string) query {
	var all, telling []string
	q := query{}
	for w := range words(text) {
		if len(all) == 0 {
			q.asks = askWords[w]
		}
		if len(all) < maxQuery && !slices.Contains(all, w) {
			all = append(all, w)
		}
		if len(telling) < maxQuery && !stopWords[w] && !slices.Contains(telling, w) {
			telling = append(telling, w)
		}
	}
	if len(telling) > 0 {
		all = telling
	}
	for _, w := range all {
		t := term{text: w, stem: stem(w), weak: weakWords[w]}
		for _, same := range slices.Compact([]string{w, t.stem, t.stem + "e"}) {
			for _, other := range synonyms[same] {
				if other != w && !slices.Contains(t.others, other) {
					t.others = append(t.others, other)
				}
			}
		}
		q.terms = append(q.terms, t)
	}
	return q
}

// fit has, for each word of a query, the score of its best match: how the word was matched
// in the upper bits, and how well in the lower ones.
type fit [maxQuery]uint8

// Sorts of matches. A word in a name counts more than one in a text, and the word itself
// more than another word for it.
const (
	otherInText = iota << 4
	otherInName
	inText
	inName
)

// words scores a text with a weight, which is 1 for long texts.
func (f *fit) words(want query, weight int, text string) {
	if len(want.terms) == 0 || text == "" {
		return
	}
	direct, other := inName, otherInName
	if weight == 1 {
		direct, other = inText, otherInText
	}
	for w := range words(text) {
		for i := range want.terms {
			if f[i] < uint8(direct+4*weight) {
				f[i] = max(f[i], want.terms[i].match(w, weight, direct, other))
			}
		}
	}
}

// match scores a word.
func (t *term) match(word string, weight, direct, other int) uint8 {
	near := closeness(word, t.text)
	if near == 0 && len(t.stem) > 2 && t.stem != t.text && strings.HasPrefix(word, t.stem) {
		near = 2
		if word == t.stem {
			near = 3
		}
	}
	if near > 0 {
		return uint8(direct + weight*near - 1)
	}
	for _, same := range t.others {
		if word == same || len(same) > 3 && strings.HasPrefix(word, same) {
			return uint8(other + weight*2 - 1)
		}
	}
	return 0
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

// tool scores a tool.
func (f *fit) tool(want query, t *ferrule.Tool) {
	f.words(want, 4, t.Name)
	f.words(want, 2, t.Class)
	f.words(want, 1, t.Text)
}

// add takes the better matches of another fit.
func (f *fit) add(other fit) {
	for i := range f {
		f[i] = max(f[i], other[i])
	}
}

// weights has a weight for each word of a query: a rare word says more than a common one.
type weights [maxQuery]int

// weigh returns the weights of the words of a query, from the fits of all candidates.
func weigh(want query, fits []fit) weights {
	var w weights
	var found [maxQuery]int
	for _, f := range fits {
		for i := range want.terms {
			if f[i] > 0 {
				found[i]++
			}
		}
	}
	for i, t := range want.terms {
		w[i] = int(64 * math.Log2(1+float64(len(fits))/float64(max(1, found[i]))))
		if t.weak {
			w[i] /= 4
		}
	}
	return w
}

// score returns the total, or zero without any match. Of words of one weight, one more
// match counts more than any better match.
func (f *fit) score(w *weights) int {
	credit := [4]int{400, 700, 700, 1000} // by the sort of match
	score := 0
	for i, best := range f {
		if best > 0 {
			score += w[i] * (credit[best>>4] + int(best&15))
		}
	}
	return score
}

// scoreOf is score, and the same for all candidates if there are no words.
func (f *fit) scoreOf(want query, w *weights) int {
	if len(want.terms) == 0 {
		return 1
	}
	return f.score(w)
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
