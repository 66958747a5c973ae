package dock_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestRename: a device has its new ID at once and after a restart, without a reconnect. Its
// old ID is an alias, which no other device gets.
func TestRename(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		b := &board{address: "a1", model: "demo"}
		w := open(t, dir)
		w.transport.see("g", found(b))
		w.transport.see("h", named(&board{address: "a2", model: "arm"}, "arm"))
		if err := w.dock.Rename("demo", "robot"); err != nil {
			t.Fatal(err)
		}
		w.wantIDs("arm:online robot:online")
		if b.get(&b.opened) != 1 {
			t.Error("it was reconnected")
		}
		if dev := w.device("demo"); dev.ID != "robot" {
			t.Errorf("the old ID leads to %s", dev.ID)
		}
		for _, test := range []struct {
			id, name string
			want     ferrule.Code
		}{
			{"nobody", "x", ferrule.NotFound}, {"robot", "arm", ferrule.Invalid}, {"robot", "gateway", ferrule.Invalid}, {"robot", "a__b", ferrule.Invalid},
			{"robot", "", ferrule.Invalid}, {"arm", "leg", ferrule.Invalid}, // named in the configuration
			{"robot", "robot", ""},
		} {
			if err := w.dock.Rename(test.id, test.name); codeOf(err) != test.want {
				t.Errorf("rename %s %s: got %v, want %q", test.id, test.name, err, test.want)
			}
		}
		w.stop()
		w = open(t, dir)
		w.transport.see("g", found(b))
		w.transport.see("k", found(&board{address: "a3", model: "demo"}))
		if w.device("robot").State != ferrule.StateOnline || w.device("demo").ID != "robot" {
			t.Errorf("got %s", w.ids())
		}
		if err := w.dock.Adopt("demo"); err != nil || w.device("robot").Trust != ferrule.TrustAdopted {
			t.Errorf("adopting it by its old ID: %v", err)
		}
		if err := w.dock.Rename("demo", "demo"); err != nil {
			t.Errorf("renaming it back: %v", err)
		}
		if dev := w.device("robot"); dev.ID != "demo" || strings.Join(dev.Aliases, " ") != "robot" {
			t.Errorf("got %+v", dev)
		}
		for i := range 2 * ferrule.MaxAliases {
			if err := w.dock.Rename("demo", fmt.Sprint("r", i)); i == 0 && err != nil {
				t.Fatal(err)
			}
			if err := w.dock.Rename(fmt.Sprint("r", i), "demo"); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(w.device("demo").Aliases); n != ferrule.MaxAliases {
			t.Errorf("it has %d aliases", n)
		}
		if err := w.dock.Forget("demo"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, _, ok := w.fleet.Lookup("r15"); ok {
			t.Error("an alias of a forgotten device is known")
		}
	})
}

// TestNameAndAdopt: the owner can name a device when adopting it, also one that was never opened
// or that has yet to dial in.
func TestNameAndAdopt(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		shy := func(b *board) {
			s := found(b)
			s.AdoptFirst = "it may restart"
			w.transport.see(b.address, s)
		}
		for _, test := range []struct{ address, name, want string }{{"a1", "", "demo"}, {"a2", "arm", "arm"}} {
			shy(&board{address: test.address, model: "demo"})
			id := test.address
			if test.name != "" {
				if err := w.dock.Rename(id, test.name); err != nil {
					t.Fatal(err)
				}
				id = test.name
			}
			dev, err := w.dock.AdoptAndConnect(t.Context(), id)
			if err != nil || dev.ID != test.want || dev.State != ferrule.StateOnline || dev.Trust != ferrule.TrustAdopted {
				t.Errorf("%+v: got %+v, %v", test, dev, err)
			}
		}
		shy(&board{address: "a3", model: "demo"})
		if err := w.dock.CheckRename("a3", "arm"); codeOf(err) != ferrule.Invalid {
			t.Errorf("got %v", err)
		}
		if err := w.dock.Reserve("a4", "dial-in", "toy", "teddy"); err != nil {
			t.Fatal(err)
		}
		w.wantIDs("a3:offline arm:online demo:online teddy:offline")
		w.stop()
		w = open(t, dir)
		s := found(&board{address: "a4", model: "toy"})
		s.Adopted = true
		w.transport.see("a4", s)
		if dev := w.device("teddy"); dev.State != ferrule.StateOnline || dev.Model != "toy" {
			t.Errorf("got %+v", dev)
		}
		inSight, configured := w.dock.InSight("teddy")
		if _, other := w.dock.InSight("arm"); !inSight || !configured || other {
			t.Error("it is not known which device comes back")
		}
		behind := found(&board{address: "a5", model: "lamp"})
		behind.Adopted, behind.Hub = true, "home" // only its hub is configured
		w.transport.see("a5", behind)
		w.device("lamp")
		if inSight, configured := w.dock.InSight("lamp"); !inSight || configured {
			t.Errorf("in sight %v, configured %v", inSight, configured)
		}
	})
}

// TestLabels: labels are bounded and remembered, whether the device is there or not.
func TestLabels(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		b := &board{address: "a1", model: "lamp"}
		w := open(t, dir)
		w.transport.see("g", found(b))
		label := func(set map[string]string, remove ...string) {
			t.Helper()
			if _, err := w.dock.Label("lamp", set, remove); err != nil {
				t.Fatal(err)
			}
		}
		want := func(labels map[string]string) {
			t.Helper()
			if got := w.device("lamp").Labels; !maps.Equal(got, labels) {
				t.Errorf("got %v, want %v", got, labels)
			}
		}
		label(map[string]string{"room": "kitchen", "floor": "1"})
		b.hangUp()
		time.Sleep(time.Minute)
		want(map[string]string{"room": "kitchen", "floor": "1"})
		w.transport.see("g")
		label(map[string]string{"room": "attic"}, "floor")
		w.stop()
		w = open(t, dir)
		want(map[string]string{"room": "attic"})
		w.transport.see("g", found(b))
		want(map[string]string{"room": "attic"})
		if got, err := w.dock.Label("lamp", nil, nil); err != nil || got["room"] != "attic" {
			t.Errorf("got %v, %v", got, err)
		}
		many := make(map[string]string)
		for i := range ferrule.MaxLabels + 1 {
			many[fmt.Sprint("k", i)] = "v"
		}
		for _, set := range []map[string]string{
			many, {"": "x"}, {"Room": "x"}, {"a b": "x"}, {"a-": "x"}, {"room": ""}, {"room": "a\nb"}, {"room": "a\u202eb"}, {"room": strings.Repeat("x", 65)}, {strings.Repeat("k", 33): "x"},
		} {
			if _, err := w.dock.Label("lamp", set, nil); codeOf(err) != ferrule.Invalid {
				t.Errorf("%v: got %v", set, err)
			}
		}
		if _, err := w.dock.Label("lamp", nil, []string{"floor"}); codeOf(err) != ferrule.NotFound {
			t.Errorf("got %v", err)
		}
		if _, err := w.dock.Label("nobody", many, nil); codeOf(err) != ferrule.NotFound {
			t.Errorf("got %v", err)
		}
		want(map[string]string{"room": "attic"})
	})
}

// codeOf returns the code of an error, or "".
func codeOf(err error) ferrule.Code {
	if err == nil {
		return ""
	}
	return ferrule.AsError(err).Code
}
