package schema

import (
	"runtime"
	"testing"
	"time"
)

// TestCache checks that a schema is compiled once while it is in use, separately for
// arguments and answers, and dropped afterwards.
func TestCache(t *testing.T) {
	const text = `{"type":"object","properties":{"only here":{"type":"integer"}}}`
	compile := func(how func([]byte) (*Schema, error)) *Schema {
		s, err := how([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	entries := func() int {
		inputs.mu.Lock()
		defer inputs.mu.Unlock()
		return len(inputs.schemas)
	}
	a, b, answer := compile(Compile), compile(Compile), compile(CompileOutput)
	if a != b || a == answer {
		t.Errorf("got %p, %p and %p", a, b, answer)
	}
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
	for end := time.Now().Add(5 * time.Second); entries() > 0; runtime.GC() {
		if time.Now().After(end) {
			t.Fatalf("%d entries", entries())
		}
	}
	if s := compile(Compile); s.Check(map[string]any{"only here": "a"}) == nil {
		t.Error("it accepts a wrong type")
	}
}
