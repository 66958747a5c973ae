package schema

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
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
	wait.For(t, "no entries", func() bool {
		runtime.GC()
		return entries() == 0
	})
	if s := compile(Compile); s.Check(map[string]any{"only here": "a"}) == nil {
		t.Error("it accepts a wrong type")
	}
}

// TestLazy checks that a schema is not compiled before it is used: a compiled one takes
// many times the memory.
func TestLazy(t *testing.T) {
	var text strings.Builder
	text.WriteString(`{"type":"object","properties":{`)
	for i := range 3700 {
		fmt.Fprintf(&text, `"p%d":{},`, i)
	}
	text.WriteString(`"last":{}}}`)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	Compile([]byte(`{"type":"object"}`)) // reads the schema of schemas
	before := heap()
	s, err := Compile([]byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	grown := int(heap() - before)
	figure.AtMost(t, "bytes of a schema that is not used, limit 4 times its text", grown, 4*text.Len())
	if found := s.Check(map[string]any{"last": 1}); found != nil {
		t.Errorf("got %q", found)
	}
	if used := int(heap() - before); used < 4*grown {
		t.Errorf("a schema takes %d bytes before it is used, and %d then", grown, used)
	}
	runtime.KeepAlive(s)
}
