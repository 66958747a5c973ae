package catalog

import (
	"iter"
	"slices"
	"sort"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// order is a list of devices sorted by ID, stored in chunks: a change costs about the same
// for ten devices and for a million. A snapshot stays valid, because a chunk that is part
// of one is copied before it changes. So nothing waits for a search.
type order struct {
	snapshot
	shared bool // the slice of chunks is part of a snapshot
	epoch  int  // chunks of an earlier epoch are part of one
}

// snapshot is an order at one moment. It is immutable.
type snapshot struct {
	chunks []*chunk // not empty
	length int
}

type chunk struct {
	epoch   int
	low     string // lower bound of its IDs; earlier chunks are below it
	entries []*entry
}

// maxChunk is the maximum number of devices in a chunk.
const maxChunk = 256

// take returns a snapshot of the order.
func (o *order) take() snapshot {
	o.shared = true
	o.epoch++
	return o.snapshot
}

// put adds or replaces a device.
func (o *order) put(e *entry) {
	if len(o.chunks) == 0 {
		o.chunks, o.shared, o.length = []*chunk{{epoch: o.epoch, entries: []*entry{e}}}, false, 1
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
	if n := len(p.entries); n > maxChunk {
		// Devices often arrive in the order of IDs: then the first part stays full.
		half := n / 2
		if at == len(o.chunks)-1 && i == n-1 {
			half = n - 1
		}
		o.chunks = slices.Insert(o.chunks, at+1, &chunk{o.epoch, p.entries[half].id, slices.Clone(p.entries[half:])})
		p.entries = slices.Delete(p.entries, half, n)
	}
}

func (o *order) remove(id string) {
	if len(o.chunks) == 0 {
		return
	}
	at, i := o.place(id)
	if entries := o.chunks[at].entries; i == len(entries) || entries[i].id != id {
		return
	}
	p := o.change(at)
	p.entries = slices.Delete(p.entries, i, i+1)
	o.length--
	if len(p.entries) == 0 {
		o.chunks = slices.Delete(o.chunks, at, at+1)
	}
}

// unshare makes the slice of chunks mutable.
func (o *order) unshare() {
	if o.shared {
		o.chunks, o.shared = slices.Clone(o.chunks), false
	}
}

// change returns a mutable chunk.
func (o *order) change(at int) *chunk {
	o.unshare()
	if p := o.chunks[at]; p.epoch != o.epoch {
		o.chunks[at] = &chunk{o.epoch, p.low, slices.Clone(p.entries)}
	}
	return o.chunks[at]
}

// place returns the chunk and the index in it where an ID is, or would be. There must be
// at least one chunk.
func (v snapshot) place(id string) (at, i int) {
	at = sort.Search(len(v.chunks)-1, func(at int) bool { return v.chunks[at+1].low > id })
	entries := v.chunks[at].entries
	return at, sort.Search(len(entries), func(i int) bool { return entries[i].id >= id })
}

// count returns the number of IDs with a prefix.
func (v snapshot) count(prefix string) int {
	if v.length == 0 {
		return 0
	}
	n := 0
	for at, i := v.place(prefix); at < len(v.chunks); at, i = at+1, 0 {
		entries := v.chunks[at].entries[i:]
		if last := len(entries) - 1; last < 0 || strings.HasPrefix(entries[last].id, prefix) {
			n += len(entries)
			continue
		}
		return n + sort.Search(len(entries), func(i int) bool { return !strings.HasPrefix(entries[i].id, prefix) })
	}
	return n
}

// from yields devices from an ID on.
func (v snapshot) from(id string) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		if v.length == 0 {
			return
		}
		at, i := v.place(id)
		for ; at < len(v.chunks); at, i = at+1, 0 {
			for _, e := range v.chunks[at].entries[i:] {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// after returns up to limit devices after an ID.
func (v snapshot) after(id string, limit int) []*ferrule.Device {
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
