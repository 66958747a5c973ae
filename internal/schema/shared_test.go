package schema

import (
	"runtime"
	"testing"
	"time"
)

// TestShared: a schema is compiled once as long as it is in use, for arguments and for
// answers by itself, and forgotten afterwards.
func TestShared(t *testing.T) {
	const text = `{"type":"object","properties":{"only here":{"type":"integer"}}}`
	compile := func(how func([]byte) (*Schema, error)) *Schema {
		s, err := how([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	known := func() int {
		sharedArguments.mu.Lock()
		defer sharedArguments.mu.Unlock()
		return len(sharedArguments.known)
	}
	a, b, answer := compile(Compile), compile(Compile), compile(CompileOutput)
	if a != b || a == answer {
		t.Errorf("got %p, %p and %p", a, b, answer)
	}
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
	for end := time.Now().Add(5 * time.Second); known() > 0; runtime.GC() {
		if time.Now().After(end) {
			t.Fatalf("%d are known", known())
		}
	}
	if s := compile(Compile); s.Check(map[string]any{"only here": "a"}) == nil {
		t.Error("it does not check")
	}
}
