package mcpu

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/wire"
	"github.com/ferrulehq/ferrule/wire/wiretest"
)

// FuzzScan looks for answers in lines of any content. An answer is found in
// whatever stands around it, as long as that does not look like one.
func FuzzScan(f *testing.F) {
	for _, s := range []string{
		`{"result":{"pin":2},"jsonrpc":"2.0","id":7}`,
		`{"jsonrpc":"2.0","id":0,"error":{"code":-32700,"message":"Parse error"}}`,
		`noise {"a{"{"result":1,"id":3}{"id":4,"result":null} {`,
		`{"id":"3","result":1}{"id":3.5,"result":1}[{"id":3}]`,
		`{"id":3,"error":"text"}{"id":3,"error":{"code":"x"}}`,
		strings.Repeat(`{"a":`, 50),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, a := range scan(line) {
			if a.result == nil && a.err == nil {
				t.Errorf("answer %d says nothing", a.id)
			}
			if a.err != nil && len(a.err.String()) > 300 {
				t.Errorf("an error of %d bytes", len(a.err.String()))
			}
		}
		if usual, ok := usualAnswer(line); ok {
			if a, ok := parseAnswer(line); !ok || a.id != usual.id || !bytes.Equal(bytes.TrimSpace(a.result), bytes.TrimSpace(usual.result)) {
				t.Errorf("%q was read as %+v and as %+v", line, usual, a)
			}
		}
		if bytes.ContainsAny(line, `{"[`) {
			return
		}
		glued := fmt.Appendf(nil, `%s{"result":{"pin":2},"jsonrpc":"2.0","id":7}%s`, line, line)
		if found := scan(glued); len(found) != 1 || found[0].id != 7 || string(found[0].result) != `{"pin":2}` {
			t.Errorf("in %q was found %+v", glued, found)
		}
	})
}

// TestScanIsBounded: a line made to be expensive costs about what its length
// does.
func TestScanIsBounded(t *testing.T) {
	const size = 256 << 10
	for _, unit := range []string{`{"a":`, `{"`, `{"a":[`, `{ `, `{"a":"{`, `{"a":1}`} {
		line := []byte(strings.Repeat(unit, size/len(unit)))
		start := time.Now()
		scan(line)
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("a line of %q took %v", unit, took)
		}
	}
}

// FuzzList reads lists of any content. What comes of it can be kept.
func FuzzList(f *testing.F) {
	f.Add([]byte(`{"tools":[{"name":"a","inputSchema":{},"polling":{"enabled":true,"interval_ms":5}}],"pins":[{"pin":2,"capabilities":{"buffer":true},"sampling":{"interval_ms":500,"buffer_size":20}}]}`))
	f.Add([]byte(`{"tools":[null,5,{},{"name":5},{"name":"a","description":[]}],"pins":[null,{},{"pin":"2"},{"pin":1e9}]}`))
	f.Add([]byte(`{"tools":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		count := 3
		m, _, err := parseList(info{Device: "d", PinCount: &count, Profile: "rich"}, data)
		if err != nil {
			return
		}
		m.Bound()
		if _, err := m.Kind(); err != nil {
			t.Error(err)
		}
		if _, err := json.Marshal(m); err != nil {
			t.Error(err)
		}
	})
}

// FuzzConversation is a board that says anything at all, whatever it is asked:
// the greeting ends, a call ends, and nothing is left behind.
func FuzzConversation(f *testing.F) {
	f.Add([]byte("{\"result\":{\"device\":\"d\"},\"id\":1}\n{\"result\":{\"tools\":[{\"name\":\"a\"}]},\"id\":2}\n{\"result\":5,\"id\":3}\n"))
	f.Add([]byte("\x00\xff{\"id\":0,\"error\":{\"code\":-32700}}\n{\"result\":{},\"id\":2}\n"))
	f.Add([]byte("{\"result\":{},\"id\":1}\n{\"result\":{\"tools\":[{\"na\n"))
	f.Fuzz(func(t *testing.T, says []byte) {
		synctest.Test(t, func(t *testing.T) {
			link, far := wiretest.Pipe(wire.Info{})
			defer far.Close()
			go io.Copy(io.Discard, far)
			go far.Write(says)
			d := New()
			d.firstID = func() int { return 1 }
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			session, manifest, err := d.Greet(ctx, link)
			if err != nil {
				link.Close()
				return
			}
			manifest.Bound()
			ended := make(chan error, 1)
			go func() { ended <- session.Run(ctx) }()
			call, hangUp := context.WithTimeout(ctx, time.Second)
			defer hangUp()
			result, err := session.Invoke(call, &ferrule.Call{Device: "d", Tool: "a"})
			if (result == nil) == (err == nil) {
				t.Errorf("%v and %v", result, err)
			}
			if _, ok := err.(*ferrule.Error); err != nil && !ok {
				t.Errorf("%T: %v", err, err)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	})
}
