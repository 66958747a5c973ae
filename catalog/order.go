package catalog

import (
	"iter"
	"slices"
	"strings"
)

// order is devices by ID. Changes are cheap, and are put in their places when
// somebody looks: a million devices may come at once.
type order struct {
	sorted []*entry
	added  []*entry
	gone   map[*entry]bool
}

func (o *order) add(e *entry) { o.added = append(o.added, e) }

func (o *order) remove(e *entry) {
	if o.gone == nil {
		o.gone = make(map[*entry]bool)
	}
	o.gone[e] = true
}

// from yields those whose ID is not before id.
func (o *order) from(id string) iter.Seq[*entry] {
	o.settle()
	first, _ := slices.BinarySearchFunc(o.sorted, id, func(e *entry, id string) int { return strings.Compare(e.device.ID, id) })
	return slices.Values(o.sorted[first:])
}

// settle puts what has changed in its place.
func (o *order) settle() {
	if len(o.added) == 0 && len(o.gone) == 0 {
		return
	}
	slices.SortFunc(o.added, func(a, b *entry) int { return strings.Compare(a.device.ID, b.device.ID) })
	merged := make([]*entry, 0, len(o.sorted)+len(o.added))
	keep := func(e *entry) {
		if !o.gone[e] {
			merged = append(merged, e)
		}
	}
	next := 0
	for _, e := range o.sorted {
		for ; next < len(o.added) && o.added[next].device.ID < e.device.ID; next++ {
			keep(o.added[next])
		}
		keep(e)
	}
	for _, e := range o.added[next:] {
		keep(e)
	}
	*o = order{sorted: merged}
}
