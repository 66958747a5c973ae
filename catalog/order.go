package catalog

import (
	"cmp"
	"iter"
	"slices"
	"sort"

	"github.com/ferrulehq/ferrule"
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
		o.pieces, o.shown, o.length = []*piece{{o.epoch, []*entry{e}}}, false, 1
		return
	}
	at, i := o.find(e.device.ID)
	if at == len(o.pieces) { // behind all others
		at--
		i = len(o.pieces[at].entries)
	}
	p := o.change(at)
	if i < len(p.entries) && p.entries[i].device.ID == e.device.ID {
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
		o.pieces = slices.Insert(o.pieces, at+1, &piece{o.epoch, slices.Clone(p.entries[half:])})
		p.entries = slices.Delete(p.entries, half, n)
	}
}

// remove takes out the device of an ID.
func (o *order) remove(id string) {
	at, i := o.find(id)
	if at == len(o.pieces) || o.pieces[at].entries[i].device.ID != id {
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
		o.pieces[at] = &piece{o.epoch, slices.Clone(p.entries)}
	}
	return o.pieces[at]
}

// find is where the first device is whose ID is not before id: behind all pieces
// if there is none.
func (v view) find(id string) (at, i int) {
	return v.first(func(other string) bool { return cmp.Compare(other, id) >= 0 })
}

// first is where the first device is whose ID is so. All behind it must be, too.
func (v view) first(is func(id string) bool) (at, i int) {
	at = sort.Search(len(v.pieces), func(at int) bool {
		entries := v.pieces[at].entries
		return is(entries[len(entries)-1].device.ID)
	})
	if at == len(v.pieces) {
		return at, 0
	}
	entries := v.pieces[at].entries
	return at, sort.Search(len(entries), func(i int) bool { return is(entries[i].device.ID) })
}

// rank is how many devices are before a place.
func (v view) rank(at, i int) int {
	for _, p := range v.pieces[:at] {
		i += len(p.entries)
	}
	return i
}

// from yields those whose ID is not before id.
func (v view) from(id string) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		at, i := v.find(id)
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
		if e.device.ID != id {
			all = append(all, e.device)
		}
	}
	return all
}
