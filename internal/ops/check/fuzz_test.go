package check

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// hostileLines are lines that were difficult for some parser.
var hostileLines = []string{
	`{"result":{"a":1},"jsonrpc":"2.0","id":7}`, `{"jsonrpc":"2.0","id":0,"error":{"code":-32700,"message":"Parse error"}}`,
	`dbg {"free":{"result":1,"jsonrpc":"2.0","id":7} ok`, `{"result":1,"id":7}{"result":2,"id":8}`, `{"id":7,"id":8,"result":1}`,
	"\x00\xf8\xfe{\"id\":", `{"result":null,"id":null}`, `{"error":"text","id":"7"}`, strings.Repeat(`{"id":`, 2000), `{"method":"x","id":1,"result":2}`,
	`{"session_id":"","type":"mcp","payload":{"jsonrpc":"2.0","id":7,"result":{}}}`, `{"type":"hello","features":{"mcp":true}}`,
	`{"session_id":"","type":"mcp","payload":{"jsonrpc":"2.0","id":7,"error":{"message":"Failed to open "/dev/motor""}}}`, `{"type":5,"payload":7}`,
}

// FuzzParseLine checks that a line is taken apart without loss: answers and the text around
// them are in the line.
func FuzzParseLine(f *testing.F) {
	for _, line := range hostileLines {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r := parseLine(line)
		size := 0
		for _, a := range r.answers {
			if !strings.Contains(string(line), a.raw) {
				t.Errorf("the answer %q is not in the line", a.raw)
			}
			if a.result == nil && a.err == nil {
				t.Errorf("%q is not an answer", a.raw)
			}
			size += len(a.raw)
		}
		if size+len(r.before)+len(r.after) > len(line) {
			t.Errorf("found more than there is in %q: %+v", line, r)
		}
		if r.broken && len(r.answers) > 0 {
			t.Errorf("%q has answers and is broken", line)
		}
	})
}

// FuzzDecodeMessage checks messages of toys and MCP servers.
func FuzzDecodeMessage(f *testing.F) {
	for _, line := range hostileLines {
		f.Add([]byte(line), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, binary bool) {
		m := transport.Message{Data: data}
		if binary {
			m.Channel = "binary"
		}
		in := decodeMessage(m)
		if in.kind == "" || binary != (in.kind == kindSound) {
			t.Errorf("%q has the kind %q", data, in.kind)
		}
		if in.kind == kindAnswer && in.answer.result == nil && in.answer.err == nil {
			t.Errorf("%q is not an answer", data)
		}
	})
}

// FuzzReadEvent checks streams of events, with reads of any size.
func FuzzReadEvent(f *testing.F) {
	f.Add("id: 1\ndata: \n\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n")
	f.Add(": keepalive\r\n\r\ndata:{\"jsonrpc\":\"2.0\",\r\ndata:\"id\":1,\"result\":{}}\r\n\r\n")
	f.Fuzz(func(t *testing.T, stream string) {
		whole, err := readEvent(strings.NewReader(stream))
		if err != nil {
			t.Fatal(err)
		}
		parts, err := readEvent(iotest.OneByteReader(strings.NewReader(stream)))
		if err != nil || string(whole) != string(parts) {
			t.Errorf("%q gives %q at once and %q byte by byte, %v", stream, whole, parts, err)
		}
	})
}

// FuzzShow checks that nothing that a terminal obeys is shown, and not much of it.
func FuzzShow(f *testing.F) {
	f.Add("\x1b[2J\u202e\r\n\x00\xff")
	f.Fuzz(func(t *testing.T, text string) {
		got := show(text)
		if n := len([]rune(got)); n > maxShown+1 {
			t.Errorf("%d characters are shown", n)
		}
		if strings.ContainsFunc(got, func(r rune) bool { return unicode.IsControl(r) || r == '\u202e' || r == '\u200b' }) {
			t.Errorf("%q is shown as %q", text, got)
		}
	})
}

// FuzzBoard answers a check of a board with any bytes: it ends, and does not panic.
func FuzzBoard(f *testing.F) {
	f.Add([]byte(`{"result":{"device":"x","pin_count":1},"jsonrpc":"2.0","id":101}` + "\n"))
	f.Add([]byte(`{"result":{"tools":[{"name":"gpio_read"},5,null],"pins":[{"pin":1}]},"jsonrpc":"2.0","id":104}` + "\n\x00\xff{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		go func() {
			theirs.Write(data)
			theirs.Close()
		}()
		b := &board{run: newRun(Target{kind: "tcp", text: "fuzz"}, "mcpu", mcpuRules, Options{}), nextID: 101, requests: make(map[int]*request), stream: newStream(ours)}
		defer func() { b.stream.close() }()
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		for id := 101; id < 105; id++ {
			b.requests[id] = &request{sent: "x", at: time.Now()}
		}
		for _, a := range b.collect(ctx, 50*time.Millisecond, 5*time.Millisecond) {
			r := reply{outcome: answered, answer: a}
			if a.err == nil {
				if err := b.parseInfo(r); err != nil {
					t.Error(err)
				}
				b.parseList(r)
			}
		}
		for _, judge := range []func(context.Context) (string, error){b.names, b.schemas, b.pins} {
			if _, err := judge(ctx); err != nil {
				t.Error(err)
			}
		}
		if report := b.finish(); report.Score < 0 || report.Score > 100 {
			t.Errorf("the score is %d", report.Score)
		}
	})
}
