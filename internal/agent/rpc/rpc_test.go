package rpc_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/rpc"
)

// TestLines: lines come whole, however they are written, and an error ends the writing.
func TestLines(t *testing.T) {
	failed := errors.New("no")
	var got []string
	lines := rpc.Lines{Pass: func(line []byte) error {
		if got = append(got, string(line)); string(line) == "stop" {
			return failed
		}
		return nil
	}}
	for _, part := range []string{"a", "b\n", "\nc\nd", "e\n"} {
		if n, err := lines.Write([]byte(part)); n != len(part) || err != nil {
			t.Errorf("%q: %d, %v", part, n, err)
		}
	}
	if want := []string{"ab", "", "c", "de"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if _, err := lines.Write([]byte("stop\nmore\n")); err != failed || got[len(got)-1] != "stop" {
		t.Errorf("got %v and %q", err, got)
	}
}

// TestEncode: a message is one line, and its texts stay as they are.
func TestEncode(t *testing.T) {
	m := rpc.Message{Version: "2.0", ID: []byte("1"), Result: []byte("{\"a\":\n\"<b>\"}")}
	if got := string(rpc.Encode(m)); got != `{"jsonrpc":"2.0","id":1,"result":{"a":"<b>"}}` {
		t.Errorf("got %s", got)
	}
}
