package strictjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/strictjson"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

// errDuplicate stands for any DuplicateError.
var errDuplicate = errors.New("duplicate")

func kindOf(err error) error {
	var duplicate *strictjson.DuplicateError
	if errors.As(err, &duplicate) {
		return errDuplicate
	}
	return err
}

func TestCheck(t *testing.T) {
	for text, want := range map[string]error{
		`{}`:  nil,
		`[]`:  nil,
		`"a"`: nil,
		` {"a":1,"b":{"a":2},"c":[{"a":3},{"a":4}]} `: nil,
		`{"a":"a","b":"a,\"a\":1"}`:                   nil,
		`{"a":1,"A":2}`:                               nil,
		`{"":1,"a":["",""]}`:                          nil,
		`{"a":1,"a":1}`:                               errDuplicate,
		`{"a":1,"\u0061":2}`:                          errDuplicate,
		`{"id":1,"params":{"a":[1,{"b":1,"b":2}]}}`:   errDuplicate,
		`{"a":{"x":1},"b":[],"a":2}`:                  errDuplicate,
		`{"":1,"":2}`:                                 errDuplicate,
		``:                                            strictjson.ErrInvalid,
		`{"a":1`:                                      strictjson.ErrInvalid,
		`{} {}`:                                       strictjson.ErrInvalid,
		`{a:1}`:                                       strictjson.ErrInvalid,
	} {
		if err := strictjson.Check([]byte(text)); !errors.Is(kindOf(err), want) {
			t.Errorf("%s: got %v, want %v", text, err, want)
		}
	}
	if err := strictjson.Check([]byte(`{"` + strings.Repeat("x", 9999) + `":1,"` + strings.Repeat("x", 9999) + `":2}`)); err == nil || len(err.Error()) > 200 {
		t.Errorf("got %v", err)
	}
}

// TestManyMembers checks an object with many members.
func TestManyMembers(t *testing.T) {
	var b strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&b, `%s"%d":0`, map[bool]string{true: "{", false: ","}[i == 0], i)
	}
	start := time.Now()
	if err := strictjson.Check([]byte(b.String() + "}")); err != nil {
		t.Error(err)
	}
	figure.AtMost(t, "checking an object with 100,000 members", time.Since(start), 5*time.Second)
	if err := strictjson.Check([]byte(b.String() + `,"99":0}`)); kindOf(err) != errDuplicate {
		t.Errorf("got %v", err)
	}
}

// FuzzCheck compares Check with a slow implementation.
func FuzzCheck(f *testing.F) {
	for _, text := range []string{`{"a":1,"a":2}`, `[{"a":{"b":[]}},{"\u0062":1,"b":2}]`, `{"a":"\\\"","b":"{\"a\":1,\"a\":2}"}`, `[1,2`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := strictjson.Check(data)
		if valid := json.Valid(data); valid == errors.Is(err, strictjson.ErrInvalid) {
			t.Fatalf("valid: %t, got %v", valid, err)
		}
		if !errors.Is(err, strictjson.ErrInvalid) && duplicate(t, data) != (kindOf(err) == errDuplicate) {
			t.Fatalf("%s: got %v", data, err)
		}
	})
}

// duplicate reports whether an object in a valid text has a duplicate member.
func duplicate(t *testing.T, data []byte) bool {
	type level struct {
		names map[string]bool // nil for an array
		value bool            // the next token is a value
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var open []level
	for {
		token, err := dec.Token()
		if err == io.EOF {
			return false
		}
		if err != nil {
			t.Skip(err) // deeper than the decoder allows
		}
		if n := len(open); n > 0 && open[n-1].names != nil && token != json.Delim('}') {
			if open[n-1].value = !open[n-1].value; open[n-1].value {
				if name := token.(string); open[n-1].names[name] {
					return true
				}
				open[n-1].names[token.(string)] = true
				continue
			}
		}
		switch token {
		case json.Delim('{'):
			open = append(open, level{names: make(map[string]bool)})
		case json.Delim('['):
			open = append(open, level{})
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		}
	}
}

// TestMembers compares Members with a decoder.
func TestMembers(t *testing.T) {
	for _, text := range []string{
		`{}`, ` { } `, `[]`, `"a"`, `1`, `{"a":1}`, "{\n\t\"a\" : -1.5e3 ,\r\n \"b\" : [ {\"c\":\"]}\"} , 2 ] , \"d\":\"\\\"\\\\\" , \"e\":{} ,\"f\":null }", `{"a":true,"b":{"a":{"b":[]}},"":"x"}`,
	} {
		compareMembers(t, []byte(text))
	}
}

func FuzzMembers(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":"}"}],"c":{"d":[]},"e":1e5 }`))
	f.Add([]byte(` {"\u0061" : "\\" }`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if strictjson.Check(data) == nil {
			compareMembers(t, data)
		}
	})
}

func compareMembers(t *testing.T, text []byte) {
	t.Helper()
	var want map[string]json.RawMessage
	if json.Unmarshal(text, &want) != nil {
		want = nil // not an object
	}
	n := 0
	for name, value := range strictjson.Members(text) {
		var decoded string
		if err := json.Unmarshal(append(append([]byte{'"'}, name...), '"'), &decoded); err != nil {
			t.Fatalf("%s: name %q: %v", text, name, err)
		}
		if !bytes.Equal(want[decoded], value) {
			t.Fatalf("%s: %q is %q, want %q", text, name, value, want[decoded])
		}
		n++
	}
	if n != len(want) {
		t.Fatalf("%s: %d members, want %d", text, n, len(want))
	}
}
