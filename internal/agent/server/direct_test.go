package server

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// directRequests is how many requests TestDirect compares. The nightly run wants 100,000.
var directRequests = flag.Int("direct-requests", 4000, "requests that TestDirect compares")

// directHandle answers calls in every way that a pipeline can.
func directHandle(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	call.Target.Tool = &ferrule.Tool{}
	value := cloneOr(call.Args, `null`)
	switch call.Tool {
	case "echo":
		return &ferrule.Result{Value: value}, nil
	case "text":
		return &ferrule.Result{Value: json.RawMessage(`"a \"text\"\n\u2028 <ü> \ud83d\ude00"`), Age: ferrule.Duration(3 * time.Second)}, nil
	case "list":
		return &ferrule.Result{Value: json.RawMessage(`[1,{"a":[true,null]}]`)}, nil
	case "content":
		return &ferrule.Result{Value: json.RawMessage(`{"a":1}`), Content: []ferrule.Content{{Type: "text", Text: "one"}, {Type: "text", Text: "two\x01"}}}, nil
	case "picture":
		return &ferrule.Result{Content: []ferrule.Content{{Type: "image", MIME: "image/png", Data: []byte{1, 2, 3}}}}, nil
	case "empty":
		return &ferrule.Result{}, nil
	case "panic":
		panic("short circuit")
	case "needs":
		return nil, &ferrule.Error{Code: ferrule.Refused, Message: "it asks", Needs: []ferrule.AskTarget{ferrule.User}}
	}
	return nil, ferrule.Errorf(ferrule.Unanswered, "%s is silent", call.Device).WithHint("look first")
}

func cloneOr(text json.RawMessage, other string) json.RawMessage {
	if len(text) == 0 {
		return json.RawMessage(other)
	}
	return bytes.Clone(text)
}

func directServer(t *testing.T, onlySDK bool) *Server {
	t.Helper()
	var tools []ferrule.Tool
	for _, name := range []string{"echo", "text", "list", "content", "picture", "empty", "panic", "needs", "silent"} {
		tools = append(tools, ferrule.Tool{Name: name, Effect: ferrule.Reads})
	}
	s := newServer(t, directHandle, tools...)
	if onlySDK {
		s.OnlySDK()
	}
	return s
}

// pick returns one of several texts. Most of the time it is the first.
func pick(r *rand.Rand, texts ...string) string {
	if r.IntN(8) > 0 {
		return texts[0]
	}
	return texts[r.IntN(len(texts))]
}

// randomCall returns a request to call a tool, mostly a usual one.
func randomCall(r *rand.Rand, id int, stateless bool) (body string, name string) {
	tools := []string{"echo", "text", "list", "content", "picture", "empty", "panic", "needs", "silent", "unknown"}
	name = "robot__" + tools[r.IntN(len(tools))]
	name = pick(r, name, "gateway__status", "other__echo", "robot__écho", `robot__e\u0063ho`, "", strings.Repeat("x", 300))
	args := pick(r, `{}`, `{"a":1}`, `{ "a" : [1, 2.50, 1e3], "b":{"c":"\u00fc\n"} }`, `null`, `[]`, `"x"`, `{"a":1,"a":2}`, `{"a":`, `{"deep":`+strings.Repeat("[", 70)+strings.Repeat("]", 70)+`}`)
	meta := ""
	if stateless {
		args = pick(r, args, `{"deep":`+strings.Repeat("[", 1001)+strings.Repeat("]", 1001)+`}`) // it would end a stream
		meta = fmt.Sprintf(`{%q:%s,%q:%s,%q:%s%s}`,
			"io.modelcontextprotocol/protocolVersion", pick(r, `"2026-07-28"`, `"2025-11-25"`, `"2027-01-01"`, `1`),
			"io.modelcontextprotocol/clientInfo", pick(r, `{"name":"test","version":"1"}`, `{"name":"mcp","version":"2"}`, `{}`, `null`, `"x"`, `{"name":1}`),
			"io.modelcontextprotocol/clientCapabilities", pick(r, `{}`, `{"elicitation":{}}`, `{"extensions":{}}`, `null`, `[]`),
			pick(r, "", `,"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`, `,"progressToken":7`, `,"x":1`, `,"io.modelcontextprotocol/logLevel":"info"`))
	} else {
		meta = pick(r, "", `{}`, `{"traceparent":"x"}`, `{"progressToken":"p"}`, `null`, `[]`)
	}
	members := []string{fmt.Sprintf(`"name":"%s"`, name)}
	if r.IntN(8) > 0 {
		members = append(members, `"arguments":`+args)
	}
	if meta != "" {
		members = append(members, `"_meta":`+meta)
	}
	if extra := pick(r, "", `"requestState":"x"`, `"requestState":""`, `"inputResponses":{}`, `"task":{}`, `"Name":"robot__text"`, `"more":1`); extra != "" {
		members = append(members, extra)
	}
	r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	outer := []string{
		pick(r, `"jsonrpc":"2.0"`, `"jsonrpc":"2.0","extra":1`, `"jsonrpc":"1.0"`, `"JSONRPC":"2.0"`),
		pick(r, fmt.Sprintf(`"id":%d`, id), fmt.Sprintf(`"id":"id-%d"`, id), fmt.Sprintf(`"id":"\u0061%d"`, id), fmt.Sprintf(`"id":%d.0`, id), `"id":null`, `"id":{}`),
		pick(r, `"method":"tools/call"`, `"method":"tools\/call"`, `"method":"tools/list"`, `"method":"ping"`),
		`"params":` + pick(r, "{"+strings.Join(members, pick(r, ",", " ,\t"))+"}", `null`, `[]`, `{}`),
	}
	r.Shuffle(len(outer), func(i, j int) { outer[i], outer[j] = outer[j], outer[i] })
	return "{" + strings.Join(outer, ",") + "}", name
}

