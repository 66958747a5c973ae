package overlay

import (
	"runtime"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

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
	for end := time.Now().Add(5 * time.Second); entries() > 0; runtime.GC() {
		if time.Now().After(end) {
			t.Fatalf("%d entries that nobody uses", entries())
		}
	}
}
