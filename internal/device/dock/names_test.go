package dock_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// randomBoards is a set of boards with changing configuration.
type randomBoards struct {
	boards   []*board
	names    []string // configured names; may be empty
	here     []bool
	shy      []bool
	instance []uint64
	texts    int // changes of the reason for an absence
}

var ownersNames = []string{"robot", "arm", "m0", "m1"} // two are names that boards give themselves

func newDockside(n int) *randomBoards {
	d := &randomBoards{names: make([]string, n), here: make([]bool, n), shy: make([]bool, n), instance: make([]uint64, n)}
	for i := range n {
		d.boards = append(d.boards, &board{address: fmt.Sprint("a", i), model: fmt.Sprint("m", i%2)})
		d.here[i] = true
	}
	return d
}

// picture returns the boards in sight in random order, and some absent ones.
func (d *randomBoards) picture(rng *rand.Rand, absent bool) []transport.Sighting {
	var all []transport.Sighting
	used := make(map[string]bool)
	for i, b := range d.boards {
		if !d.here[i] {
			continue
		}
		s := found(b)
		s.Instance, s.Name, s.Adopted, s.Location = d.instance[i], d.names[i], d.names[i] != "", fmt.Sprint("p", i/2)
		if d.shy[i] && s.Name == "" {
			s.AdoptFirst = "it may restart"
		}
		used[s.Name] = true
		all = append(all, s)
	}
	for _, name := range ownersNames[:2] {
		if absent && !used[name] {
			all = append(all, transport.Sighting{Address: "/dev/" + name, Instance: 1, Name: name, Adopted: true, Absent: fmt.Sprint("none ", d.texts)})
		}
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// change makes one random change to the configuration.
func (d *randomBoards) change(w *world, rng *rand.Rand, step int, send func()) {
	i, j := rng.IntN(len(d.boards)), rng.IntN(len(d.boards))
	switch rng.IntN(8) {
	case 0: // a name moves
		name := ownersNames[rng.IntN(len(ownersNames))]
		for k := range d.names {
			if d.names[k] == name {
				d.names[k] = ""
			}
		}
		d.names[i] = name
	case 1:
		d.names[i], d.names[j] = d.names[j], d.names[i]
	case 2:
		d.here[i] = !d.here[i]
	case 3:
		d.instance[i]++
		d.shy[i] = rng.IntN(2) == 0
	case 4:
		d.names[i] = ""
		d.texts++
	default:
		shake(w, d.boards[i], rng, step, send, func() { d.instance[i]++ })
		return
	}
	send()
}

// TestRandomNames moves names at random and checks that each board ends up with its
// own.
func TestRandomNames(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for seed := range uint64(300) {
		bubble(t, func(t *testing.T, dir string) {
			w := open(t, dir)
			d := newDockside(4)
			rng := rand.New(rand.NewPCG(seed, 7))
			send := func() {
				all := d.picture(rng, rng.IntN(2) == 0)
				w.transport.updates <- func(update func(string, []transport.Sighting)) { update("g", all) }
			}
			for step := range 80 {
				d.change(w, rng, step, send)
				if rng.IntN(3) == 0 {
					time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
				}
			}
			for i, b := range d.boards {
				b.set(func(b *board) { b.refuse = nil })
				d.here[i], d.shy[i] = true, false
			}
			all := d.picture(rng, false)
			w.transport.updates <- func(update func(string, []transport.Sighting)) {
				for _, b := range d.boards {
					update(b.address, nil) // remove what shake reported
				}
				update("g", all)
			}
			time.Sleep(2 * time.Minute)
			at := make(map[string]string)
			for _, dev := range w.fleet.Devices() {
				kept, ok := w.store.At(dev.Address)
				if at[dev.Address] != "" || dev.State != ferrule.StateOnline || !ok || kept.ID != dev.ID || kept.Trust != dev.Trust {
					t.Errorf("seed %d: %+v, remembered as %+v", seed, dev, kept)
				}
				at[dev.Address] = dev.ID
			}
			for i, b := range d.boards {
				if id := at[b.address]; id == "" || d.names[i] != "" && id != d.names[i] {
					t.Errorf("seed %d: %s is %q, want %q; there are %s", seed, b.address, id, d.names[i], w.ids())
				}
			}
			w.stop()
			for _, b := range d.boards {
				if n := b.get(&b.links); n != 0 {
					t.Errorf("seed %d: %d links are left", seed, n)
				}
			}
		})
	}
}

// TestMaxAbsentPending checks that only so many absent pending devices are stored.
func TestMaxAbsentPending(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	bubble(t, func(t *testing.T, dir string) {
		const most = 1000
		w := open(t, dir)
		w.transport.see("here", found(&board{address: "here", model: "here"}))
		w.transport.see("trusted", found(&board{address: "trusted", model: "trusted"}))
		if err := w.dock.Adopt("trusted"); err != nil {
			t.Fatal(err)
		}
		w.transport.see("trusted")
		for i := range most + 10 {
			w.transport.see("g", found(&board{address: fmt.Sprint("a", i), model: fmt.Sprint("m", i)}))
		}
		w.transport.see("g")
		check := func(want int) {
			t.Helper()
			kinds, err := os.ReadDir(filepath.Join(dir, "manifests"))
			if n := len(w.fleet.Devices()); n != want || err != nil || len(kinds) != n {
				t.Errorf("%d devices of %d Kinds are remembered: %v", n, len(kinds), err)
			}
			for id, want := range map[string]bool{"here": true, "trusted": true, "m0": false, "m9": false, "m11": true, "m1009": true} {
				if _, _, ok := w.fleet.Lookup(id); ok != want {
					t.Errorf("%s is remembered: %v", id, ok)
				}
			}
		}
		check(most + 2)
		w.stop()
		w = open(t, dir)
		check(most + 1) // the last one has left, too
	})
}
