package terminal

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// TestReader checks that a wait which ended early loses no line, that a line which is too
// long is one error, and that the end of the input is reported each time.
func TestReader(t *testing.T) {
	in, out := io.Pipe()
	r := &Reader{In: in}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if line, err := r.Line(over); !errors.Is(err, context.Canceled) {
		t.Errorf("got %q, %v", line, err)
	}
	go func() {
		io.WriteString(out, "one\r\n"+strings.Repeat("x", 2*maxLine)+"\n\nlast")
		out.Close()
	}()
	for _, want := range []struct {
		text string
		err  error
	}{{"one", nil}, {"", ErrLine}, {"", nil}, {"last", nil}, {"", io.EOF}, {"", io.EOF}} {
		if line, err := r.Line(t.Context()); line != want.text || err != want.err {
			t.Errorf("got %q, %v; want %+v", line, err, want)
		}
	}
}

// TestDiscard: lines that nobody asked for are dropped, and later ones are not.
func TestDiscard(t *testing.T) {
	in, out := io.Pipe()
	r := &Reader{In: in}
	r.Discard() // nothing was read yet
	next := func(want string) {
		t.Helper()
		if line, err := r.Line(t.Context()); line != want || err != nil {
			t.Errorf("got %q, %v; want %q", line, err, want)
		}
	}
	go io.WriteString(out, "one\n")
	next("one")
	io.WriteString(out, "two\nthree\nfour\n")
	for len(r.lines) < 3 {
		time.Sleep(time.Millisecond)
	}
	next("two")
	r.Discard()
	io.WriteString(out, "five\n")
	next("five")
	out.Close()
	for range 2 { // the end of the input stays
		r.Discard()
		if line, err := r.Line(t.Context()); err != io.EOF {
			t.Errorf("got %q, %v", line, err)
		}
	}
}
