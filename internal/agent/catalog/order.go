package catalog

import (
	"iter"
	"slices"
	"sort"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// order is devices by ID, in pieces: a change costs about the same whether there
// are ten or a million. Whoever looks at it keeps what they saw, because a piece
// that was shown is copied before it is changed. So nobody waits for a search.
type order struct {
	view
	shown bool // the slice of pieces was
	epoch int  // pieces of an earlier one were
}

// view is an order as it was at a moment. It never changes.
type view struct {
	pieces []*piece // none is empty
	length int
}

type piece struct {
	epoch   int
	low     string // no ID in it is before, and each in the pieces before it is
	entries []*entry
}

// maxPiece is how many devices a piece holds at most.
const maxPiece = 256

// look shows the order as it is now.
func (o *order) look() view {
	o.shown = true
	o.epoch++
	return o.view
}

// put adds a device, or replaces the one of its ID.
func (o *order) put(e *entry) {
	if len(o.pieces) == 0 {
		o.pieces, o.shown, o.length = []*piece{{epoch: o.epoch, entries: []*entry{e}}}, false, 1
		return
	}
	at, i := o.place(e.id)
	p := o.change(at)
	if i < len(p.entries) && p.entries[i].id == e.id {
		p.entries[i] = e
		return
	}
	p.entries = slices.Insert(p.entries, i, e)
	o.length++
	if n := len(p.entries); n > maxPiece {
		// Devices often come by ID: then the first part stays as it is.
		half := n / 2
		if at == len(o.pieces)-1 && i == n-1 {
			half = n - 1
		}
		o.pieces = slices.Insert(o.pieces, at+1, &piece{o.epoch, p.entries[half].id, slices.Clone(p.entries[half:])})
		p.entries = slices.Delete(p.entries, half, n)
	}
}

// remove takes out the device of an ID.
func (o *order) remove(id string) {
	if len(o.pieces) == 0 {
		return
	}
	at, i := o.place(id)
	if entries := o.pieces[at].entries; i == len(entries) || entries[i].id != id {
		return
	}
	p := o.change(at)
	p.entries = slices.Delete(p.entries, i, i+1)
	o.length--
	if len(p.entries) == 0 {
		o.pieces = slices.Delete(o.pieces, at, at+1)
	}
}

// own makes the slice of pieces one that can be changed.
func (o *order) own() {
	if o.shown {
		o.pieces, o.shown = slices.Clone(o.pieces), false
	}
}

// change makes a piece one that can be changed.
func (o *order) change(at int) *piece {
	o.own()
	if p := o.pieces[at]; p.epoch != o.epoch {
		o.pieces[at] = &piece{o.epoch, p.low, slices.Clone(p.entries)}
	}
	return o.pieces[at]
}

// place is where a device of an ID is, or would be: in which piece, and before
// which device of it. There must be a piece.
func (v view) place(id string) (at, i int) {
	at = sort.Search(len(v.pieces)-1, func(at int) bool { return v.pieces[at+1].low > id })
	entries := v.pieces[at].entries
	return at, sort.Search(len(entries), func(i int) bool { return entries[i].id >= id })
}

// count is how many devices have an ID that begins so.
func (v view) count(prefix string) int {
	if v.length == 0 {
		return 0
	}
	n := 0
	for at, i := v.place(prefix); at < len(v.pieces); at, i = at+1, 0 {
		entries := v.pieces[at].entries[i:]
		if last := len(entries) - 1; last < 0 || strings.HasPrefix(entries[last].id, prefix) {
			n += len(entries)
			continue
		}
		return n + sort.Search(len(entries), func(i int) bool { return !strings.HasPrefix(entries[i].id, prefix) })
	}
	return n
}

// from yields those whose ID is not before id.
func (v view) from(id string) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		if v.length == 0 {
			return
		}
		at, i := v.place(id)
		for ; at < len(v.pieces); at, i = at+1, 0 {
			for _, e := range v.pieces[at].entries[i:] {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// behind are the devices whose ID is behind id, limit at most.
func (v view) behind(id string, limit int) []*ferrule.Device {
	var all []*ferrule.Device
	for e := range v.from(id) {
		if len(all) >= limit {
			break
		}
		if e.id != id {
			all = append(all, e.device)
		}
	}
	return all
}
