package overlay

import (
	"runtime"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestReplace: after a replacement, devices whose overlays did not change still share
// their manifest, and the others get a new one.
func TestReplace(t *testing.T) {
	file := func(text string) *File {
		t.Helper()
		f, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	const heater = `{"match":{"device":"heater"},"tools":{"move":{"effect":"EFFECT"}}}`
	common := `{"match":{"protocol":"p"},"tools":{"move":{"text":"Move it"}}}`
	set := func(effect string) *Set {
		return NewSet(file(common), file(strings.ReplaceAll(heater, "EFFECT", effect)))
	}
	c := NewCache(set("reads"))
	m := &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "move"}}}
	lamp, before := c.Apply("p", "k", "lamp", m), c.Apply("p", "k", "heater", m)
	c.Replace(set("endangers"))
	if c.Apply("p", "k", "lamp", m) != lamp {
		t.Error("the manifest of a device whose overlays are the same was replaced")
	}
	after := c.Apply("p", "k", "heater", m)
	if before.Tools[0].Effect != ferrule.Reads || after.Tools[0].Effect != ferrule.Endangers || c.Apply("p", "k", "heater", m) != after {
		t.Errorf("got %+v", after.Tools[0])
	}
	c.Replace(NewSet(file(common)))
	if c.Apply("p", "k", "heater", m) != lamp {
		t.Error("a device without an overlay of its own does not share the manifest of its Kind")
	}
	c.Replace(NewSet())
	if got := c.Apply("p", "k", "lamp", m); got == lamp || got.Tools[0].Text != "" {
		t.Errorf("got %+v", got.Tools[0])
	}
	runtime.KeepAlive(lamp)
}

func TestCache(t *testing.T) {
	file, err := Parse([]byte(`{"match":{"device":"special"},"tools":{"move":{"effect":"endangers"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	c := NewCache(NewSet(file))
	m := &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "move"}}, Notes: []string{"of one device"}}
	a, b := c.Apply("p", "k", "a", m), c.Apply("p", "k", "b", m)
	special := c.Apply("p", "k", "special", m)
	otherProtocol, otherKind := c.Apply("q", "k", "a", m), c.Apply("p", "l", "a", m)
	if a != b || a == special || a == otherProtocol || a == otherKind {
		t.Errorf("got %p, %p, special %p, other protocol %p, other Kind %p", a, b, special, otherProtocol, otherKind)
	}
	if a.Notes != nil || len(m.Notes) != 1 || a.Tools[0].Effect != ferrule.Changes || special.Tools[0].Effect != ferrule.Endangers {
		t.Errorf("got %+v and %+v", a, special)
	}
	if c.Lookup("p", "k", "new") != a || c.Lookup("p", "k", "special") != special || c.Lookup("p", "none", "a") != nil {
		t.Error("Lookup differs from Apply")
	}
	runtime.KeepAlive(a)
	runtime.KeepAlive(special)
	entries := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.effective)
	}
	wait.For(t, "entries that nobody uses are gone", func() bool {
		runtime.GC()
		return entries() == 0
	})
}

// TestPartOf checks that overlays for an accepted Kind apply to a part of it, also after
// they were replaced: a device must not shed one by a change of its manifest.
func TestPartOf(t *testing.T) {
	const kind = "0123456789abcdef"
	set := func(effect string) *Set {
		t.Helper()
		f, err := Parse([]byte(`{"match":{"kind":"0123456789ab"},"tools":{"open":{"effect":"` + effect + `"},"gone":{}}}`))
		if err != nil {
			t.Fatal(err)
		}
		return NewSet(f)
	}
	c := NewCache(set("endangers"))
	part := &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "open", Effect: ferrule.Reads}}, PartOf: kind}
	first := c.Apply("p", "k2", "gate", part)
	if first.Tools[0].Effect != ferrule.Endangers || first.PartOf != kind || len(c.UnknownTools("p", "k2", "gate", part)) != 1 {
		t.Errorf("got %+v", first)
	}
	c.Replace(set("changes"))
	if got := c.Apply("p", "k2", "gate", part); got.Tools[0].Effect != ferrule.Changes {
		t.Errorf("after a replacement: got %+v", got.Tools[0])
	}
	other := &ferrule.Manifest{Tools: part.Tools}
	if got := c.Apply("p", "k3", "gate", other); got.Tools[0].Effect != ferrule.Reads {
		t.Errorf("of another Kind: got %+v", got.Tools[0])
	}
	runtime.KeepAlive(first)
}
