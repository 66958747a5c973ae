package terminal

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"
)

// TestReadLine checks an answer with and without a line end, and Ctrl-C.
func TestReadLine(t *testing.T) {
	for text, want := range map[string]string{"yes\nno\n": "yes\n", "y": "y", "": ""} {
		if got := ReadLine(t.Context(), strings.NewReader(text)); got != want {
			t.Errorf("%q: got %q", text, got)
		}
	}
	silent, terminal := io.Pipe()
	defer terminal.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, interrupt)
	if got := ReadLine(ctx, silent); got != "" {
		t.Errorf("got %q", got)
	}
}
