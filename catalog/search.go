package catalog

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/ferrulehq/ferrule"
)

// FindDevices lists the devices that fit some words best: limit at most, and how
// many fit. Without any words, that is all of them, by ID.
func (c *Catalog) FindDevices(query string, limit int) (found []*ferrule.Device, total int) {
	want := words(query)
	c.mu.Lock()
	defer c.mu.Unlock()
	kinds := make(map[*ferrule.Manifest]field) // looked at once, however many devices there are
	var best ranking[*ferrule.Device]
	for e := range c.order.from("") {
		about, ok := kinds[e.manifest]
		if !ok {
			about = ofManifest(e.manifest)
			kinds[e.manifest] = about
		}
		text := document{{weight: 4, words: words(e.device.ID)}, about}
		text = append(text, labels(e.device)...)
		text = append(text, field{weight: 2, words: words(string(e.device.State))})
		if score := text.score(want); len(want) == 0 || score > 0 {
			best.add(e.device, e.device.ID, score)
		}
	}
	return best.top(limit), len(best.all)
}

// FindTools lists the tools that fit some words best, under names that can be
// called: of a Kind that several devices are of, once. With a device, only its
// own are looked at.
func (c *Catalog) FindTools(query, device string, limit int) (found []ferrule.Offer, total int) {
	want := words(query)
	c.mu.Lock()
	defer c.mu.Unlock()
	var best ranking[ferrule.Offer]
	look := func(g *group, offers []ferrule.Offer, about ...field) {
		about = append(about, ofManifest(g.manifest))
		for _, o := range offers {
			text := append(document{{weight: 4, words: words(o.Tool.Name)}, {weight: 1, words: words(o.Text)}}, about...)
			if score := text.score(want); len(want) == 0 || score > 0 {
				best.add(o, o.Name, score)
			}
		}
	}
	for _, g := range c.groups {
		switch {
		case device != "" && !g.members[device]:
		case device != "" || len(g.members) == 1:
			id := cmp.Or(device, slices.Collect(maps.Keys(g.members))[0])
			dev := c.devices[id].device
			look(g, g.offersOn(dev), append(labels(dev), field{weight: 3, words: words(id)})...)
		default:
			look(g, g.offersFolded(), c.memberWords(g)...)
		}
	}
	found = best.top(limit)
	for i, o := range found {
		if o.Argument != "" {
			prefix, _, _ := strings.Cut(o.Name, separator)
			for _, g := range c.groups {
				if g.prefix == prefix {
					found[i] = g.describe(o)
				}
			}
		}
	}
	return found, len(best.all)
}

// memberWords are the words in the names and labels of a group's devices, as far
// as it is worth the time.
func (c *Catalog) memberWords(g *group) []field {
	const most = 100
	if len(g.members) > most {
		return nil
	}
	var all []field
	for id := range g.members {
		all = append(all, labels(c.devices[id].device)...)
		all = append(all, field{weight: 3, words: words(id)})
	}
	return all
}

// ofManifest is what a manifest says of all devices that share it.
func ofManifest(m *ferrule.Manifest) field {
	if m == nil {
		return field{}
	}
	return field{weight: 3, words: words(m.Model + " " + m.Platform + " " + m.Version)}
}

// labels are the labels of a device, to be searched.
func labels(dev *ferrule.Device) []field {
	var all []field
	for key, value := range dev.Labels {
		all = append(all, field{weight: 3, words: words(key + " " + value)})
	}
	return all
}

// document is what a query is compared with.
type document []field

// field is a part of a document, and how much it counts.
type field struct {
	weight int
	words  []string
}

// How much it counts that a word is one of the query's, begins with it, or has it
// within.
const (
	same   = 4
	begins = 2
	within = 1
)

// everyWord is what it counts that another word of the query was found at all:
// more than any place where it can be found.
const everyWord = 100

// score is how well a document fits a query: zero if it has none of its words.
func (d document) score(query []string) int {
	score := 0
	for _, q := range query {
		best := 0
		for _, f := range d {
			for _, w := range f.words {
				best = max(best, f.weight*closeness(w, q))
			}
		}
		if best > 0 {
			score += everyWord + best
		}
	}
	return score
}

func closeness(word, query string) int {
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

// maxWords is how many words of a text are looked at.
const maxWords = 256

// words are the words of a text, in lower case: tempSensor_2 is three.
func words(text string) []string {
	var all []string
	var word strings.Builder
	end := func() {
		if word.Len() > 0 && len(all) < maxWords {
			all = append(all, strings.ToLower(word.String()))
		}
		word.Reset()
	}
	lower := false
	for _, r := range text {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			end()
		case unicode.IsUpper(r) && lower:
			end()
			word.WriteRune(r)
		default:
			word.WriteRune(r)
		}
		lower = unicode.IsLower(r)
	}
	end()
	return all
}

// ranking is things that were found.
type ranking[T any] struct{ all []ranked[T] }

type ranked[T any] struct {
	thing T
	name  string
	score int
}

func (r *ranking[T]) add(thing T, name string, score int) {
	r.all = append(r.all, ranked[T]{thing, name, score})
}

// top is the best of them, best first, and by name where they are as good.
func (r *ranking[T]) top(limit int) []T {
	slices.SortFunc(r.all, func(a, b ranked[T]) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.name, b.name))
	})
	var best []T
	for _, f := range r.all[:min(limit, len(r.all))] {
		best = append(best, f.thing)
	}
	return best
}