// directAnswer is what a client gets.
type directAnswer struct {
	status int
	kind   string // of the content
	value  any
}

func decodeAnswer(t *testing.T, text string) (value any) {
	t.Helper()
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return value
}

// TestDirect compares the answers of the gateway to generated requests over HTTP with those
// of the SDK.
func TestDirect(t *testing.T) {
	ours, theirs := directServer(t, false), directServer(t, true)
	post := func(s *Server, body, name, accept string) directAnswer {
		r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(body))
		r.Host = "127.0.0.1"
		for key, value := range map[string]string{
			"Content-Type": "application/json", "Accept": accept, mcphttp.VersionHeader: mcphttp.StatelessVersion, mcphttp.MethodHeader: callMethod, nameHeader: name,
		} {
			r.Header.Set(key, value)
		}
		w := httptest.NewRecorder()
		s.http.ServeHTTP(w, r)
		return directAnswer{w.Code, w.Header().Get("Content-Type"), decodeAnswer(t, w.Body.String())}
	}
	random, direct := rand.New(rand.NewPCG(1, 2)), 0
	for i := range *directRequests {
		body, name := randomCall(random, i, true)
		accept := pick(random, "application/json, text/event-stream", "application/json,text/event-stream", "text/event-stream;q=1, application/json", "*/*", "application/json")
		name = pick(random, name, "robot__echo", "")
		got, want := post(ours, body, name, accept), post(theirs, body, name, accept)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\n with the name %s\n got %+v\nwant %+v", body, name, got, want)
		}
		if mcphttp.OneMeaning([]byte(body)) && ours.direct([]byte(body)) != nil {
			direct++
		}
	}
	t.Logf("%d answers are equal, %d of them to requests that do not need the SDK", *directRequests, direct)
	if direct < *directRequests/20 {
		t.Error("too few")
	}
}

// TestDirectLines does the same on a pair of streams, in both kinds of versions.
func TestDirectLines(t *testing.T) {
	for _, stateless := range []bool{false, true} {
		ask := func(s *Server) (func(string) any, func() bool) {
			c := onLines(t, s)
			send := func(line string) any {
				c.write(line)
				return decodeAnswer(t, c.read())
			}
			open := func() bool {
				c = onLines(t, s)
				if stateless {
					send(`{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`)
					return true
				}
				send(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
				c.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
				return true
			}
			open()
			return send, open
		}
		ours, theirs := directServer(t, false), directServer(t, true)
		toOurs, reopenOurs := ask(ours)
		toTheirs, reopenTheirs := ask(theirs)
		random, direct, n := rand.New(rand.NewPCG(3, 4)), 0, *directRequests/2
		for i := range n {
			body, _ := randomCall(random, i, stateless)
			if !json.Valid([]byte(body)) || strings.Contains(body, `"id":null`) || strings.Contains(body, `"id":{}`) || strings.Contains(body, `.0,`) || strings.Contains(body, `.0}`) ||
				strings.Contains(body, `"jsonrpc":"1.0"`) || strings.Contains(body, `JSONRPC`) || strings.Contains(body, `"extra"`) || strings.Contains(body, `"method":"ping"`) || strings.Contains(body, `"progressToken"`) || strings.Contains(body, "logLevel") {
				continue // the session ends, or there is another message before the response
			}
			got, want := toOurs(body), toTheirs(body)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s\n got %+v\nwant %+v", body, got, want)
			}
			if got == nil { // the session has ended
				reopenOurs()
				reopenTheirs()
			}
			if mcphttp.OneMeaning([]byte(body)) && ours.direct([]byte(body)) != nil {
				direct++
			}
		}
		t.Logf("stateless: %t: %d requests, %d of them do not need the SDK", stateless, n, direct)
		if direct < n/20 {
			t.Error("too few")
		}
	}
}

// TestDirectCancelled: a call that is cancelled, or whose client is gone, ends as with the
// SDK.
func TestDirectCancelled(t *testing.T) {
	answers := make(map[bool]any)
	for _, onlySDK := range []bool{false, true} {
		began, ended := make(chan struct{}, 2), make(chan error, 2)
		s := newServer(t, func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			call.Target.Tool = &ferrule.Tool{}
			began <- struct{}{}
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil, ferrule.Errorf(ferrule.Cancelled, "%w", context.Canceled).AfterSend()
		}, ferrule.Tool{Name: "slow"})
		if onlySDK {
			s.OnlySDK()
		}
		c := onLines(t, s)
		c.write(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
		c.read()
		c.write(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"robot__slow"}}`)
		<-began
		c.write(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"robot__slow"}}`) // dropped
		c.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}`)
		c.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"enough"}}`)
		if err := <-ended; err != context.Canceled {
			t.Errorf("cancelled: %v", err)
		}
		answers[onlySDK] = decodeAnswer(t, c.read())
		select {
		case <-began:
			t.Errorf("only the SDK %t: a request that was sent twice ran twice", onlySDK)
		default:
		}
		c.write(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"robot__slow"}}`) // the ID is free again
		<-began
		c.requests.Close()
		if err := <-ended; err != io.EOF {
			t.Errorf("the client is gone: %v", err)
		}
		if err := <-c.ended; err != nil {
			t.Error(err)
		}
	}
	if !reflect.DeepEqual(answers[false], answers[true]) {
		t.Errorf("got %v, want %v", answers[false], answers[true])
	}
}

// BenchmarkDecodeMessage measures how the SDK decodes a call: see docs/explanation/sdk-decoder.md.
func BenchmarkDecodeMessage(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := jsonrpc.DecodeMessage([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"robot__gpio_read","arguments":{"pin":2}}}`)); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzPlainMessage: the SDK can read what is plain, and reads the same method.
func FuzzPlainMessage(f *testing.F) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`, `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":"a","method":"ping"}`, `{"jsonrpc":"2.0","id":{},"method":"ping"}`, `{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"1.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":1,"method":"p\u0069ng"}`,
		` {"method":"x","jsonrpc":"2.0"} `, `[]`, `{"jsonrpc":"2.0","ID":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":012345678901234567890,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":` + strings.Repeat("[", 1001) + strings.Repeat("]", 1001) + `}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		if !mcphttp.OneMeaning(message) {
			return
		}
		method, plain := PlainMessage(message)
		if !plain {
			return
		}
		decoded, err := jsonrpc.DecodeMessage(message)
		if err != nil {
			t.Fatalf("%s: %v", message, err)
		}
		if req, ok := decoded.(*jsonrpc.Request); !ok || req.Method != method {
			t.Fatalf("%s: got %q, the SDK reads %#v", message, method, decoded)
		}
	})
}

// FuzzDirect: what is read is what a decoder reads.
func FuzzDirect(f *testing.F) {
	random := rand.New(rand.NewPCG(5, 6))
	for i := range 50 {
		body, _ := randomCall(random, i, i%2 == 0)
		f.Add([]byte(body))
	}
	f.Add([]byte(`{"jsonrpc":"2.0","id":1E700,"method":"tools/call","params":{"name":"a__b","arguments":{"x":1E700}}}`))
	s := &Server{}
	f.Fuzz(func(t *testing.T, body []byte) {
		if !mcphttp.OneMeaning(body) {
			return
		}
		c := s.direct(body)
		if c == nil {
			return
		}
		var want struct {
			ID     any    `json:"id"`
			Method string `json:"method"`
			Params struct {
				Name      string          `json:"name"`
				Arguments json.RawMessage `json:"arguments"`
			} `json:"params"`
		}
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatal(err)
		}
		if want.Method != callMethod || want.Params.Name != c.params.Name || !bytes.Equal(want.Params.Arguments, c.params.Arguments) || !reflect.DeepEqual(want.ID, decodeAnswer(t, string(c.id))) {
			t.Fatalf("%s: got %+v, %s", body, c.params, c.id)
		}
	})
}
